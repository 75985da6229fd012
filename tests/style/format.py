#!/usr/bin/env python3
"""format.py cpp|device|python|rust|shell: checks how files are formatted, and what their linters say. Exits with 77 without the tool.

cpp and device use clang-format 14 with .clang-format and templates/.clang-format, since other versions format differently.
python uses `ruff format` and `ruff check` with ruff.toml. rust uses rustfmt with the rustfmt.toml beside the code. shell uses shellcheck.
"""

import shutil
import subprocess
import sys

from tracked import ROOT, SKIPPED, tracked_files

VENV = ROOT / "build/python-tools/bin"


def tool(*names: str) -> str:
    for name in names:
        found = shutil.which(name) or shutil.which(name, path=str(VENV))
        if found:
            return found
    print(f"skipped: {names[0]} is not installed")
    sys.exit(SKIPPED)


def clang_format() -> str:
    program = tool("clang-format-14", "clang-format")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if " 14." not in version:
        print(f"skipped: this is {version.strip()}, and version 14 is needed")
        sys.exit(SKIPPED)
    return program


def commands(what: str) -> list[list[str]]:
    if what == "cpp":
        names = tracked_files("*.c", "*.h", "*.cpp", "*.hpp")
        host = [name for name in names if not name.startswith(("templates/", "tests/fixtures/"))]
        return [[clang_format(), "--dry-run", "-Werror", *host]]
    if what == "device":
        return [[clang_format(), "--dry-run", "-Werror", *tracked_files("templates/*.cu", "templates/*.cuh", "templates/*.h")]]
    if what == "python":
        names = tracked_files("*.py", "*.pyi")
        return [[tool("ruff"), "format", "--check", *names], [tool("ruff"), "check", *names]]
    if what == "rust":
        return [[tool("rustfmt"), "--check", "--edition", "2021", *tracked_files("*.rs")]]
    return [[tool("shellcheck"), "-x", *tracked_files("*.sh", ".ci/run")]]


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in {"cpp", "device", "python", "rust", "shell"}:
        print(__doc__)
        return 2
    return max(subprocess.run(command, cwd=ROOT).returncode for command in commands(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
