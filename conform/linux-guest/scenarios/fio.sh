# Mixed random I/O of 512 B to 128 KiB; fio verifies what it reads.
# RIG_QD: queue depth; RIG_FIO_MB: working set in MiB; RIG_FIO_S: seconds.
verified_io() {
  connect && want_default || return 1
  fio --name=v --filename="$DISK" --direct=1 --ioengine=libaio --iodepth="${RIG_QD:-16}" \
    --rw=randrw --bsrange=512-128k --size="${RIG_FIO_MB:-48}m" \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --do_verify=1 \
    --time_based --runtime="${RIG_FIO_S:-20}" \
    --output-format=json --output="$OUT/fio.json" || return 1
  DETAIL=$(fio_detail "$OUT/fio.json")
  logout
}

check fio-verify verified_io || logout >/dev/null 2>&1
finish
