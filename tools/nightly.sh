#!/usr/bin/env bash
# The tests once more, with what is too slow or too dependent on an idle machine for .ci/run: every feature of the shipped templates
# for the oldest arch, too, and limits of time that are strict. Arguments go to ctest.
export KILN_NIGHTLY=1 KILN_TEST_TIMES=strict
exec "$(dirname "${BASH_SOURCE[0]}")/test.sh" "$@"
