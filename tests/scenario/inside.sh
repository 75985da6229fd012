# shellcheck shell=bash
# Sourced after systems.sh by the tests that run wheels in a Debian of their own.

# inside SYSTEM COMMAND...: runs the command as root of the system, with nothing of this environment. A system that has
# QEMU runs programs for aarch64.
inside() {
  local begin=(unshare --user --map-root-user --mount)
  # shellcheck disable=SC2154  # systems.sh sets $root
  [ ! -x "$1/usr/bin/qemu-aarch64-static" ] || begin=("$root/tools/aarch64/emulate.sh" "$1/tmp/rules")
  # shellcheck disable=SC2016  # the inner shell expands these
  "${begin[@]}" sh -c '
    set -e
    mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev"
    exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"' "$@"
}
