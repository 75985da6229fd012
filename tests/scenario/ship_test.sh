#!/usr/bin/env bash
# ship_test.sh BUILD LIBCUDA: moves a cache from one machine to
# another, and finds out why it no longer serves.
# An engine is recorded. Its kernels are prewarmed, exported and signed, then
# imported elsewhere into other directories.
# The engine runs sealed from there. Then a header is edited, and `kiln why` names it.
# BUILD is a build tree. It is copied, so that the copy's templates can be edited.
set -euo pipefail
build=$1
export KILN_LIBCUDA=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KILN_CACHE_DIR KILN_CACHE_LAYERS KILN_TEMPLATE_PATH KILN_RECORD KILN_MODE KILN_ARCH XDG_CACHE_HOME
export HOME=$work/home
fail() { echo "FAILED: $*"; exit 1; }
step() { printf '\n== %s\n' "$*"; }
field() { sed -n "s/^  \"$1\": \([0-9]*\),*$/\1/p"; } # field NAME: a number of the JSON object on stdin

install_to() { # install_to DIR: a separate installation, under another prefix
  mkdir -p "$1/share/kiln"
  cp "$build/kiln" "$build/kiln-worker" "$1/"
  cp -rL "$build/share/kiln/templates" "$1/share/kiln/"
}
install_to "$work/builder"
install_to "$work/node/opt"
builder=$work/builder/kiln node=$work/node/opt/kiln

step "an engine is recorded"
KILN_RECORD=$work/record.toml "$build/decoder_loop" 5 "$work/recorded" >"$work/engine.txt" || { cat "$work/engine.txt"; fail "the engine"; }
templates=(--template-path "$work/record.toml.templates")
grep -c '^\[\[prewarm\]\]' "$work/record.toml"

step "its record is prewarmed in a fresh cache"
"$builder" prewarm "$work/record.toml" "${templates[@]}" --cache-dir "$work/built" --json >"$work/prewarm.json"
made=$(field compiled <"$work/prewarm.json")
[ "$made" -gt 0 ] || fail "nothing was compiled"
echo "compiled $made"

step "exported by that record, and signed"
"$builder" bundle keygen "$work/release"
"$builder" bundle export "$work/kernels.kiln" "$work/record.toml" "${templates[@]}" --cache-dir "$work/built" --sign "$work/release.key"
if command -v minisign >/dev/null; then
  minisign -V -p "$work/release.pub" -m "$work/kernels.kiln" || fail "minisign refuses the signature"
else
  echo "no minisign here: the signature was not checked by it"
fi

step "imported on another machine, into another directory"
unset KILN_LIBCUDA # an import needs no GPU
"$node" bundle import "$work/kernels.kiln" --require-signature "$work/release.pub" --cache-dir "$work/node/cache"
"$node" bundle import "$work/kernels.kiln" --require-signature "$work/release.pub" --layer "$work/node/layer"
"$node" bundle import "$work/kernels.kiln" --cache-dir "$work/node/cache" --json | grep -q '"stored": 0' || fail "the second import stored something"
printf x | dd of="$work/kernels.kiln" bs=1 seek=400 conv=notrunc status=none
"$node" bundle import "$work/kernels.kiln" --require-signature "$work/release.pub" --cache-dir "$work/node/never" && fail "a changed bundle was imported"
[ ! -e "$work/node/never/v1/data.mdb" ] || fail "something of a changed bundle was imported"

step "nothing is left to compile there"
"$node" prewarm "$work/record.toml" "${templates[@]}" --cache-dir "$work/node/cache" --check
KILN_CACHE_LAYERS=$work/node/layer "$node" prewarm "$work/record.toml" "${templates[@]}" --cache-dir "$work/node/empty" --check
"$node" prewarm "$work/record.toml" "${templates[@]}" --cache-dir "$work/node/cache" --json >"$work/again.json"
[ "$(field compiled <"$work/again.json")" = 0 ] || fail "something was compiled"
[ "$(field from_disk <"$work/again.json")" = "$made" ] || fail "not everything came from disk"

step "the engine runs sealed from it"
export KILN_LIBCUDA=$2
KILN_MODE=sealed "$build/decoder_loop" 50 "$work/node/cache" --seal
KILN_MODE=sealed KILN_CACHE_LAYERS=$work/node/layer "$build/decoder_loop" 50 "$work/node/other" --seal | tail -1
unset KILN_LIBCUDA

step "a header is edited, and why names it"
# The record's first row of rms_norm, as arguments. `tuned` names the parameters that the engine left open.
mapfile -t asked < <(awk -F' = ' '/^template/ { on = ($2 == "\"rms_norm\"") && !done } /^#/ && on { done = 1; on = 0 }
  on && NF == 2 && $1 != "tuned" { gsub(/"/, "", $2); if ($1 == "template") print $2; else if ($1 == "arch") print "--arch=" $2; else print $1 "=" $2 }' "$work/record.toml")
"$node" why "${asked[@]}" --cache-dir "$work/node/cache"
echo "// edited" >>"$work/node/opt/share/kiln/templates/kiln/dtype.cuh"
status=0
"$node" why "${asked[@]}" --cache-dir "$work/node/cache" >"$work/why.txt" || status=$?
cat "$work/why.txt"
[ $status = 3 ] || fail "why after the edit ended with $status"
head -1 "$work/why.txt" | grep -q 'dtype.cuh' || fail "why does not name the header"
"$node" prewarm "$work/record.toml" "${templates[@]}" --cache-dir "$work/node/cache" --check >"$work/check.txt" && fail "the check should not be covered"
grep -q '^missing  rms_norm' "$work/check.txt" || fail "the check does not name rms_norm"
step "done"
