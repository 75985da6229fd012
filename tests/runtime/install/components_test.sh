#!/usr/bin/env bash
# components_test.sh CMAKE BUILD_DIR SOURCE_DIR COMPILER
# Installs each component alone. Builds programs with find_package and pkg-config, from the build tree and from a moved
# installation. Configures a project that takes kiln by FetchContent, and builds it at night. Errors of find_package and of an install must say
# what is missing and how to get it.
set -euo pipefail
cmake=$1 build=$2 source=$3 compiler=$4
here=$source/tests/runtime/install
version=$(sed -n 's/^#define KILN_VERSION_[A-Z]* *//p' "$source/include/kiln/kiln.h" | paste -sd.)
minor=${version%.*}
next=${minor%.*}.$((${minor#*.} + 1))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
# quietly COMMAND...: shows the command's output when it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }; }
# refuses PART... -- COMMAND...: expects that the command fails, and says every part.
refuses() {
  local parts=()
  while [ "$1" != -- ]; do parts+=("$1"); shift; done
  shift
  ! "$@" >"$work/log" 2>&1 || fail "no error: $*"
  # CMake wraps its messages.
  tr -s ' \n' ' ' <"$work/log" >"$work/line"
  for part in "${parts[@]}"; do grep -qF -- "$part" "$work/line" || { cat "$work/log" >&2; fail "the message lacks '$part'"; }; done
}

# --- Components ---
for component in runtime development command; do
  quietly "$cmake" --install "$build" --prefix "$work/$component" --component "$component"
done
# files COMPONENT: its top folders, and what lies beside libkiln.
files() { (cd "$work/$1" && { find . -maxdepth 1 -mindepth 1; find . -name 'libkiln*'; } | sed 's,.*/,,' | sort | paste -sd ' '); }
[ "$(files runtime)" = "lib libkiln.so.${version%%.*} libkiln.so.$version" ] || fail "runtime has: $(files runtime)"
[ "$(files development)" = "include lib libkiln.a libkiln.so" ] || fail "development has: $(files development)"
[ "$(files command)" = "bin libexec share" ] || fail "command has: $(files command)"
for file in bin/kiln libexec/kiln/kiln-worker share/kiln/templates/norm/rms_norm.cu share/man/man1/kiln.1 share/bash-completion/completions/kiln; do
  [ -e "$work/command/$file" ] || fail "command lacks $file"
done
"$work/command/bin/kiln" templates >"$work/log" 2>&1 || fail "the command alone finds no templates"

# --- find_package and pkg-config ---
package=$(cd "$work/development" && find . -path '*/cmake/kiln')
! grep -rn -e "$build" -e "$source" -e "$work" "$work/development/$package" "$work/development/$package/../../pkgconfig" ||
  fail "an installed file names a directory of this machine"
mkdir "$work/whole"
cp -a "$work/runtime/." "$work/development/." "$work/whole"
library=$(dirname "$(find "$work/whole" -name libkiln.so)")
# builds PREFIX PROGRAM...: builds programs with the package below PREFIX, which must have all components, and runs them.
builds() {
  local prefix=$1 said
  shift
  rm -rf "$work/consumer"
  quietly "$cmake" -S "$here/consumer" -B "$work/consumer" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" -DVERSION="$minor"
  quietly "$cmake" --build "$work/consumer" --target "$@"
  for program in "$@"; do
    said=$(env -i KILN_CACHE_DIR="$work/cache" LD_LIBRARY_PATH="$library" "$work/consumer/$program") || fail "$program from $prefix"
    [ "$said" = "$version" ] || fail "$program from $prefix says $said"
  done
}
builds "$build" shared
builds "$work/whole" shared static headers
! ldd "$work/consumer/static" | grep libkiln || fail "kiln::static links the shared library"
if pkg-config --version >/dev/null 2>&1; then
  export PKG_CONFIG_PATH=$library/pkgconfig
  quietly pkg-config --exact-version="$version" kiln
  # shellcheck disable=SC2046  # pkg-config gives several words
  quietly "$compiler" -std=c++17 "$here/consumer/version.cpp" -o "$work/program" $(pkg-config --cflags --libs kiln)
  [ "$(env -i KILN_CACHE_DIR="$work/cache" LD_LIBRARY_PATH="$library" "$work/program")" = "$version" ] || fail "the program of pkg-config"
  # shellcheck disable=SC2046
  quietly "$compiler" -std=c++17 "$here/consumer/version.cpp" -o "$work/program" $(pkg-config --cflags --libs kiln) \
    -Wl,-rpath,"$(pkg-config --variable=libdir kiln)"
  [ "$(env -i KILN_CACHE_DIR="$work/cache" "$work/program")" = "$version" ] || fail "the program that has kiln.pc's libdir as rpath"
fi

# asks PREFIX ARGUMENT...: a project without a language that calls find_package(kiln ARGUMENT...).
asks() {
  local prefix=$1
  shift
  mkdir -p "$work/asks"
  printf 'cmake_minimum_required(VERSION 3.16)\nproject(asks LANGUAGES NONE)\nfind_package(kiln %s)\n' "$*" >"$work/asks/CMakeLists.txt"
  rm -rf "$work/asked"
  "$cmake" -S "$work/asks" -B "$work/asked" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
}
rm "$library/libkiln.a"
quietly asks "$work/whole" "$minor" CONFIG REQUIRED COMPONENTS shared headers OPTIONAL_COMPONENTS static
refuses "lacks the static library" "$library" "kiln_static" libkiln-dev -- asks "$work/whole" "$minor" CONFIG REQUIRED COMPONENTS static
refuses "no component cuda" "shared, static and headers" -- asks "$work/whole" "$minor" CONFIG REQUIRED COMPONENTS cuda
refuses "requested version \"$next\"" -- asks "$work/whole" "$next" CONFIG REQUIRED
quietly asks "$work/whole" "$version" CONFIG REQUIRED
rm "$library"/libkiln.so.*
quietly asks "$work/whole" "$minor" CONFIG REQUIRED COMPONENTS headers
refuses "lacks the shared library" "kiln-library" libkiln0 -- asks "$work/whole" "$minor" CONFIG REQUIRED

# --- FetchContent ---
quietly "$cmake" -S "$here/subproject" -B "$work/engine" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DKILN_SOURCE="$source" -DCMAKE_BUILD_TYPE=Release
quietly "$cmake" --install "$work/engine" --prefix "$work/nothing"
[ ! -e "$work/nothing" ] || fail "a project that takes kiln installs it"
quietly "$cmake" "$work/engine" -DKILN_INSTALL=ON
refuses "The component runtime needs" "libkiln.so" "--target kiln-library" -- "$cmake" --install "$work/engine" --component runtime
refuses "The component command needs" "kiln-worker" "--target kiln-worker" -- "$cmake" --install "$work/engine" --component command
if [ -n "${KILN_TEST_NIGHTLY:-}" ]; then # this compiles kiln once more
  quietly "$cmake" --build "$work/engine" --target engine
  said=$(env -i KILN_CACHE_DIR="$work/cache" "$work/engine/engine") || fail "the program of a project that takes kiln"
  [ "$said" = "$version" ] || fail "the program of a project that takes kiln says $said"
  [ -n "$(find "$work/engine" -name kiln-worker -type f)" ] || fail "the compile worker is not built with the program"
  [ -z "$(find "$work/engine" -name kiln -type f)" ] || fail "the command is built with the program"
fi
echo "installed by component, found by CMake and pkg-config, and taken by FetchContent"
