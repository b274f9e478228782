#!/bin/bash
# Makes the machine ready for `cargo xtask check`: installs the foreign programs that the tests meet
# (Debian packages, by apt-get, as root or by passwordless sudo), the Linux guest's image, and the
# fuzzer. Where it may not, it says what to install and which tests are left out. On CI (CI=true)
# nothing may be left out: then it fails.
set -uo pipefail
cd "$(dirname "$0")/.."

# program, package, what is tested with it
NEEDED="
iscsi-test-cu  libiscsi-bin      libiscsi's test suite against our target
qemu-img       qemu-utils        images onto our LUN and back by QEMU
qemu-io        qemu-utils        patterns written and read by QEMU
tgtd           tgt               our initiator against tgt
istgt          istgt             our initiator with several connections against istgt
sg_inq         sg3-utils         SCSI commands by sg3-utils
cc             gcc               SCSI commands by sg3-utils: what brings them to our target
tshark         tshark            decoding of our sessions by an independent dissector
linux.uml      user-mode-linux   the Linux kernel's initiator and target
slirp4netns    slirp4netns       the Linux kernel's initiator and target
python3        python3           the Linux kernel's initiator and target
ip             iproute2          packets that the kernel drops
c++            g++               fuzzing
qemu-aarch64   qemu-user         the kernels for aarch64, under emulation
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu the kernels for aarch64, under emulation
"
# The headers that what brings sg3-utils to our target is compiled with.
LIBISCSI_H=/usr/include/iscsi/iscsi.h
# The C library that the emulated tests load; its package comes with no program.
AARCH64_LIBC=/usr/aarch64-linux-gnu/lib/libc.so.6
AARCH64_TARGET=aarch64-unknown-linux-gnu
QEMU_ISCSI='/usr/lib/*/qemu/block-iscsi.so'

left_out=0
say() { echo "setup: $*"; }
leave_out() {
  left_out=$((left_out + 1))
  say "left out: $1; install: $2"
}
# tgtd and others live where a plain user's PATH does not look.
have() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
have_qemu_iscsi() { compgen -G "$QEMU_ISCSI" >/dev/null; }
on_ci() { case ${CI:-} in '' | 0 | false) return 1 ;; esac; }

# As root, or by sudo that asks nothing; ROOT is the prefix then.
ROOT=
may_install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  [ "$(id -u)" = 0 ] && return 0
  sudo -n true 2>/dev/null && ROOT="sudo -n" && return 0
  return 1
}

# Installs packages without questions and without starting their services: tgt's would take port 3260.
install() {
  local policy=/usr/sbin/policy-rc.d ours= log status
  log=$(mktemp)
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $ROOT tee $policy >/dev/null && $ROOT chmod 755 $policy && ours=yes
  fi
  {
    echo wireshark-common wireshark-common/install-setuid boolean false | $ROOT debconf-set-selections
    $ROOT apt-get update -qq
    $ROOT env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 \
      install -y -qq --no-install-recommends "$@"
  } >"$log" 2>&1 </dev/null
  status=$?
  [ -z "$ours" ] || $ROOT rm -f $policy
  [ $status = 0 ] || tail -n 15 "$log" >&2
  rm -f "$log"
  return $status
}

missing_packages() {
  while read -r program package _; do
    [ -z "$program" ] || have "$program" || echo "$package"
  done <<<"$NEEDED"
  have_qemu_iscsi || echo qemu-block-extra
  [ -e $AARCH64_LIBC ] || echo libc6-dev-arm64-cross
  [ -e $LIBISCSI_H ] || echo libiscsi-dev
}

foreign_programs() {
  local packages
  packages=$(missing_packages | sort -u | tr '\n' ' ')
  if [ -n "$packages" ] && may_install; then
    say "installing $packages"
    # shellcheck disable=SC2086
    install $packages || say "apt-get failed"
  fi
  while read -r program package what; do
    [ -z "$program" ] || have "$program" || leave_out "$what" "$package"
  done <<<"$NEEDED"
  have_qemu_iscsi || leave_out "QEMU's iSCSI driver" qemu-block-extra
  [ -e $AARCH64_LIBC ] || leave_out "the kernels for aarch64" libc6-dev-arm64-cross
  [ -e $LIBISCSI_H ] || leave_out "SCSI commands by sg3-utils" libiscsi-dev
}

linux_guest() {
  local cache=${LINUX_GUEST_CACHE:-${TMPDIR:-/tmp}/linux-guest-cache}
  if may_install; then
    $ROOT env LINUX_GUEST_CACHE="$cache" conform/linux-guest/build-image >/dev/null ||
      say "the guest's image could not be built"
  fi
  [ -e "$cache/stamp" ] ||
    leave_out "the Linux kernel's initiator and target" "as root: conform/linux-guest/build-image"
}

# Whether a compiler has the standard library of aarch64: the usual one, or Debian's.
have_aarch64_target() {
  local rustc
  for rustc in rustc /usr/bin/rustc; do
    [ -d "$($rustc --print target-libdir --target $AARCH64_TARGET 2>/dev/null)" ] && return 0
  done
  return 1
}

# Where there is no rustup: Debian's rustc-web, which takes the standard library of another architecture.
have_debian_rust_for_arm64() {
  may_install || return 1
  $ROOT dpkg --add-architecture arm64 && install rustc-web libstd-rust-web-dev:arm64 && have_aarch64_target
}

rust_tools() {
  cargo clippy --version >/dev/null 2>&1 || rustup component add clippy ||
    leave_out "clippy" "rustup component add clippy"
  cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt ||
    leave_out "the format check" "rustup component add rustfmt"
  have_aarch64_target || rustup target add $AARCH64_TARGET || have_debian_rust_for_arm64 ||
    leave_out "the kernels for aarch64" "rustup target add $AARCH64_TARGET"
  [ -e fuzz/Cargo.toml ] || return 0
  cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal ||
    leave_out "fuzzing" "rustup toolchain install nightly --profile minimal"
  cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --quiet ||
    leave_out "fuzzing" "cargo install cargo-fuzz --locked"
}

foreign_programs
linux_guest
rust_tools
if [ $left_out -gt 0 ] && on_ci; then
  say "$left_out kinds of test would be left out, and on CI none may be"
  exit 1
fi
say "ready, $left_out kinds of test left out"
