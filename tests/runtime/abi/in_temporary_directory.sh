#!/usr/bin/env bash
# in_temporary_directory.sh COMMAND...: runs the command with an empty directory as its last argument.
set -u
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$@" "$directory"
