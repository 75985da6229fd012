# shellcheck shell=bash
# Sourced by the tests that install kiln into a Debian of their own. The systems are kept in build/systems. Making one
# needs root, debootstrap and the network.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../../tools/debian.sh
source "$root/tools/debian.sh"
systems=$root/build/systems
mkdir -p "$systems"
fail() { echo "FAILED: $*" >&2; exit 1; }

# make_system NAME RELEASE ARCH: a Debian with Python and nothing else. A test installs into a copy, because other tests
# start from the same system. The packages of another architecture are only
# unpacked, because debootstrap would run their programs.
make_system() {
  local system=$systems/$1 foreign=() package
  [ ! -e "$system.ready" ] || return 0
  echo "making a Debian $2 for $3"
  rm -rf "$system"
  [ "$3" = "$(dpkg --print-architecture)" ] || foreign=(--foreign)
  debootstrap "${foreign[@]}" --variant=minbase --arch="$3" --include=python3,python3-venv "$2" "$system" "$(debian_mirror)" >"$system.log" 2>&1 ||
    { tail "$system.log" >&2; fail "debootstrap of $2 for $3"; }
  if [ ${#foreign[@]} -gt 0 ]; then
    for package in "$system"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$system"; done
    cp /usr/bin/qemu-aarch64-static "$system/usr/bin/"
  fi
  touch "$system.ready"
}
