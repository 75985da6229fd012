#!/usr/bin/env python3
"""Compares the C ABI with tests/layout/abi.txt, the list of what programs were built against.

    abi.py LIBRARY           compares the exported symbols of LIBRARY, and the structs and constants of kiln.h
    abi.py LIBRARY --write   writes the list

The list has a line for each exported function, constant, struct, and field with its offset and size in bytes.
docs/reference/versions.md says which changes are allowed. A new line is a compatible change, and so is a larger struct that begins
with struct_size and has new fields at its end. Any other difference breaks programs that were built before.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/layout/abi.txt"


def exported(library: pathlib.Path) -> list[str]:
    table = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return sorted(f"function {line.split()[2]}" for line in table.splitlines())


def declarations() -> str:
    text = (ROOT / "include/kiln/kiln.h").read_text()
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def structs(text: str) -> dict[str, list[str]]:
    """The fields of each struct that kiln.h defines."""
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, re.S):
        fields = []
        body = re.sub(r"\bunion \{(.*?)\};", r"\1", body, flags=re.S)  # the members of an unnamed union are fields
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)\(", declaration)
            names = (
                [pointer[1]] if pointer else [re.search(r"(\w+)(?:\[\w+\])*$", one.strip())[1] for one in declaration.split(",")]
            )
            fields += names
        found[name] = fields
    return found


def constants(text: str) -> list[str]:
    return [name for body in re.findall(r"enum \{(.*?)\}", text, re.S) for name in re.findall(r"\bKILN_\w+", body)]


def measured() -> list[str]:
    """Sizes, offsets and values, as the C compiler of this machine has them."""
    text = declarations()
    rows = []
    for struct, fields in structs(text).items():
        rows.append(f'printf("struct {struct} %zu\\n", sizeof({struct}));')
        rows += [
            f'printf("field {struct}.{field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct}*)0)->{field}));'
            for field in fields
        ]
    rows += [f'printf("constant {name} %d\\n", (int){name});' for name in constants(text)]
    with tempfile.TemporaryDirectory() as scratch:
        source, program = pathlib.Path(scratch, "abi.c"), pathlib.Path(scratch, "abi")
        source.write_text("#include <kiln/kiln.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(rows) + "\n}\n")
        subprocess.run(
            ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I", ROOT / "include", source, "-o", program],
            check=True,
        )
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares the C ABI with the committed list.")
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="write the list")
    options = parser.parse_args()
    now = exported(options.library) + measured()
    if options.write:
        LIST.write_text("\n".join(now) + "\n")
        return 0
    before = LIST.read_text().splitlines()
    if now == before:
        return 0
    print("\n".join(difflib.unified_diff(before, now, "tests/layout/abi.txt", "this build", lineterm="", n=1)))
    print("the C ABI has changed: see docs/reference/versions.md, then run tests/layout/abi.py LIBRARY --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
