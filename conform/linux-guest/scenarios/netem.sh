# The guest's sending side gets delay and loss (RIG_NETEM); digests stay on, fio verifies.
NETEM=${RIG_NETEM:-delay 10ms 2ms loss 1%}

verified_io() {
  local status
  modprobe sch_netem
  tc qdisc replace dev "$NIC" root netem $NETEM || return 1
  connect || return 1
  fio --name=n --filename="$DISK" --direct=1 --ioengine=libaio --iodepth=16 \
    --rw=randrw --bsrange=4k-64k --size=16m \
    --verify=crc32c --verify_fatal=1 --verify_backlog=32 \
    --time_based --runtime="${RIG_NET_S:-10}" \
    --output-format=json --output="$OUT/netem.json"
  status=$?
  DETAIL="$(fio_detail "$OUT/netem.json"); $(tc -s qdisc show dev "$NIC" | grep -o 'dropped [0-9]*'); netem $NETEM"
  tc qdisc del dev "$NIC" root
  logout
  return $status
}

check netem-fio verified_io || {
  tc qdisc del dev "$NIC" root 2>/dev/null
  logout >/dev/null 2>&1
}
finish
