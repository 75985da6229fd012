"""The command `kiln` of the Python package: replaces this process by the packaged program.

python -m kiln prewarm                # the same as: kiln prewarm
python -m kiln engines                # the engines that kiln has adapters for
python -m kiln --cmake-dir            # the directory of the CMake package, for -Dkiln_DIR=
"""

import os
import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).parent


def main() -> int:
    if sys.argv[1:] == ["--cmake-dir"]:
        print(_PACKAGE / "lib" / "cmake" / "kiln")
        return 0
    if sys.argv[1:2] == ["engines"]:  # the engines' packages are Python's
        from .engines.__main__ import main as engines

        return engines(sys.argv[2:])
    program = _PACKAGE / "bin" / "kiln"
    try:
        os.execv(program, ["kiln", *sys.argv[1:]])
    except OSError as error:
        print(f"kiln: error: cannot start {program}: {error.strerror}; reinstall the package kiln", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
