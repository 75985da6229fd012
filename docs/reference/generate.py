#!/usr/bin/env python3
"""Makes the pages of the C and the C++ interface from include/kiln, by way of Doxygen's XML.

    generate.py [DIRECTORY]   writes c.md and cpp.md into DIRECTORY (default: build/reference)

docs/hooks.py puts the same two pages into the site. They are not committed, so they cannot differ from the headers.
Doxygen calls this script as its input filter (generate.py --filter FILE), which makes it take comments as plain text.
This file runs Doxygen, doxygen_xml.py reads its answer, and interface_pages.py writes the pages with markdown_writer.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from doxygen_xml import Reader
from interface_pages import HEADERS, c_page, cpp_page

ROOT = Path(__file__).resolve().parents[2]

DOXYFILE = """
INPUT = {headers}
FILE_PATTERNS = *.h *.hpp
EXCLUDE = {headers}/detail.hpp
INPUT_FILTER = "{python} {script} --filter"
OUTPUT_DIRECTORY = {output}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = KILN_API= __cplusplus=201703L
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
WARN_AS_ERROR = YES
"""


def escaped(comment: str) -> str:
    """Doxygen shall take a comment as plain text: its commands, entities and dashes are escaped."""
    return re.sub(r"--+|[\\@<>#%&]", lambda m: "\\" + m[0], comment)


def filtered(text: str, is_c: bool) -> str:
    """The header with the text of its documentation escaped. Tables stay as they are: prose() returns their lines."""
    if not is_c:
        return re.sub(r"(///<?)([^\n]*)", lambda m: m[1] + escaped(m[2]), text)

    def block(match: re.Match[str]) -> str:
        table = re.compile(r"^ \* (\|.*(?:\n \* \|.*)*)$", re.M)  # keeps its lines: sections are found by their numbers
        rows = table.sub(lambda m: f" * \\verbatim {m[1]} \\endverbatim", escaped(match[2]))
        return match[1] + rows + "*/"

    return re.sub(r"(/\*\*<?)(?!\*)(.*?)\*/", block, text, flags=re.S)


def pages(build: Path) -> dict[str, str]:
    """Runs Doxygen below `build`; returns the text of c.md and cpp.md."""
    output = build / "doxygen"
    output.mkdir(parents=True, exist_ok=True)
    for stale in (output / "xml").glob("*.xml"):
        stale.unlink()
    settings = DOXYFILE.format(headers=HEADERS, python=sys.executable, script=Path(__file__).resolve(), output=output)
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True, cwd=output)
    reader = Reader(output / "xml")
    declared = reader.records("kiln.h") + reader.free("kiln.h")
    silent = [
        item.name for item in declared if item.kind in ("struct", "function") and item.name.startswith("kiln_") and not item.text
    ]
    if silent:
        raise SystemExit(f"kiln.h says nothing about {', '.join(silent)}")
    anchors = {item.name: f"c.md#{item.name}" for item in declared if item.kind in ("struct", "function", "typedef")}
    anchors.pop("kiln_install_prefix", None)
    own = {name: link.removeprefix("c.md") for name, link in anchors.items()}
    return {"c.md": c_page(reader, own), "cpp.md": cpp_page(reader, anchors)}


def main() -> None:
    if sys.argv[1:2] == ["--filter"]:
        header = Path(sys.argv[2])
        sys.stdout.write(filtered(header.read_text(), header.suffix == ".h"))
        return
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "reference"
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages(ROOT / "build").items():
        (target / name).write_text(text)


if __name__ == "__main__":
    main()
