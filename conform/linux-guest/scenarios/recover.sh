# The target is killed and restarted (host hook "restart") while fio verifies.
# RIG_REC_S: seconds of fio; RIG_REC_WAIT: half seconds to wait for the session.
recoveries() { grep -c 'operational after recovery' "$OUT/iscsid.log"; }

survives_restart() {
  local fio before killed back= status
  connect || return 1
  fio --name=r --filename="$DISK" --direct=1 --ioengine=libaio --iodepth=8 \
    --rw=randrw --bsrange=4k-64k --size=32m \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 \
    --time_based --runtime="${RIG_REC_S:-20}" \
    --output-format=json --output="$OUT/recover.json" &
  fio=$!
  sleep 5
  before=$(recoveries)
  killed=$EPOCHREALTIME
  hook restart || return 1
  for _ in $(seq "${RIG_REC_WAIT:-60}"); do
    if [ "$(recoveries)" -gt "$before" ] && [ "$(state "$SID")" = "LOGGED_IN " ]; then
      back=$(secs "$killed")
      break
    fi
    sleep 0.5
  done
  echo "logged in again after $back s: $(state "$SID")"
  grep -E 'recovery|detected' "$OUT/iscsid.log"
  dmesg | grep -E 'detected conn error|recovery timed out|I/O error'
  wait $fio
  status=$?
  echo "fio rc $status"
  [ $status = 0 ] || return 1
  if [ -z "$back" ]; then
    DETAIL="no recovery seen (state $(state "$SID"))"
    return 1
  fi
  DETAIL="session back $back s after the kill, fio rc 0"
  logout
}

if has_hook restart; then
  check recover survives_restart || logout >/dev/null 2>&1
else
  skip recover "no --hook restart=CMD given"
fi
finish
