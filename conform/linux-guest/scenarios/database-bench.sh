# pgbench in the guest, on several targets in turn; `cargo xtask bench database` reads the INFO lines.
# RIG_DB_TARGETS: "PORT,IQN,LUN ..."; RIG_DB_RUNS: "NUMBER:TARGET:DIGEST:FSYNC ...", in their order, TARGET counted from 0;
# RIG_DB_S: seconds of a run; RIG_DB_SCALE; RIG_DB_READY=1: the databases are there already. Needs `run --database`.
. "$JOB/guest/database.sh"
read -r -a TARGETS <<<"$RIG_DB_TARGETS"

# use TARGET DIGEST: logs in
use() {
  IFS=, read -r PORT IQN RIG_LUN <<<"${TARGETS[$1]}"
  PORTAL=$RIG_HOST:$PORT
  iscsi_up && digests "$2" && node_new && login
}

leave() { database_stop && umount $MOUNT && logout; }

make_databases() {
  local target
  [ "$RIG_DB_READY" = 1 ] && return 0
  for target in "${!TARGETS[@]}"; do
    # Without checkpoints and cleaning in the background: one checkpoint before each run.
    use "$target" CRC32C && database_new "shared_buffers = 128MB" "max_wal_size = 512MB" "checkpoint_timeout = 1h" "autovacuum = off" &&
      database_start && pg pgbench -h /tmp -i -q -s "$RIG_DB_SCALE" postgres && leave || return 1
  done
}

# The figures of the disk: reads, writes, sectors and milliseconds of writes, milliseconds in use, flushes and their milliseconds.
disk_figures() { awk '{ print $1, $5, $7, $8, $10, $16, $17 }' "/sys/block/${DISK##*/}/stat"; }

measure() {
  local number target digest fsync before after begun
  IFS=: read -r number target digest fsync <<<"$1"
  use "$target" "$digest" && RIG_DIGEST=$digest want_default && database_mount && database_start "-c fsync=$fsync" || return 1
  # Into the cache: what is measured is what a commit waits for.
  cat $DATA/base/*/* >/dev/null
  pg psql -h /tmp -q -c 'VACUUM pgbench_branches' -c 'VACUUM pgbench_tellers' -c 'TRUNCATE pgbench_history' -c CHECKPOINT postgres ||
    return 1
  before=$(disk_figures)
  begun=$EPOCHREALTIME
  echo "RIG|INFO|begin||" >&3
  pg pgbench -h /tmp -n -c 4 -T "$RIG_DB_S" postgres >/tmp/pgbench.txt || return 1
  after=$(disk_figures)
  cat /tmp/pgbench.txt
  awk -v number="$number" -v before="$before" -v after="$after" -v begun="$begun" -v ended="$EPOCHREALTIME" '
    /actually processed/ { transactions = $NF }
    /^latency average/ { latency = $(NF - 1) }
    /^tps/ { tps = $3 }
    END {
      split(before, b, " "); split(after, a, " ")
      printf "RIG|INFO|end||{\"contender\":%d,\"transactions\":%d,\"tps\":%s,\"latency_ms\":%s,", number, transactions, tps, latency
      printf "\"reads\":%d,\"writes\":%d,\"written_bytes\":%d,\"write_ms\":%d,", a[1] - b[1], a[2] - b[2], 512 * (a[3] - b[3]), a[4] - b[4]
      printf "\"flushes\":%d,\"flush_ms\":%d,\"busy_ms\":%d,", a[6] - b[6], a[7] - b[7], a[5] - b[5]
      printf "\"wall_ms\":%d}\n", 1000 * (ended - begun)
    }' /tmp/pgbench.txt >&3
  leave
}

runs() {
  local run
  for run in $RIG_DB_RUNS; do measure "$run" || return 1; done
}

clean() {
  local target
  for target in "${!TARGETS[@]}"; do
    use "$target" CRC32C && database_mount && pg pg_checksums --check -D $DATA && umount $MOUNT && e2fsck -fn "$DISK" && logout || return 1
  done
}

check database-make database_programs && check database-ready make_databases && echo "RIG|INFO|ready||" &&
  check database-runs runs && check database-clean clean || tail -20 "$OUT/postgres.log" | sed 's/^/    | /'
finish
