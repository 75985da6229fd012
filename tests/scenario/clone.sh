#!/usr/bin/env bash
# clone.sh KILN: `kiln caches restore` on filesystems that can clone files. It makes XFS and Btrfs in image files and
# mounts them, for which it must be root. KILN is the command.
# The test fails when files with equal bytes do not share their blocks after a restore, when files share them that
# should not, or when a write to one file changes another.
set -euo pipefail
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

# blocks_of FILE: where its blocks lie on the disk.
blocks_of() { filefrag -s -v "$1" | awk '$1 ~ /^[0-9]+:$/ { print $4, $5 }'; }
share() {
  local one other
  one=$(blocks_of "$1") other=$(blocks_of "$2")
  [ -n "$one" ] || fail "filefrag does not tell where $1 lies"
  [ "$one" = "$other" ]
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
  share "$tree/a/kernel" "$tree/b/kernel" && fail "$system: two files share blocks before the restore"
  "$kiln" caches capture "$tree" --name jit >/dev/null
  "$kiln" caches capture fixed >/dev/null

  "$kiln" caches restore jit --to "$mount/clones" >/dev/null
  diff -r "$tree" "$mount/clones" || fail "$system: the files differ"
  share "$mount/clones/a/kernel" "$mount/clones/b/kernel" || fail "$system: equal files do not share blocks"
  share "$mount/clones/a/kernel" "$mount/clones/a/other" && fail "$system: files with other bytes share blocks"
  [ "$(links_of "$mount/clones/b/kernel")" = 1 ] || fail "$system: a clone is a hard link"
  printf changed | dd of="$mount/clones/b/kernel" conv=notrunc status=none
  cmp "$tree/a/kernel" "$mount/clones/a/kernel" || fail "$system: a write to a clone changed the other file"

  "$kiln" caches restore jit --to "$mount/copies" --copy >/dev/null
  diff -r "$tree" "$mount/copies" || fail "$system: the copies differ"
  share "$mount/copies/a/kernel" "$mount/copies/b/kernel" && fail "$system: --copy made a clone"

  "$kiln" caches restore fixed --to "$mount/links" >/dev/null
  diff -r "$tree" "$mount/links" || fail "$system: the linked files differ"
  [ "$(links_of "$mount/links/b/kernel")" = 2 ] || fail "$system: the files of the profile are no hard links"
  umount "$mount"
  echo "$system: ok"
}

check_restore xfs mkfs.xfs -q -m reflink=1
check_restore btrfs mkfs.btrfs -q
