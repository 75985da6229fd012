# shellcheck shell=bash
# Sourced by the scripts that unpack packages of Debian 12 and 13 without installing them. They set $root before. A
# private list of packages in build/debian keeps the machine's own package lists as they are.
# shellcheck disable=SC2154  # the script that sources this file sets it
debian_lists=$root/build/debian

# The archive of Debian that this machine uses.
debian_mirror() {
  # shellcheck disable=SC2016  # the format is apt's
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -1
}

# private_apt ARCH COMMAND...: runs a command of apt for an architecture of Debian (amd64, arm64) on the private list.
private_apt() {
  local arch=$1 command=$2
  shift 2
  "$command" -qq -o Dir::Etc::sourcelist="$debian_lists/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$debian_lists/lists" -o Dir::Cache="$debian_lists/cache" -o APT::Architectures=amd64,arm64 \
    -o APT::Architecture="$arch" -o APT::Sandbox::User=root "$@"
}

# Reads the private list, unless that was done within a day: the archive drops the versions that an old list names.
read_package_lists() {
  local mirror
  mkdir -p "$debian_lists/lists/partial" "$debian_lists/cache/archives/partial"
  exec 8>"$debian_lists/lock"
  flock 8
  if [ -z "$(find "$debian_lists/ready" -mmin -1440 2>/dev/null)" ]; then
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || { echo "no archive of Debian among this machine's package sources" >&2; exit 1; }
    {
      echo "deb-src $mirror bookworm main"
      echo "deb [arch=amd64,arm64] $mirror bookworm main"
      echo "deb [arch=amd64,arm64] $mirror trixie main"
    } >"$debian_lists/sources.list"
    private_apt amd64 apt-get update
    touch "$debian_lists/ready"
  fi
  exec 8>&-
}

# unpack_packages ARCH RELEASE DIRECTORY NAME...: unpacks the binary packages into the directory.
unpack_packages() {
  local arch=$1 release=$2 into=$3 downloads package
  shift 3
  read_package_lists
  downloads=$into.downloads
  rm -rf "$downloads"
  mkdir -p "$downloads" "$into"
  (cd "$downloads" && private_apt "$arch" apt-get download "${@/%//$release}")
  for package in "$downloads"/*.deb; do dpkg-deb -x "$package" "$into"; done
  rm -rf "$downloads"
}
