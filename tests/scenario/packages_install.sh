#!/usr/bin/env bash
# packages_install.sh DIRECTORY TOOLKIT: installs the files that tools/packages.sh made into a clean Debian 12 and a clean
# Debian 13. TOOLKIT is the CUDA toolkit that the systems get below /usr/local/cuda.
#
#   1. The tar.gz is unpacked, used, and moved.
#   2. The package kiln alone diagnoses the machine and compiles a kernel.
#   3. With libkiln-dev, programs are built by CMake and by pkg-config, and run.
#   4. The packages are removed, and leave no file.
#
# Needs root, debootstrap and the network, from which the systems fetch what the packages depend on.
set -euo pipefail
# shellcheck source=systems.sh
source "$(dirname "${BASH_SOURCE[0]}")/systems.sh"
dist=$(realpath "$1") toolkit=$(realpath "$2")
version=$(sed -n 's/^#define KILN_VERSION_[A-Z]* *//p' "$root/include/kiln/kiln.h" | paste -sd.)
work=$systems/work

# inside COMMAND...: runs the command as root of the system, with nothing of this environment.
inside() {
  # shellcheck disable=SC2016  # the inner shell expands these
  unshare --mount sh -c '
    set -e
    mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev"
    mkdir -p "$0/usr/local/cuda" && mount --bind -o ro "$1" "$0/usr/local/cuda"
    shift
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      KILN_LIBCUDA=/nonexistent "$@"' "$work" "$toolkit" "$@"
}
# install PACKAGE...: the system's shell expands the patterns.
install() { inside sh -c "apt-get install -y -qq --no-install-recommends $*" >"$systems/apt.log" 2>&1 || { tail -20 "$systems/apt.log" >&2; fail "apt-get install $*"; }; }
# prints PATTERN COMMAND...: expects that the command succeeds, prints the pattern, and nothing on standard error.
prints() {
  local pattern=$1
  shift
  inside "$@" >"$systems/out" 2>"$systems/err" || { cat "$systems/out" "$systems/err" >&2; fail "$*"; }
  grep -q -- "$pattern" "$systems/out" || { cat "$systems/out" >&2; fail "$* does not print '$pattern'"; }
  [ ! -s "$systems/err" ] || { cat "$systems/err" >&2; fail "$* warns"; }
}

# works KILN: the command at this path finds its compile worker, its templates and the toolkit, and prewarms a plan.
works() {
  prints "\"version\": \"$version\"" "$1" --version --json
  prints '^rms_norm ' "$1" templates
  prints "worker .*${1%/bin/kiln}/libexec/kiln/kiln-worker answers" "$1" doctor
  prints 'for sm_90a: ' "$1" compile rms_norm T=bf16 H=4096
  cp "$root/examples/container/plan.toml" "$work/root/"
  prints '^3 of 3 specialisations' "$1" prewarm /root/plan.toml --arch sm_90a
}

check_archive() {
  mkdir -p "$work/opt/first"
  tar -xzf "$dist"/kiln-*.tar.gz -C "$work/opt/first" --no-same-owner
  local kiln
  kiln=/$(cd "$work" && echo opt/first/kiln-*/bin/kiln)
  works "$kiln"
  ! inside ldd "$kiln" | grep -v -e vdso -e ld-linux -e libc.so -e libm.so || fail "the static command needs a library"
  mkdir "$work/opt/second" && mv "$work"/opt/first/kiln-* "$work/opt/second/kiln" && rm -r "$work/opt/first"
  works /opt/second/kiln/bin/kiln
  echo "  tar.gz: used and moved"
}

check_command() {
  install /root/dist/kiln_*.deb
  ! inside dpkg --list libkiln0 >/dev/null 2>&1 || fail "the command alone brings the library"
  works /usr/bin/kiln
  inside gzip -t /usr/share/man/man1/kiln.1.gz /usr/share/man/man1/kiln-prewarm.1.gz
  inside test -s /usr/share/bash-completion/completions/kiln -a -s /usr/share/zsh/vendor-completions/_kiln
  inside /usr/bin/kiln doctor
  echo "  kiln: diagnoses and compiles"
}

check_development() {
  install /root/dist/libkiln0_*.deb /root/dist/libkiln-dev_*.deb g++ cmake make pkg-config
  cp -r "$root/examples/engine" "$root/tests/runtime/install/consumer" "$work/root"
  inside cmake -S /root/engine -B /root/engine/build >/dev/null
  inside cmake --build /root/engine/build >/dev/null
  prints 'for sm_90a: .*key' /root/engine/build/engine
  inside cmake -S /root/consumer -B /root/consumer/build -DVERSION="${version%.*}" >/dev/null
  inside cmake --build /root/consumer/build >/dev/null
  for program in shared static headers; do prints "^$version$" "/root/consumer/build/$program"; done
  # shellcheck disable=SC2016  # the system's shell expands this
  inside sh -c 'c++ -std=c++17 /root/consumer/version.cpp -o /root/program $(pkg-config --cflags --libs kiln)'
  prints "^$version$" /root/program
  # The archive's static library serves CMake and pkg-config, too.
  inside cmake -S /root/consumer -B /root/consumer/moved -DVERSION="${version%.*}" -DPARTS=static -Dkiln_DIR=/opt/second/kiln/lib/cmake/kiln >/dev/null
  inside cmake --build /root/consumer/moved >/dev/null
  # shellcheck disable=SC2016
  inside sh -c 'c++ -std=c++17 /root/consumer/version.cpp -o /root/static $(PKG_CONFIG_PATH=/opt/second/kiln/lib/pkgconfig pkg-config --cflags --libs kiln)'
  for program in /root/consumer/moved/static /root/static; do prints "^$version$" "$program"; done
  echo "  libkiln-dev: programs built by CMake and by pkg-config run"
}

check_removal() {
  rm -rf "$work"/opt/second "$work"/root/* "$work"/root/.cache
  inside apt-get purge -y -qq kiln libkiln0 libkiln-dev >"$systems/apt.log" 2>&1 || { cat "$systems/apt.log" >&2; fail "apt-get purge"; }
  ! inside find / -xdev -path /proc -prune -o -iname '*kiln*' -print | grep . || fail "files are left"
  ! inside ldconfig -p | grep kiln || fail "the linker's cache still names libkiln"
  echo "  removed: no file is left"
}

for release in bookworm trixie; do
  arch=$(dpkg --print-architecture)
  make_system "$release-$arch" "$release" "$arch"
  echo "Debian $release"
  rm -rf --one-file-system "$work"
  cp -a "$systems/$release-$arch" "$work"
  echo force-unsafe-io >"$work/etc/dpkg/dpkg.cfg.d/fast" # the system is thrown away
  mkdir "$work/root/dist" && cp "$dist"/*.deb "$work/root/dist"
  inside apt-get update -qq
  check_archive
  check_command
  check_development
  check_removal
done
rm -rf --one-file-system "$work"
