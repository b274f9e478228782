# Helpers for scenarios with a database: PostgreSQL from the disk of `run --database`, its data on ext4 on the unit.
# After database_programs: PGBIN (its programs). The data is in $DATA, the socket in /tmp, the log in $OUT/postgres.log.
MOUNT=/tmp/database
DATA=$MOUNT/data

# database_programs: shows the programs in their usual places
database_programs() {
  [ -n "$PGBIN" ] && return 0
  if [ ! -b "$RIG_DATABASE" ]; then
    echo "there is no disk with PostgreSQL: run --database"
    return 1
  fi
  mkdir -p /run/database $MOUNT /dev/shm
  modprobe overlay && mount -t ext4 -o ro "$RIG_DATABASE" /run/database &&
    mount -t overlay -o lowerdir=/run/database/usr:/usr overlay /usr &&
    mount -t tmpfs shm /dev/shm || return 1
  grep -q ^postgres: /etc/passwd || echo "postgres:x:999:999::/tmp:/bin/sh" >>/etc/passwd
  grep -q ^postgres: /etc/group || echo "postgres:x:999:" >>/etc/group
  PGBIN=$(echo /usr/lib/postgresql/*/bin)
  touch "$OUT/postgres.log" && chown postgres "$OUT/postgres.log" && chmod 755 "$OUT"
}

# pg PROGRAM ARGUMENT...: runs a program of PostgreSQL as its user
pg() {
  local program=$1
  shift
  ( cd /tmp && exec setpriv --reuid postgres --regid postgres --clear-groups "$PGBIN/$program" "$@" )
}

# database_new SETTING...: a file system on $DISK, mounted, and on it an empty database with checksums. Settings are lines of
# postgresql.conf; fsync and full_page_writes stay on, as they are by default.
database_new() {
  mkfs.ext4 -q -F "$DISK" && database_mount || return 1
  cp -a /run/database/data $DATA && chown -R postgres:postgres $DATA || return 1
  echo "host all all all trust" >>$DATA/pg_hba.conf
  printf '%s\n' "listen_addresses = '*'" "unix_socket_directories = '/tmp'" "jit = off" "$@" >>$DATA/postgresql.conf
  sync
}

database_mount() { mount -t ext4 -o noatime "$DISK" $MOUNT; }

# database_start [OPTIONS]: options of the server
database_start() { pg pg_ctl -D $DATA -w -t 240 -l "$OUT/postgres.log" ${1:+-o "$1"} start; }

# database_stop [fast|immediate]: immediate is a crash of the server. pg_ctl returns when the server has removed its file; the server itself
# leaves $DATA, which an unmount needs, a moment later.
database_stop() {
  local server
  server=$(head -n 1 $DATA/postmaster.pid) && pg pg_ctl -D $DATA -w -t 240 -m "${1:-fast}" stop || return 1
  for _ in $(seq 100); do
    [ -e "/proc/$server/cwd" ] || return 0
    sleep 0.1
  done
  echo "the server, process $server, has not ended after 10 s"
  return 1
}
