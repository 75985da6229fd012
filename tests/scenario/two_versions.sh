#!/usr/bin/env bash
# two_versions.sh OLD NEW [ROUNDS]: two versions of kiln use one cache directory and one Redis server at once.
# OLD and NEW are the commands. Each round both compile, collect and verify at the same time.
# The test fails when a command fails, when a record is damaged, or when a version does not find its own records.
set -euo pipefail
old=$1 new=$2 rounds=${3:-5}
work=$(mktemp -d) templates=$(realpath "$(dirname "$0")/../fixtures/upgrade/templates")
redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no --dir "$work" >"$work/redis.log" &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

unset KILN_CACHE_LAYERS KILN_RECORD KILN_MODE KILN_ARCH
export HOME=$work KILN_CACHE_DIR=$work/cache KILN_TEMPLATE_PATH=$templates KILN_JOBS=1
export KILN_REMOTE=redis+unix://$work/redis.sock KILN_REMOTE_MODE=fleet
"$new" bundle keygen "$work/fleet" >/dev/null
export KILN_REMOTE_KEY=$work/fleet.pub KILN_REMOTE_SIGN=$work/fleet.key

# work_of KILN NAME FROM: compiles, reads and collects, as an engine and an operator do.
work_of() {
  local kiln=$1 name=$2 from=$3 n
  for n in $(seq "$from" "$((from + 9))"); do
    "$kiln" compile scale N="$n" --arch sm_90a --json >"$work/$name.json" 2>>"$work/$name.err" || return 1
  done
  "$kiln" ls --json >/dev/null 2>>"$work/$name.err" || return 1
  "$kiln" stats --json >/dev/null 2>>"$work/$name.err" || return 1
  "$kiln" gc --max-size 64M >/dev/null 2>>"$work/$name.err" || return 1
  "$kiln" verify --all >"$work/$name.verify" 2>&1 || return 1
}

for round in $(seq 1 "$rounds"); do
  work_of "$old" old "$((round * 10))" &
  first=$!
  work_of "$new" new "$((round * 10))" || fail "the new version in round $round: $(cat "$work/new.err" "$work/new.verify")"
  wait "$first" || fail "the old version in round $round: $(cat "$work/old.err" "$work/old.verify")"
done

# Each version finds its own records: on disk, and in the tier with an empty cache.
for kiln in "$old" "$new"; do
  "$kiln" compile scale N=10 --arch sm_90a --json | grep -q '"outcome": "disk"' || fail "$kiln does not find its record on disk"
  KILN_CACHE_DIR=$(mktemp -d -p "$work") "$kiln" compile scale N=10 --arch sm_90a --json | grep -q '"outcome": "remote"' ||
    fail "$kiln does not find its record in the tier"
  "$kiln" verify --all >/dev/null || fail "$kiln finds damage"
done
echo "two versions, $rounds rounds: no command failed, no record was damaged, each version found its own records"
