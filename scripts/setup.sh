#!/bin/bash
# setup.sh build: makes the machine ready to build Intact: a C compiler, which Rust links with.
# setup.sh test:  also ready for `cargo xtask check`: the foreign programs that the tests meet (Debian packages),
#                 the Linux guest's image, and the fuzzer.
# setup.sh rtl:   the tools of rtl/ (simulator, synthesis, placement) from PyPI, by hash, into target/rtl-tools; g++ and
#                 python3-venv, liblz4-dev and zlib1g-dev by apt-get where they are missing; nothing else.
# It installs by apt-get, as root or by passwordless sudo. Where it may not, or cannot, it says what to install and what
# is left out. On CI (CI=true) nothing may be left out: then it fails.
set -uo pipefail
cd "$(dirname "$0")/.."

# program, package, what is tested with it
FOREIGN="
iscsi-test-cu  libiscsi-bin      libiscsi's test suite against our target
qemu-img       qemu-utils        images onto our volumes and back by QEMU
qemu-io        qemu-utils        images onto our volumes and back by QEMU
nbdinfo        libnbd-bin        our units by NBD, with libnbd's programs
nbdcopy        libnbd-bin        our units by NBD, with libnbd's programs
openssl        openssl           certificates for our units by NBD
tgtd           tgt               our initiator against tgt
istgt          istgt             our initiator with several connections against istgt
sg_inq         sg3-utils         SCSI commands by sg3-utils
tshark         tshark            decoding of our sessions by an independent dissector
strace         strace            a server in which a system call fails, by injection
promtool       prometheus        what Prometheus reads of our metrics, by its own checker
linux.uml      user-mode-linux   the Linux kernel's initiator and target
slirp4netns    slirp4netns       the Linux kernel's initiator and target
python3        python3           the Linux kernel's initiator and target
curl           curl              CRC32C in TCP for programs that know nothing of it
nft            nftables          a translator of addresses
ip             iproute2          network namespaces and TUN devices
ethtool        ethtool           what a host asks of its network devices
iperf3         iperf3            TCP over the emulated wireless link, and with a CRC
psql           postgresql        CRC32C in TCP for programs that know nothing of it
c++            g++               fuzzing
qemu-aarch64   qemu-user         the kernels for aarch64, under emulation
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu the kernels for aarch64, under emulation
"
# file, package that comes with no program, what is tested with it
FILES="
/usr/lib/*/qemu/block-iscsi.so          qemu-block-extra        images onto our volumes and back by QEMU
/usr/lib/postgresql/*/bin/postgres      postgresql              CRC32C in TCP for programs that know nothing of it
/usr/lib/postgresql/*/bin/pgbench       postgresql              a database on our target
/usr/include/iscsi/iscsi.h              libiscsi-dev            SCSI commands by sg3-utils
/usr/aarch64-linux-gnu/lib/libc.so.6    libc6-dev-arm64-cross   the kernels for aarch64, under emulation
"
AARCH64_TARGET=aarch64-unknown-linux-gnu

say() { echo "setup: $*"; }
# tgtd and others live where a plain user's PATH does not look.
have() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
on_ci() { case ${CI:-} in '' | 0 | false) return 1 ;; esac; }

# What is left out, a line each, and what would bring it in.
left_out=
packages_wanted=
commands_wanted=
leave_out() {
  case $left_out in *"$1"$'\n'*) ;; *) left_out+="$1"$'\n' ;; esac
}
leave_out_for_want_of() {
  leave_out "$1"
  commands_wanted+="$2"$'\n'
}

# As root, or by sudo that asks nothing; ROOT is the prefix then.
ROOT=
may_install() {
  have apt-get || return 1
  [ "$(id -u)" = 0 ] && return 0
  sudo -n true 2>/dev/null && ROOT="sudo -n" && return 0
  return 1
}

# Installs packages without questions and without starting their services: tgt's would take port 3260.
cannot_install=
install() {
  local policy=/usr/sbin/policy-rc.d ours= log status
  [ -z "$cannot_install" ] || return 1
  say "installing $*"
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
  if [ $status != 0 ]; then
    cannot_install=yes
    say "apt-get could not install them; its first words (is there a network, and does the mirror answer?):"
    { grep -m 3 '^[EW]:' "$log" || tail -n 3 "$log"; } | sed 's/^/    /'
  fi
  rm -f "$log"
  return $status
}

links() {
  local program status
  program=$(mktemp)
  echo 'int main(void) { return 0; }' | cc -x c -o "$program" - 2>/dev/null
  status=$?
  rm -f "$program"
  return $status
}

build_tools() {
  if ! have cargo; then
    say "there is no cargo in PATH; install Rust (1.89 or newer): https://rustup.rs"
    exit 1
  fi
  links && return
  may_install && install gcc libc6-dev && links && return
  say "Rust has nothing to link with: there is no C compiler, or not its C library"
  say "as root: apt-get update && apt-get install gcc libc6-dev"
  exit 1
}

# Calls $1 with the package and the purpose of whatever is not there.
each_missing() {
  local thing package what
  while read -r thing package what; do
    [ -z "$thing" ] || have "$thing" || "$1" "$package" "$what"
  done <<<"$FOREIGN"
  while read -r thing package what; do
    [ -z "$thing" ] || compgen -G "$thing" >/dev/null || "$1" "$package" "$what"
  done <<<"$FILES"
}
print_package() { echo "$1"; }
leave_out_for_want_of_package() {
  case " $packages_wanted " in *" $1 "*) ;; *) packages_wanted+=" $1" ;; esac
  leave_out "$2"
}

foreign_programs() {
  local packages
  packages=$(each_missing print_package | sort -u)
  # shellcheck disable=SC2086
  [ -z "$packages" ] || ! may_install || install $packages
  each_missing leave_out_for_want_of_package
}

linux_guest() {
  local cache=${LINUX_GUEST_CACHE:-${TMPDIR:-/tmp}/linux-guest-cache}
  if may_install && [ -z "$cannot_install" ]; then
    $ROOT env LINUX_GUEST_CACHE="$cache" conform/linux-guest/build-image >/dev/null ||
      say "the Linux guest's image could not be built"
    $ROOT env LINUX_GUEST_CACHE="$cache" conform/linux-guest/build-database >/dev/null ||
      say "the Linux guest's disk with PostgreSQL could not be built"
  fi
  [ -e "$cache/stamp" ] ||
    leave_out_for_want_of "the Linux kernel's initiator and target" "as root: conform/linux-guest/build-image"
  [ -e "$cache/database.stamp" ] ||
    leave_out_for_want_of "a database on our target" "as root: conform/linux-guest/build-database"
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
  may_install && [ -z "$cannot_install" ] || return 1
  $ROOT dpkg --add-architecture arm64 && install rustc-web libstd-rust-web-dev:arm64 && have_aarch64_target
}

# rustup, where Rust came by it.
rustup_can() { have rustup && rustup "$@"; }

rust_tools() {
  cargo clippy --version >/dev/null 2>&1 || rustup_can component add clippy ||
    leave_out_for_want_of clippy "rustup component add clippy"
  cargo fmt --version >/dev/null 2>&1 || rustup_can component add rustfmt ||
    leave_out_for_want_of "the format check" "rustup component add rustfmt"
  have_aarch64_target || { rustup_can target add $AARCH64_TARGET && have_aarch64_target; } ||
    have_debian_rust_for_arm64 ||
    leave_out_for_want_of "the kernels for aarch64, under emulation" "rustup target add $AARCH64_TARGET"
  [ -e fuzz/Cargo.toml ] || return 0
  cargo +nightly --version >/dev/null 2>&1 || rustup_can toolchain install nightly --profile minimal ||
    leave_out_for_want_of fuzzing "rustup toolchain install nightly --profile minimal"
  cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --quiet ||
    leave_out_for_want_of fuzzing "cargo install cargo-fuzz --locked"
}

# Debian's Python has venv without ensurepip, which is in python3-venv.
have_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

# Does the C++ compiler find what Verilator packs waveforms with?
packs_waveforms() { printf '#include <lz4.h>\n#include <zlib.h>\n' | c++ -fsyntax-only -x c++ - 2>/dev/null; }

# The tools of rtl/, in an environment of their own; again only when the list of tools has changed.
rtl_tools() {
  local folder=target/rtl-tools list=rtl/requirements.txt
  have c++ || { may_install && install g++ && have c++; } ||
    { say "the models of rtl/ need a C++ compiler; as root: apt-get install g++"; return 1; }
  packs_waveforms || { may_install && install liblz4-dev zlib1g-dev && packs_waveforms; } ||
    { say "the waveforms of the models need LZ4 and zlib; as root: apt-get install liblz4-dev zlib1g-dev"; return 1; }
  cmp -s $list $folder/installed.txt && return
  have_venv || { may_install && install python3 python3-venv && have_venv; } ||
    { say "the tools of rtl/ need Python 3 with venv; as root: apt-get install python3 python3-venv"; return 1; }
  say "installing the tools of rtl/ into $folder"
  rm -rf $folder
  python3 -m venv $folder &&
    $folder/bin/pip install --quiet --require-hashes --only-binary :all: -r $list &&
    cp $list $folder/installed.txt && return
  say "the tools of rtl/ are not there (is there a network? the wheels are for Linux on x86-64)"
  return 1
}

case ${1:-} in
  rtl) rtl_tools; exit ;;
  build) build_tools && exit 0 ;;
  test) build_tools ;;
  *) say "say what for: $0 build, $0 test or $0 rtl" >&2; exit 2 ;;
esac
foreign_programs
linux_guest
rust_tools
if [ -z "$left_out" ]; then
  say "ready, nothing is left out"
  exit 0
fi
say "these tests are left out:"
printf %s "$left_out" | sed 's/^/    /'
say "they need, in this order:"
{
  [ -z "$packages_wanted" ] || echo "as root: apt-get update && apt-get install$packages_wanted"
  printf %s "$commands_wanted"
} | sed 's/^/    /'
if on_ci; then
  say "on CI nothing may be left out"
  exit 1
fi
