#!/usr/bin/env python3
"""Finds the static variables of functions that are made at run time.

    statics.py LIBRARY

A child that is forked while a thread of its parent makes such a variable would wait for it for ever
(docs/internals/path.md, Forks). Each has a guard variable in the symbol table of LIBRARY. Exits with 77, which means
skipped, when LIBRARY has no symbol table.
"""

import subprocess
import sys

SKIPPED = 77


def main() -> int:
    library = sys.argv[1]
    symbols = subprocess.run(["nm", "-C", library], capture_output=True, text=True, check=True).stdout.splitlines()
    if not symbols:
        return SKIPPED
    found = [
        line.split("guard variable for ", 1)[1] for line in symbols if "guard variable for " in line and "spdlog::" not in line
    ]
    for name in found:
        print(f"{name}: use base::ProcessWide at namespace scope, or a constant")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
