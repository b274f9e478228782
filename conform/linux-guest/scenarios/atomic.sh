# All-or-nothing writes by RWF_ATOMIC (Linux 6.11 and later, on a scratch unit): the kernel's limits are what the unit offers
# (RIG_ATOMIC_MAX bytes), and a write reaches it as WRITE ATOMIC (16).
limit() { cat "/sys/block/${DISK##*/}/queue/atomic_write_$1_bytes"; }

# One write is a power of two of bytes, of what the unit offers, and has to fit into one bio of 256 pages wherever it begins.
limits() {
  local max unit=512
  max=$(limit max)
  DETAIL="max $max, unit $(limit unit_min) to $(limit unit_max), boundary $(limit boundary)"
  echo "$DETAIL"
  while [ $((unit * 2)) -le "$max" ] && [ $unit -lt 524288 ]; do unit=$((unit * 2)); done
  [ "$max" = "${RIG_ATOMIC_MAX:-1048576}" ] && [ "$(limit unit_max)" = $unit ] &&
    [ "$(limit unit_min)" = "$(cat "/sys/block/${DISK##*/}/queue/logical_block_size")" ] && [ "$(limit boundary)" = 0 ]
}

# atomic_write OFFSET BYTES: one direct write with RWF_ATOMIC; what it holds is its own place.
atomic_write() {
  python3 - "$DISK" "$1" "$2" <<'P'
import mmap, os, sys
offset, size = int(sys.argv[2]), int(sys.argv[3])
data = mmap.mmap(-1, size)
data.write(offset.to_bytes(8, "big") * (size // 8))
file = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
RWF_ATOMIC = 0x40
written = os.pwritev(file, [data], offset, RWF_ATOMIC)
back = mmap.mmap(-1, size)
os.preadv(file, [back], offset)
sys.exit(written != size or back[:] != data[:])
P
}

# What the initiator sent while a command ran: it tells the first byte of each CDB.
told() {
  local tells=/sys/module/libiscsi/parameters/debug_libiscsi_session status
  dmesg -C
  echo 1 >$tells
  "$@"
  status=$?
  echo 0 >$tells
  dmesg | grep -o 'iscsi prep.* cdb 0x[0-9a-f]*'
  return $status
}

# Once, and by WRITE ATOMIC (16) only: no WRITE (10) nor (16).
reaches_the_unit() {
  local bytes
  bytes=$(limit unit_max)
  DETAIL="$bytes bytes"
  told atomic_write $((bytes * 3)) "$bytes" >/tmp/told || return 1
  cat /tmp/told
  [ "$(grep -c 'cdb 0x9c' /tmp/told)" = 1 ] && ! grep -q 'cdb 0x[28]a' /tmp/told
}

# The kernel itself refuses what no unit could be asked for.
too_long() {
  local bytes
  bytes=$(limit unit_max)
  atomic_write $((bytes * 4)) $((bytes * 2)) 2>&1 | tee /dev/stderr | grep -q "Invalid argument"
}

check atomic-connect connect || {
  finish
  return
}
if [ -e "/sys/block/${DISK##*/}/queue/atomic_write_max_bytes" ]; then
  check atomic-limits limits
  check atomic-shortest atomic_write 4096 "$(limit unit_min)"
  check atomic-longest reaches_the_unit
  check atomic-too-long too_long
else
  skip atomic "the kernel is older than 6.11"
fi
logout >/dev/null 2>&1
finish
