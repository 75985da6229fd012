#!/usr/bin/env bash
# Installs missing packages, builds `dev` and runs the tests.
# Arguments go to ctest: tools/test.sh -L unit -R Store
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root" && mkdir -p build
install_packages "${build_packages[@]}" libgtest-dev libbenchmark-dev libvalijson-dev minisign redis-server openssl iproute2 groff-base ccache python3-clang-14
find_toolkit
find_python
cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python"
cmake --build --preset dev
say "ctest"
exec ctest --preset dev -j "$(nproc)" "$@"
