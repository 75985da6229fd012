#!/usr/bin/env bash
# emulate.sh DIRECTORY COMMAND...: runs the command where the kernel starts programs for aarch64 under QEMU. The rule that
# says so is mounted at the directory. A user namespace of its own holds the rule, so the machine gets no such rule.
set -euo pipefail
mkdir -p "$1"
# shellcheck disable=SC2016  # the inner shell expands these
exec unshare --user --map-root-user --mount sh -c '
  set -e
  mount -t binfmt_misc rules "$0"
  printf %s ":aarch64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:/usr/bin/qemu-aarch64-static:F" >"$0/register"
  exec "$@"' "$@"
