# mkfs, mount, write, checksum, unmount, logout, login again, verify, fsck.
# RIG_FS: the file systems; RIG_FS_MB: how much is written, in MiB.
MB=${RIG_FS_MB:-24}
MOUNT=/tmp/m
SUMS=/tmp/sums

make_fs() {
  case $1 in
    ext4) mkfs.ext4 -q -F "$DISK" ;;
    xfs) mkfs.xfs -q -f --unsupported "$DISK" ;;
  esac
}

check_fs() {
  case $1 in
    ext4) e2fsck -fn "$DISK" ;;
    xfs) xfs_repair -n "$DISK" ;;
  esac
}

write_files() {
  local i
  for i in 1 2 3 4; do
    dd if=/dev/urandom of=$MOUNT/f$i bs=64k count=$((MB * 4)) status=none || return 1
  done
  cp -a /etc $MOUNT/etc &&
    ( cd $MOUNT && find . -type f -print0 | sort -z | xargs -0 sha256sum ) >$SUMS
}

verify_files() {
  ( cd $MOUNT && sha256sum --quiet -c $SUMS ) &&
    DETAIL="$(wc -l <$SUMS) files, $(du -sm $MOUNT | cut -f1) MiB"
}

survives_relogin() {
  mkdir -p $MOUNT
  connect && make_fs "$1" && mount -t "$1" "$DISK" $MOUNT || return 1
  write_files && umount $MOUNT && logout || return 1
  sleep 0.3
  login && mount -t "$1" "$DISK" $MOUNT && verify_files && umount $MOUNT || return 1
  check_fs "$1" || return 1
  logout
}

for fs in ${RIG_FS:-ext4 xfs}; do
  check "fs-$fs" survives_relogin "$fs" || {
    umount $MOUNT 2>/dev/null
    logout >/dev/null 2>&1
  }
done
finish
