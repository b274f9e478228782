# Helpers for scenarios. Every check prints one RIG|PASS, RIG|SKIP or RIG|FAIL line, which `run` on the
# host turns into the table; its full output is kept in $OUT/NAME.log.
PORT=$RIG_PORT IQN=$RIG_IQN PORTAL=$RIG_HOST:$RIG_PORT
INAME=${RIG_INITIATOR:-iqn.2001-04.org.debian:rig-guest}

# --- results ---------------------------------------------------------------------------------------

# secs START: seconds since START, an $EPOCHREALTIME
secs() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

# check NAME COMMAND...: runs COMMAND as one check. 0 passes, 77 skips, anything else fails.
# COMMAND may set DETAIL, which is shown in the table.
check() {
  local name=$1 start=$EPOCHREALTIME status
  shift
  DETAIL=
  "$@" >"$OUT/$name.log" 2>&1
  status=$?
  case $status in
    0) echo "RIG|PASS|$name|$(secs "$start")|$DETAIL" ;;
    77) echo "RIG|SKIP|$name|$(secs "$start")|$DETAIL" ;;
    *)
      echo "RIG|FAIL|$name|$(secs "$start")|rc=$status $DETAIL"
      tail -"${RIG_TAIL:-12}" "$OUT/$name.log" | sed 's/^/    | /'
      FAILED=1
      ;;
  esac
  return $status
}

# skip NAME WHY: a check that cannot be made here
skip() {
  why() { DETAIL=$1; return 77; }
  check "$1" why "$2"
}

# finish: the last word of a scenario
finish() { return ${FAILED:-0}; }

# hook NAME [SECONDS]: runs a command on the host (run --hook NAME=CMD) and waits for it
hook() {
  local answer
  echo "RIG|HOOK|$1" >&3
  read -r -t "${2:-120}" answer || return 1
  [ "$answer" = "hook 0" ]
}

has_hook() {
  case " $RIG_HOOKS " in
    *" $1 "*) return 0 ;;
  esac
  return 1
}

# fio_detail FILE: what fio's JSON says, for the table
fio_detail() {
  python3 - "$1" <<'P'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
read, write = job["read"], job["write"]
print("r %.1f MB/s w %.1f MB/s, %d+%d ios, err %d"
      % (read["bw"] / 1e3, write["bw"] / 1e3, read["total_ios"], write["total_ios"], job["error"]))
P
}

# --- open-iscsi ------------------------------------------------------------------------------------

# setconf KEY VALUE ...: defaults for new node records
setconf() {
  local conf=/etc/iscsi/iscsid.conf
  while [ $# -ge 2 ]; do
    sed -i "/^[# ]*${1//[/\\[} *=/d" $conf
    echo "$1 = $2" >>$conf
    shift 2
  done
}

# iscsi_up: starts iscsid once, with short timers
iscsi_up() {
  [ -n "$(pidof iscsid)" ] && return 0
  modprobe -a iscsi_tcp sd_mod sg || return 1
  [ -n "$RIG_CRC_HW" ] && modprobe crc32c-intel 2>/dev/null
  echo "InitiatorName=$INAME" >/etc/iscsi/initiatorname.iscsi
  local conf=/etc/iscsi/iscsid.conf kept=/tmp/iscsid.conf
  grep -v -E '^(iscsid.startup|node.conn\[0\].timeo|node.session.timeo|.*Digest)' $conf >$kept
  cat >>$kept <<C
node.session.timeo.replacement_timeout = ${RIG_REPL:-60}
node.conn[0].timeo.login_timeout = ${RIG_LOGIN_TO:-15}
node.conn[0].timeo.noop_out_interval = 2
node.conn[0].timeo.noop_out_timeout = 4
node.session.initial_login_retry_max = 2
C
  cp $kept $conf
  iscsid -f -d "${RIG_ISCSID_D:-1}" >"$OUT/iscsid.log" 2>&1 &
  local i
  for i in $(seq 50); do
    if [ -n "$(pidof iscsid)" ] && { [ -e /run/lock/iscsi/lock ] || [ "$i" -gt 3 ]; }; then break; fi
    sleep 0.05
  done
  return 0
}

# digests HEADER [DATA]: CRC32C, None or CRC32C,None; DATA as HEADER unless given
digests() {
  setconf 'node.conn[0].iscsi.HeaderDigest' "$1" 'node.conn[0].iscsi.DataDigest' "${2:-$1}"
}

# node_new: a fresh record of the target, with the defaults of now
node_new() {
  iscsiadm -m node -T "$IQN" -p "$PORTAL" -o delete >/dev/null 2>&1
  iscsiadm -m node -o new -T "$IQN" -p "$PORTAL" "$@"
}

node_set() { iscsiadm -m node -T "$IQN" -p "$PORTAL" -o update -n "$1" -v "$2"; }

# sids: the ids of the kernel's sessions
sids() {
  local session
  for session in /sys/class/iscsi_session/session*; do
    [ -e "$session" ] && echo "${session##*session}"
  done
}

# state [SID]: what the kernel says of a session, such as "LOGGED_IN "
state() { cat /sys/class/iscsi_session/session"${1:-*}"/state 2>/dev/null | tr '\n' ' '; }

# disk_of SID [LUN]: waits for the disk of a session and puts it into DISK
disk_of() {
  local block
  for _ in $(seq 100); do
    for block in /sys/class/iscsi_session/session"$1"/device/target*/*:"${2:-$RIG_LUN}"/block/*; do
      if [ -e "$block" ] && [ "$(cat "$block/size")" != 0 ]; then
        DISK=/dev/${block##*/}
        [ -b "$DISK" ] && return 0
      fi
    done
    sleep 0.1
  done
  return 1
}

# login: logs in; SID, DISK and CONN (its folder in sysfs) are set then
login() {
  iscsiadm -m node -T "$IQN" -p "$PORTAL" "$@" --login || return 1
  SID=$(sids | sort -n | tail -1)
  if ! disk_of "$SID"; then
    echo "no disk appeared for LUN $RIG_LUN"
    return 1
  fi
  CONN=/sys/class/iscsi_connection/connection$SID:0
  echo "session $SID disk $DISK"
}

logout() { iscsiadm -m node -T "$IQN" -p "$PORTAL" --logout; }

# connect [DIGEST]: logs in with both digests on, which is what most scenarios want
connect() { iscsi_up && digests "${1:-$RIG_DIGEST}" && node_new && login; }

# param NAME: a negotiated value, from the connection or else from the session
param() { cat "$CONN/$1" 2>/dev/null || cat "/sys/class/iscsi_session/session$SID/$1" 2>/dev/null; }

# want_digests HEADER DATA: 1 or 0 each, as the kernel negotiated them
want_digests() {
  local header data
  header=$(param header_digest)
  data=$(param data_digest)
  DETAIL="$DETAIL HeaderDigest=$header DataDigest=$data"
  [ "$header$data" = "$1$2" ]
}

# want_default: the digests that --digest asked for
want_default() {
  case $RIG_DIGEST in
    CRC32C) want_digests 1 1 ;;
    None) want_digests 0 0 ;;
    *) want_digests "$(param header_digest)" "$(param data_digest)" ;;
  esac
}

# udev_up: starts udev, for scenarios that want /dev/disk
udev_up() {
  [ -n "$(pidof systemd-udevd udevd)" ] && return 0
  /lib/systemd/systemd-udevd --daemon --resolve-names=never &&
    udevadm trigger -s block -s scsi &&
    udevadm settle -t 20
}
