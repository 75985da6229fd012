#!/usr/bin/env bash
# clone.sh KILN: `kiln caches restore` on filesystems that can clone files. It makes XFS and Btrfs in image files and
# mounts them, for which it must be root. KILN is the command.
# The test fails when files with equal bytes do not share their blocks after a restore, when files share one that
# should not, or when a write to one file changes another.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "clone.sh mounts filesystems, for which it must be root" >&2; exit 2; }
for system in xfs btrfs; do
  modprobe -q "$system" 2>/dev/null || true
  grep -qw "$system" /proc/filesystems || { echo "this kernel has no $system" >&2; exit 2; }
done
[ -n "${CLONE_MOUNTS:-}" ] || CLONE_MOUNTS=own exec unshare --mount "$0" "$@" # its mounts end with it, even when it is killed
kiln=$(realpath "$1")
work=$(mktemp -d)
mount=$work/mount
trap 'umount -q "$mount" || true; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

unset KILN_CACHE_LAYERS KILN_REMOTE KILN_MODE
export HOME=$work KILN_CACHES_PROFILES=$work/profiles
mkdir "$mount" "$work/profiles"
cat >"$work/profiles/fixed.toml" <<'TOML'
summary = "files that are never written to"
[[directory]]
variable = "FIXED_DIR"
[files]
immutable = true
TOML

# blocks_of FILE: the ranges of the disk where its blocks lie, as first..last.
blocks_of() {
  filefrag -s -v "$1" | awk '$1 ~ /^[0-9]+:$/ { print $4 $5 }' | tr -d : | grep . || fail "filefrag does not tell where $1 lies"
}
# share FILE OTHER: all of their blocks are the same. apart FILE OTHER: no block of one is a block of the other.
share() {
  local one other
  one=$(blocks_of "$1") && other=$(blocks_of "$2") && [ "$one" = "$other" ]
}
apart() {
  local one other
  one=$(blocks_of "$1") && other=$(blocks_of "$2") && printf '%s\n' "$one" - "$other" | awk -F'[.][.]' '
    $0 == "-" { second = 1; next }
    !second { first[n] = $1; last[n++] = $2; next }
    { for (i = 0; i < n; i++) if ($1 <= last[i] && first[i] <= $2) exit 1 }'
}
links_of() { stat -c %h "$1"; }

# check_restore SYSTEM MKFS...: restores three files, two of which have the same bytes, in each way.
check_restore() {
  local system=$1 tree=$mount/jit
  shift
  rm -f "$work/image"
  truncate -s 400M "$work/image"
  "$@" "$work/image" >"$work/mkfs.log" 2>&1 || fail "$(cat "$work/mkfs.log")"
  mount -o loop "$work/image" "$mount"
  export KILN_CACHE_DIR=$work/cache-$system FIXED_DIR=$tree
  mkdir -p "$tree/a" "$tree/b"
  head -c 3000001 /dev/urandom >"$tree/a/kernel"
  head -c 3000001 /dev/urandom >"$tree/a/other"
  dd if="$tree/a/kernel" of="$tree/b/kernel" bs=1M status=none # cp and cat would clone
  apart "$tree/a/kernel" "$tree/b/kernel" || fail "$system: two files share blocks before the restore"
  "$kiln" caches capture "$tree" --name jit >/dev/null
  "$kiln" caches capture fixed >/dev/null

  "$kiln" caches restore jit --to "$mount/clones" >/dev/null
  diff -r "$tree" "$mount/clones" || fail "$system: the files differ"
  share "$mount/clones/a/kernel" "$mount/clones/b/kernel" || fail "$system: equal files do not share blocks"
  apart "$mount/clones/a/kernel" "$mount/clones/a/other" || fail "$system: files with other bytes share blocks"
  [ "$(links_of "$mount/clones/b/kernel")" = 1 ] || fail "$system: a clone is a hard link"
  printf changed | dd of="$mount/clones/b/kernel" conv=notrunc status=none
  cmp "$tree/a/kernel" "$mount/clones/a/kernel" || fail "$system: a write to a clone changed the other file"

  "$kiln" caches restore jit --to "$mount/copies" --copy >/dev/null
  diff -r "$tree" "$mount/copies" || fail "$system: the copies differ"
  apart "$mount/copies/a/kernel" "$mount/copies/b/kernel" || fail "$system: --copy made a clone"

  "$kiln" caches restore fixed --to "$mount/links" >/dev/null
  diff -r "$tree" "$mount/links" || fail "$system: the linked files differ"
  [ "$(links_of "$mount/links/b/kernel")" = 2 ] || fail "$system: the files of the profile are no hard links"
  umount "$mount"
  echo "$system: ok"
}

check_restore xfs mkfs.xfs -q -m reflink=1
check_restore btrfs mkfs.btrfs -q
