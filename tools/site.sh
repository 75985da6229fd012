#!/usr/bin/env bash
# Builds the documentation into build/site, with warnings as errors, and checks it: titles, links, and that no page fetches anything from elsewhere.
# Then it loads three pages in headless Chromium, in light and in dark, and saves screenshots into build/site-shots.
# Read the site with: python3 -m http.server -d build/site
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root" && mkdir -p build
install_packages doxygen chromium fonts-dejavu-core python3 python3-venv

tools=$root/build/site-tools
if ! cmp -s docs/requirements.txt "$tools/ready"; then
  say "fetching MkDocs into build/site-tools"
  python3 -m venv --clear "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check -r docs/requirements.txt
  cp docs/requirements.txt "$tools/ready"
fi

say "building the site"
export NO_MKDOCS_2_WARNING=1 # an advertisement of the theme
"$tools/bin/mkdocs" build --strict --quiet
python3 tools/site_check.py build/site

say "loading pages in Chromium"
scratch=$(mktemp -d)
"$tools/bin/python" -u -m http.server 0 --bind 127.0.0.1 -d build/site >"$scratch/server" 2>"$scratch/requests" &
server=$!
trap 'kill "$server"; rm -rf "$scratch"' EXIT
until grep -q 'port [0-9]' "$scratch/server"; do kill -0 "$server" && sleep 0.1; done
address=http://127.0.0.1:$(sed -n 's/.*port \([0-9]*\).*/\1/p' "$scratch/server")
browser=(chromium --headless --disable-gpu --hide-scrollbars --no-first-run "--user-data-dir=$scratch/profile")
[ "$(id -u)" -ne 0 ] || browser+=(--no-sandbox)
# show PAGE TITLE: saves build/site-shots/PAGE-{light,dark}.png. Fails when the loaded page has another title.
show() {
  local page=$1 title=$2 url=$address/$1.html scheme colour=0
  "${browser[@]}" --dump-dom "$url" 2>/dev/null | grep -qF "<title>$title</title>" || { echo "$page.html: its title in Chromium is not '$title'" >&2; exit 1; }
  for scheme in dark light; do
    "${browser[@]}" --blink-settings=preferredColorScheme=$colour --window-size=1280,1600 \
      --screenshot="build/site-shots/${page//\//-}-$scheme.png" "$url" 2>/dev/null
    colour=1
  done
}
rm -rf build/site-shots && mkdir -p build/site-shots
show index "kiln"
show guide/first-kernel "The first kernel - kiln"
show guide/report "Report - kiln"
ls build/site-shots/*.png
