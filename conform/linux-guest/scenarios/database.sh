# PostgreSQL on ext4 on the unit. Hooks of the host put load on it and kill the target meanwhile ("load"), judge what the
# database holds ("verify"), and at last cut the guest's power under load ("cut", which does not come back).
# RIG_DB_NEW=1: make file system and database first, else repair what a power cut has left.
# RIG_DB_SCALE: pgbench's scale; RIG_DB_CYCLES: how often "load" is asked for; needs `run --database`.
. "$JOB/guest/database.sh"

make_database() {
  database_new "shared_buffers = 32MB" "max_wal_size = 64MB" "min_wal_size = 32MB" "checkpoint_timeout = 30s" &&
    database_start && pg pgbench -h /tmp -i -q -s "${RIG_DB_SCALE:-1}" postgres &&
    DETAIL="scale ${RIG_DB_SCALE:-1}, $(du -sm $DATA | cut -f1) MiB"
}

# What a power cut leaves: a journal to replay, and nothing that needs more than that.
repair_database() {
  e2fsck -fp "$DISK"
  [ $? -le 1 ] && e2fsck -fn "$DISK" && database_mount && database_start &&
    DETAIL=$(grep -o 'redo done at.*' "$OUT/postgres.log" | tail -1)
}

database_up() {
  connect && want_default && database_programs || return 1
  if [ "$RIG_DB_NEW" = 1 ]; then make_database; else repair_database; fi
}

recoveries() { grep -c 'operational after recovery' "$OUT/iscsid.log"; }

# The target is killed and started again under load; the session comes back, no command fails.
load_and_kill() {
  local before
  before=$(recoveries)
  hook load 600 || return 1
  # If the kill met the last transactions, pgbench ended before the session was back.
  for _ in $(seq 120); do
    [ "$(recoveries)" -gt "$before" ] && [ "$(state "$SID")" = "LOGGED_IN " ] && break
    sleep 0.5
  done
  DETAIL="$(($(recoveries) - before)) recoveries of the session, state $(state "$SID")"
  grep -E 'recovery|detected' "$OUT/iscsid.log" | tail -4
  [ "$(recoveries)" -gt "$before" ] && [ "$(state "$SID")" = "LOGGED_IN " ] || return 1
  ! dmesg | grep -E 'recovery timed out|I/O error|EXT4-fs error'
}

# Even cycles crash the server too, so that it reads its log; pg_checksums wants an orderly end.
checksums() {
  if [ "$1" != 0 ] && [ $(($1 % 2)) = 0 ]; then
    database_stop immediate && database_start && hook verify 300 || return 1
  fi
  database_stop && pg pg_checksums --check -D $DATA | tee /tmp/checksums || return 1
  DETAIL=$(sed -n 's/Blocks scanned: */blocks: /p' /tmp/checksums)
  grep -q 'Bad checksums: *0$' /tmp/checksums
}

database_down() { umount $MOUNT && e2fsck -fn "$DISK" && logout; }

cycles() {
  local cycle
  check database-up database_up || return 1
  for cycle in $(seq "${RIG_DB_CYCLES:-0}"); do
    check database-load-"$cycle" load_and_kill || return 1
    check database-verify-"$cycle" hook verify 300 || return 1
    check database-checksums-"$cycle" checksums "$cycle" || return 1
    database_start >/dev/null || return 1
  done
  if [ "$RIG_DB_NEW" != 1 ]; then
    check database-verify hook verify 300 || return 1
    check database-checksums checksums 0 || return 1
    database_start >/dev/null || return 1
  fi
  has_hook cut && hook cut 600
  database_stop >/dev/null && check database-down database_down
}

cycles || {
  FAILED=1
  tail -20 "$OUT/postgres.log" | sed 's/^/    | /'
}
finish
