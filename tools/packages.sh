#!/usr/bin/env bash
# Builds what users install without a compiler, into build/packages/dist: tools/packages.sh
#
#   - the Debian packages kiln, libkiln0 and libkiln-dev; those that Debian 12 builds also install on Debian 13
#   - kiln-VERSION-linux-ARCH.tar.gz, the static build, which may be unpacked anywhere
#
# The script checks them: lintian finds no error, and no file names a directory of this machine.
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
install_packages "${build_packages[@]}" lintian dpkg-dev file

base=$root/build/packages
dist=$base/dist
# Files in the packages have the date of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
rm -rf "$dist"

say "Debian packages"
cmake --preset release -B "$base/shared" -DCMAKE_INSTALL_PREFIX=/usr
cmake --build "$base/shared" --target kiln-library kiln_static kiln-pages
cpack --config "$base/shared/CPackConfig.cmake" -B "$dist"

say "tar.gz"
cmake --preset static -B "$base/static" -DCMAKE_INSTALL_LIBDIR=lib
cmake --build "$base/static" --target kiln-library kiln-pages
cpack --config "$base/static/CPackConfig.cmake" -B "$dist"
rm -rf "$dist/_CPack_Packages"

say "checking"
lintian --allow-root --fail-on error "$dist"/*.deb
contents=$base/contents
rm -rf "$contents"
for package in "$dist"/*.deb; do dpkg-deb -x "$package" "$contents"; done
mkdir "$contents/tar" && tar -xzf "$dist"/*.tar.gz -C "$contents/tar"
! grep -rlF -e "$root" "$contents" || { echo "these files name a directory of this machine" >&2; exit 1; }
ls -l "$dist"
