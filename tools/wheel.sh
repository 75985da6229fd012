#!/usr/bin/env bash
# Builds the wheels that users install, into build/wheel/dist: tools/wheel.sh [--arch x86_64|aarch64]
# One wheel is for Python 3.11, and one is for Python 3.12 and later (cp312-abi3).
#
# Zig's C++ compiler builds kiln and its C libraries for glibc 2.28 (manylinux_2_28), so this machine's own libc does
# not matter. The C libraries are built from Debian's source packages, and the headers come from Debian's packages.
# A private list of packages keeps the machine's own package lists as they are.
#
# A second run uses what lies in build/wheel. The script checks each wheel: its platform, its size, and what it exports.
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=debian.sh
source "$root/tools/debian.sh"
cd "$root"

arch=x86_64
while [ $# -gt 0 ]; do
  case $1 in
    --arch) arch=${2:-}; shift 2 || true ;;
    *) echo "unknown argument $1; expected --arch x86_64|aarch64" >&2; exit 2 ;;
  esac
done
case $arch in
  x86_64) debian_arch=amd64 ;;
  aarch64) debian_arch=arm64 ;;
  *) echo "unknown architecture '$arch'; expected x86_64 or aarch64" >&2; exit 2 ;;
esac
glibc=2.28

base=$root/build/wheel
here=$base/$arch
prefix=$here/prefix # what CMake searches
mkdir -p "$prefix/include" "$prefix/lib/cmake" "$prefix/lib/pkgconfig" "$prefix/share/doc" "$base/sources" "$here/bin" "$base/dist"
exec 9>"$here/lock"
flock 9 # one build of an architecture at a time

install_packages cmake ninja-build pkg-config dpkg-dev make autoconf automake libtool python3 python3-venv

# --- Tools: the compiler, and what makes and checks wheels ---
tools=$base/tools
if ! cmp -s tools/wheel/requirements.txt "$tools/ready"; then
  say "fetching the tools into build/wheel/tools"
  python3 -m venv --clear "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check -r tools/wheel/requirements.txt
  cp tools/wheel/requirements.txt "$tools/ready"
fi
packages=$(echo "$tools"/lib/python3*/site-packages)
export ZIG_GLOBAL_CACHE_DIR=$base/zig-cache ZIG_LOCAL_CACHE_DIR=$base/zig-cache
zig=$packages/ziglang/zig
for tool in cc c++; do
  printf '#!/bin/sh\nexec "%s" %s -target %s-linux-gnu.%s "$@"\n' "$zig" "$tool" "$arch" "$glibc" >"$here/bin/$tool"
done
for tool in ar ranlib; do
  printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$tool" >"$here/bin/$tool"
done
chmod +x "$here"/bin/*

# --- Packages of Debian 12, and the headers of a newer Python from Debian 13 ---
# unpack_package NAME RELEASE: unpacks a binary package into $here/packages/NAME.
unpack_package() {
  local name=$1 release=$2 into=$here/packages/$1
  [ ! -d "$into" ] || return 0
  rm -rf "$into.partial"
  unpack_packages "$debian_arch" "$release" "$into.partial" "$name"
  if [ -f "$into.partial/usr/share/doc/$name/copyright" ]; then # else it is another package's
    mkdir -p "$prefix/share/doc/$name"
    cp "$into.partial/usr/share/doc/$name/copyright" "$prefix/share/doc/$name/"
  fi
  mv "$into.partial" "$into"
}

# source_of NAME: prints the directory with the sources of a package. Debian's patches are applied.
source_of() {
  local name=$1
  if [ ! -d "$base/sources/$name" ]; then
    read_package_lists
    rm -rf "$base/sources/$name.partial" && mkdir "$base/sources/$name.partial"
    (cd "$base/sources/$name.partial" && private_apt "$debian_arch" apt-get source "$name/bookworm") >"$base/sources/$name.log" 2>&1 ||
      { cat "$base/sources/$name.log" >&2; exit 1; }
    mv "$base/sources/$name.partial" "$base/sources/$name"
  fi
  echo "$base/sources/$name"/*/
}

# build_library NAME COMMAND...: runs the command in a copy of the sources, once.
build_library() {
  local name=$1
  shift
  [ ! -e "$here/$name.ready" ] || return 0
  say "building $name for $arch"
  local source
  source=$(source_of "$name")
  rm -rf "${here:?}/$name" && cp -r "$source" "$here/$name"
  (cd "$here/$name" && "$@") >"$here/$name.log" 2>&1 || { tail -20 "$here/$name.log" >&2; exit 1; }
  mkdir -p "$prefix/share/doc/$name"
  cp "$here/$name/debian/copyright" "$prefix/share/doc/$name/"
  touch "$here/$name.ready"
}

compile=(CC="$here/bin/cc" AR="$here/bin/ar" RANLIB="$here/bin/ranlib")
# `set -e` does not hold inside these functions, so their commands are joined by &&.
build_lmdb() {
  make -C libraries/liblmdb liblmdb.a "${compile[@]}" OPT="-O2 -fPIC" &&
    cp libraries/liblmdb/liblmdb.a "$prefix/lib/" && cp libraries/liblmdb/lmdb.h "$prefix/include/"
}
build_hiredis() { # only the codec is used, with functions of kiln's own
  make static "${compile[@]}" OPTIMIZATION="-O2 -fPIC -Wno-incompatible-function-pointer-types" DEBUG= &&
    mkdir -p "$prefix/include/hiredis" && cp ./*.h "$prefix/include/hiredis/" && cp libhiredis.a "$prefix/lib/"
}
build_libzstd() {
  make -C lib libzstd.a "${compile[@]}" CFLAGS="-O2 -fPIC" ZSTD_LEGACY_SUPPORT=0 &&
    cp lib/libzstd.a "$prefix/lib/" && cp lib/zstd.h lib/zstd_errors.h "$prefix/include/"
}
build_libsodium() {
  autoreconf -fi &&
    ./configure "${compile[@]}" --host="$arch-linux-gnu" --prefix="$prefix" --disable-shared --enable-static --with-pic \
      CFLAGS="-O2 -fPIC" &&
    make -C src/libsodium -j 2 install
}
build_library lmdb build_lmdb
build_library hiredis build_hiredis
build_library libzstd build_libzstd
build_library libsodium build_libsodium

# --- Headers. The CMake and pkg-config files are made here, because Debian's files name the machine's directories ---
if [ ! -e "$here/headers.ready" ]; then
  say "unpacking headers for $arch"
  for name in libspdlog-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libssl-dev; do
    unpack_package "$name" bookworm
    cp -r "$here/packages/$name/usr/include/." "$prefix/include/"
    [ ! -d "$prefix/include/$arch-linux-gnu" ] || cp -r "$prefix/include/$arch-linux-gnu/." "$prefix/include/"
    rm -rf "${prefix:?}/include/$arch-linux-gnu"
  done
  unpack_package libpython3.11-dev bookworm
  unpack_package libpython3.13-dev trixie
  for name in spdlog tomlplusplus CLI11 nlohmann_json; do
    target=$name::$name
    mkdir -p "$prefix/lib/cmake/$name"
    echo "if(NOT TARGET $target)
  add_library($target INTERFACE IMPORTED)
endif()" >"$prefix/lib/cmake/$name/${name}Config.cmake"
  done
  for name in lmdb libxxhash libsodium libzstd; do
    printf 'Name: %s\nDescription: for the wheel\nVersion: 1\n' "$name" >"$prefix/lib/pkgconfig/$name.pc"
  done
  touch "$here/headers.ready"
fi

# --- Licences of the tools whose code is in the wheel ---
for licence in nanobind:nanobind-*.dist-info/licenses/LICENSE libcxx:ziglang/lib/libcxx/LICENSE.TXT \
  nvtx:nvidia_nvtx-*.dist-info/licenses/License.txt; do
  mkdir -p "$prefix/share/doc/${licence%%:*}"
  # shellcheck disable=SC2086  # the pattern is expanded here
  cp "$packages"/${licence#*:} "$prefix/share/doc/${licence%%:*}/copyright"
done
# nanobind has a copy of robin-map, whose licence is the first comment of its headers.
mkdir -p "$prefix/share/doc/robin-map"
sed -n '\,^ \*/,q; s,^ \* \?,,p' "$packages/nanobind/ext/robin_map/include/tsl/robin_map.h" >"$prefix/share/doc/robin-map/copyright"
grep -q '^Copyright (c) .* Thibaut Goetghebuer-Planchon' "$prefix/share/doc/robin-map/copyright" ||
  { echo "the header of robin-map does not begin with its licence" >&2; exit 1; }

# --- kiln ---
version=$(sed -n 's/^#define KILN_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' include/kiln/kiln.h | paste -sd.)
emulator=/usr/bin/env # the program runs as it is, to write man pages and completion
if [ "$arch" != "$(uname -m)" ]; then
  install_packages qemu-user-static
  unpack_package libc6 bookworm
  emulator="qemu-$arch-static;-L;$here/packages/libc6"
fi

# build_wheel VERSION TAG HEADERS PYTHON: compiles the module with the headers of Python VERSION or, for the stable
# ABI, of a newer one, and puts the wheel for PYTHON (cp311-cp311) into build/wheel/dist.
build_wheel() {
  local python=$1 tag=$2 headers=$3 wheel=$4 stage=$here/stage/$4
  say "kiln $version for $wheel, $arch"
  PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig cmake -B "$here/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/tools/wheel/zig.cmake" \
    -DKILN_WHEEL_ARCH="$arch" -DKILN_WHEEL_DIRECTORY="$here" -DCMAKE_CROSSCOMPILING_EMULATOR="$emulator" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_INSTALL_LIBDIR=lib \
    -DKILN_PYTHON=ON -DKILN_PYTHON_VERSION="$python" -DKILN_PYTHON_TAG="$tag" \
    -DKILN_PYTHON_HEADERS="$(echo "$headers"/usr/include/python3*);$headers/usr/include" \
    -DNB_HAS_MTLS_GNU2=OFF -Dnanobind_DIR="$packages/nanobind/cmake" -DKILN_NVTX_INCLUDE_DIR="$(echo "$packages"/nvidia/*/include)" \
    -DKILN_COPYRIGHTS="$prefix/share/doc" -DSKBUILD_DATA_DIR="$stage/kiln-$version.data/data" >"$here/cmake.log" 2>&1 ||
    { tail -30 "$here/cmake.log" >&2; exit 1; }
  cmake --build "$here/build" -j "${KILN_WHEEL_JOBS:-$(nproc)}"
  rm -rf "$stage"
  cmake --install "$here/build" --prefix "$stage/kiln" >/dev/null
  PATH=$tools/bin:$PATH "$tools/bin/python" tools/wheel/pack.py "$stage" "$wheel-manylinux_${glibc/./_}_$arch" "$base/dist"
}
build_wheel 3.11 "cpython-311-$arch-linux-gnu" "$here/packages/libpython3.11-dev" cp311-cp311
build_wheel 3.12 "cpython-312-$arch-linux-gnu" "$here/packages/libpython3.13-dev" cp312-abi3

say "checking"
for wheel in "$base/dist/kiln-$version-"*"$arch.whl"; do
  "$tools/bin/python" tools/wheel/check.py "$wheel"
  found=$("$tools/bin/auditwheel" show "$wheel")
  echo "$found"
  [[ $found == *"platform tag"*"manylinux_${glibc/./_}_$arch"* ]] || { echo "auditwheel names another platform" >&2; exit 1; }
done
