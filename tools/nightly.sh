#!/usr/bin/env bash
# Runs the tests, and those that are too slow for .ci/run or need an idle machine: all features of the shipped
# templates also for the oldest arch, and strict time limits. Arguments go to ctest.
#
# First each file is compiled alone, without precompiled headers, which shows that it includes what it uses.
# Then the fuzz programs are built, and the site of the documentation.
set -e
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
cmake --preset dev -B build/alone -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
cmake --build build/alone
install_packages clang-14 libclang-rt-14-dev
cmake --preset fuzz
cmake --build --preset fuzz
tools/site.sh
export KILN_NIGHTLY=1 KILN_TEST_TIMES=strict
exec tools/test.sh "$@"
