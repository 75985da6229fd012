#!/usr/bin/env bash
# Run by rattler-build in the folder of the sources, with the environment of the recipe's requirements.
set -euo pipefail
# shellcheck disable=SC2154  # rattler-build sets PREFIX, SRC_DIR, CPU_COUNT and CMAKE_ARGS
read -ra arguments <<<"${CMAKE_ARGS:-}"
cmake -S "$SRC_DIR" -B build -G Ninja "${arguments[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
  -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib -DKILN_TESTS=OFF
cmake --build build --parallel "${CPU_COUNT:-1}"
cmake --install build
