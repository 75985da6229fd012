#!/usr/bin/env bash
# decoder_test.sh DECODER_LOOP KILN: records a run, prewarms another cache from the record, and runs sealed
# from that cache.
# The sealed run compiles nothing. Its loop loads nothing and opens no file.
set -euo pipefail
loop=$1 kiln=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
field() { sed -n "s/^$2.* $3 \([0-9]*\).*/\1/p" <<<"$1"; } # field OUTPUT LINE NAME

recorded=$(KILN_RECORD=$work/record.toml "$loop" 30 "$work/first") || { status=$?; echo "$recorded"; exit "$status"; }
echo "recorded run:"; echo "$recorded"
[ "$(field "$recorded" warm-up compiles)" -gt 0 ] || fail "the first run should have compiled"

"$kiln" prewarm "$work/record.toml" --template-path "$work/record.toml.templates" --cache-dir "$work/second" >"$work/prewarm.txt" ||
  { cat "$work/prewarm.txt"; fail "prewarm"; }
cat "$work/prewarm.txt"

sealed=$(KILN_MODE=sealed "$loop" 300 "$work/second" --seal) || fail "the sealed run: status $?"
echo "sealed run:"; echo "$sealed"
[ "$(field "$sealed" warm-up compiles)" = 0 ] || fail "the sealed run compiled"
[ "$(field "$sealed" warm-up disk)" = "$(field "$recorded" warm-up compiles)" ] || fail "not everything came from disk"
for what in compiles loads disk sealed_misses; do
  [ "$(field "$sealed" "loop steps" "$what")" = 0 ] || fail "the sealed loop: $what"
done
grep -q "^fingerprint $(sed -n 's/^fingerprint //p' <<<"$recorded")" <<<"$sealed" || fail "other kernels than the recorded run's"

# strace, where it is installed, checks this from outside: it counts files opened after the seal, up to the
# end of the loop. The loop sets its seccomp filter then.
if command -v strace >/dev/null; then
  KILN_MODE=sealed strace -f -qq -e trace=open,openat,creat,execve,prctl -o "$work/calls" "$loop" 300 "$work/second" --seal >/dev/null
  opened=$(sed '1,/PR_SET_SECCOMP/d' "$work/calls" | grep -cE 'open|creat|execve' || true)
  echo "strace: $opened files opened from the seal to the end of the loop"
  [ "$opened" = 0 ] || { sed '1,/PR_SET_SECCOMP/d' "$work/calls" | head; fail "the sealed loop opened files"; }
fi
