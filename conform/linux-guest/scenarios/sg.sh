# SCSI basics through sg3-utils. `must` fails when refused, `may` is skipped when refused.
must() {
  local name=$1
  shift
  check "sg-$name" "$@"
}

# sg3-utils' exit statuses for a command that the device refuses: 5 illegal request, 9 invalid opcode;
# 6 is a unit attention.
may() {
  local name=$1
  shift
  optional() {
    "$@"
    local status=$?
    [ $status = 0 ] && return 0
    DETAIL="refused (rc $status)"
    case $status in
      5 | 9 | 6) return 77 ;;
    esac
    return $status
  }
  check "sg-$name" optional "$@"
}

inquiry() {
  sg_inq "$DISK" || return 1
  DETAIL=$(sg_inq "$DISK" |
    awk -F: '/Vendor|Product id|revision level/ { gsub(/^ +| +$/, "", $2); printf "%s ", $2 }')
}

read_capacity_16() {
  sg_readcap --long "$DISK" || return 1
  DETAIL=$(sg_readcap --long "$DISK" | grep -i -E 'prot_en|lbpme' | tr -s ' ' | tr '\n' ' ')
}

compare_and_write() {
  dd if=/dev/zero of="$DISK" bs="$BLOCK_BYTES" seek=256 count=1 oflag=direct &&
    sg_compare_and_write --in=/dev/zero --lba=256 --xferlen=$((2 * BLOCK_BYTES)) "$DISK"
}

# Registers, reserves, reads, releases, clears.
persistent_reservation() {
  local key=abc1
  has_key() { sg_persist -n -i "$1" "$DISK" | grep -qi $key; }
  sg_persist -n -i -c "$DISK" &&
    sg_persist -n -o -G -S 0x$key "$DISK" && has_key -k &&
    sg_persist -n -o -R -K 0x$key -T 5 "$DISK" && has_key -r &&
    sg_persist -n -o -L -K 0x$key -T 5 "$DISK" &&
    sg_persist -n -o -C -K 0x$key "$DISK" && ! has_key -k
}

illegal_opcode() {
  sg_raw "$DISK" 1f 00 00 00 00 00 2>&1 | tee /dev/stderr | grep -qi "illegal request"
}

lba_out_of_range() {
  sg_raw -r "$BLOCK_BYTES" "$DISK" 88 00 ff ff ff ff ff ff ff 00 00 00 00 01 00 00 2>&1 |
    tee /dev/stderr | grep -qi "out of range"
}

check sg-connect connect || {
  finish
  return
}
BLOCK_BYTES=$(cat "/sys/block/${DISK#/dev/}/queue/logical_block_size")

must inq inquiry
must tur sg_turs "$DISK"
must luns sg_luns "$DISK"
must readcap10 sg_readcap "$DISK"
must readcap16 read_capacity_16
must vpd-00 sg_vpd -p sv "$DISK"
must vpd-80 sg_vpd -p sn "$DISK"
must vpd-83 sg_vpd -p di "$DISK"
may vpd-b0 sg_vpd -p bl "$DISK"
may vpd-b1 sg_vpd -p bdc "$DISK"
may vpd-b2 sg_vpd -p lbpv "$DISK"
must modes sg_modes -a "$DISK"
must senseinfo sg_requests "$DISK"
must sync sg_sync "$DISK"
may opcodes sg_opcodes -q "$DISK"
may verify sg_verify -c 8 "$DISK"
may ws16 sg_write_same -S -n 8 -l 64 "$DISK"
may unmap sg_unmap --lba=128 --num=8 --force "$DISK"
may caw compare_and_write
may getlbastatus sg_get_lba_status "$DISK"
must persist persistent_reservation
must illegal-opcode illegal_opcode
must lba-out-of-range lba_out_of_range
logout >/dev/null 2>&1
finish
