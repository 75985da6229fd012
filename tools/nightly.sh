#!/usr/bin/env bash
# Runs what is too slow for .ci/run, or needs an idle machine. Arguments go to ctest. In this order:
#
#   1. each file compiled alone, without precompiled headers, which shows that it includes what it uses
#   2. clang-tidy over the whole product
#   3. the fuzz programs, built
#   4. the site of the documentation, built with warnings as errors and loaded in a browser
#   5. the command of 0.1 and this one, side by side on one cache directory and one Redis server
#   6. all tests, with strict time limits and with the cases that CI leaves out (KILN_TEST_NIGHTLY)
set -e
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
install_packages clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev python3-clang-14 shellcheck redis-server git
find_toolkit
find_python
"$test_python" -m pip install -q --disable-pip-version-check 'ruff==0.17.*' # another version formats differently

say "each file alone"
cmake --preset dev -B build/alone -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DKILN_PYTHON_EXECUTABLE="$test_python"
cmake --build build/alone

say "clang-tidy"
run-clang-tidy-14 -p build/alone -quiet -j "$(nproc)" "$root/(src|cache|tools|python/src)/.*\.cpp$" >build/clang-tidy.log 2>&1 ||
  { grep -A3 'error:' build/clang-tidy.log; exit 1; }

say "fuzz programs"
cmake --preset fuzz
cmake --build --preset fuzz

tools/site.sh

say "0.1 beside this version"
first=a4738da # the last commit with key schema 1
[ -d build/first ] || git worktree add --detach build/first "$first"
(cd build/first && cmake --preset release >/dev/null && cmake --build --preset release --target kiln-cli kiln-worker)
tests/scenario/two_versions.sh build/first/build/release/kiln build/alone/kiln

export KILN_TEST_NIGHTLY=1 KILN_TEST_TIMES=strict
exec tools/test.sh "$@"
