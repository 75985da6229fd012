#!/usr/bin/env bash
# The tests once more, with what is too slow or too dependent on an idle machine for .ci/run: every feature of the shipped templates
# for the oldest arch, too, and limits of time that are strict. Arguments go to ctest.
# First each file is compiled alone, without the headers that others include: so it names what it uses. Then the fuzz programs are built.
set -e
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
cmake --preset dev -B build/alone -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
cmake --build build/alone
install_packages clang-14 libclang-rt-14-dev
cmake --preset fuzz
cmake --build --preset fuzz
export KILN_NIGHTLY=1 KILN_TEST_TIMES=strict
exec tools/test.sh "$@"
