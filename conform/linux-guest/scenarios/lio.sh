# The reverse: the guest's kernel target (LIO) exports a volume; the host reaches it through
# --hostfwd HOSTPORT:3260 and runs the command of --hook peer=CMD against it.
# RIG_LIO_IQN; RIG_LIO_HD, RIG_LIO_DD: digest lists; RIG_LIO_MC: MaxConnections; RIG_LIO_ERL;
# RIG_LIO_PI: protection type 0-3; RIG_LIO_MB: size in MiB; RIG_LIO_BACK=file: a file, not a ramdisk;
# RIG_LIO_ORDER: DataPDUInOrder and DataSequenceInOrder.
LIO_IQN=${RIG_LIO_IQN:-iqn.2003-01.org.linux-iscsi:rig}
CONFIG=/sys/kernel/config/target
MB=${RIG_LIO_MB:-64}
SERIAL=8f7d5a3e-rig

load_modules() {
  mkdir -p /etc/target/pr /var/target/pr
  modprobe -a configfs target_core_mod iscsi_target_mod || return 1
  mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
  [ -n "$RIG_CRC_HW" ] && modprobe crc32c-intel
  mkdir -p $CONFIG/iscsi
}

# Makes the volume; BACKSTORE is its folder then.
make_backstore() {
  if [ "$RIG_LIO_BACK" = file ]; then
    BACKSTORE=$CONFIG/core/fileio_0/rd0
    modprobe target_core_file
    truncate -s "${MB}M" /tmp/lio.img
    mkdir -p $BACKSTORE &&
      echo "fd_dev_name=/tmp/lio.img,fd_dev_size=$((MB << 20))" >$BACKSTORE/control &&
      echo $SERIAL >$BACKSTORE/wwn/vpd_unit_serial &&
      echo 1 >$BACKSTORE/enable &&
      echo 1 >$BACKSTORE/attrib/emulate_tpu || return 1
  else
    BACKSTORE=$CONFIG/core/rd_mcp_0/rd0
    mkdir -p $BACKSTORE &&
      echo "rd_pages=$((MB * 256))" >$BACKSTORE/control &&
      echo $SERIAL >$BACKSTORE/wwn/vpd_unit_serial &&
      echo 1 >$BACKSTORE/enable || return 1
  fi
  if [ -n "$RIG_LIO_PI" ]; then
    echo "$RIG_LIO_PI" >$BACKSTORE/attrib/pi_prot_type || echo "pi_prot_type refused"
  fi
  return 0
}

# Exports the volume to everybody.
make_target() {
  local group=$CONFIG/iscsi/$LIO_IQN/tpgt_1 key
  mkdir -p "$group" && mkdir -p "$group/lun/lun_0" && ln -s $BACKSTORE "$group/lun/lun_0/rd0" &&
    mkdir -p "$group/np/0.0.0.0:3260" || return 1
  echo 0 >"$group/attrib/authentication"
  echo 1 >"$group/attrib/generate_node_acls"
  echo 1 >"$group/attrib/cache_dynamic_acls"
  echo 0 >"$group/attrib/demo_mode_write_protect"
  [ -n "$RIG_LIO_PI" ] && echo 1 >"$group/attrib/t10_pi"
  echo "${RIG_LIO_HD:-CRC32C,None}" >"$group/param/HeaderDigest"
  echo "${RIG_LIO_DD:-CRC32C,None}" >"$group/param/DataDigest"
  [ -n "$RIG_LIO_MC" ] && echo "$RIG_LIO_MC" >"$group/param/MaxConnections"
  if [ -n "$RIG_LIO_ORDER" ]; then
    echo "$RIG_LIO_ORDER" >"$group/param/DataPDUInOrder" &&
      echo "$RIG_LIO_ORDER" >"$group/param/DataSequenceInOrder" || return 1
  fi
  if [ -n "$RIG_LIO_ERL" ]; then
    echo "$RIG_LIO_ERL" >"$group/param/ErrorRecoveryLevel"
    echo "$RIG_LIO_ERL" >"$group/attrib/default_erl"
  fi
  echo 1 >"$group/enable" || return 1
  for key in HeaderDigest DataDigest MaxConnections ErrorRecoveryLevel DataPDUInOrder DataSequenceInOrder; do
    echo "$key $(cat "$group/param/$key")"
  done
  DETAIL="LIO $(uname -r) MaxConnections $(cat "$group/param/MaxConnections")"
  DETAIL="$DETAIL ERL $(cat "$group/param/ErrorRecoveryLevel")"
  DETAIL="$DETAIL pi_prot_type $(cat $BACKSTORE/attrib/pi_prot_type)"
}

lio_up() { load_modules && make_backstore && make_target; }

targetcli_ls() {
  mkdir -p /run/dbus
  [ -S /run/dbus/system_bus_socket ] || dbus-daemon --system --fork
  targetcli ls / && DETAIL="$(targetcli ls / | grep -c -E 'tpg1|lun0|portal') lines match"
}

peer() { hook peer "${RIG_PEER_S:-600}"; }

check lio-up lio_up
[ -z "$FAILED" ] && [ -n "$RIG_LIO_TCLI" ] && check lio-targetcli-ls targetcli_ls
[ -z "$FAILED" ] && check lio-peer peer
finish
