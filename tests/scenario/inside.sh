# shellcheck shell=bash
# Sourced by the tests that run wheels in a Debian of their own.

# inside SYSTEM COMMAND...: runs the command as root of the system, with nothing of this environment. A user namespace
# of its own holds the rule that starts programs for aarch64 under QEMU, so the machine gets no such rule.
inside() {
  # shellcheck disable=SC2016  # the inner shell expands these
  unshare --user --map-root-user --mount sh -c '
    set -e
    if [ -x "$0/usr/bin/qemu-aarch64-static" ]; then
      mkdir -p "$0/tmp/rules" && mount -t binfmt_misc rules "$0/tmp/rules"
      printf %s ":aarch64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:/usr/bin/qemu-aarch64-static:F" >"$0/tmp/rules/register"
    fi
    mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev"
    exec chroot "$0" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"' "$@"
}
