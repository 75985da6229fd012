"""The pages of the C and the C++ interface: which declarations they show, in which order and under which headings."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

from doxygen_xml import Item, Reader
from markdown_writer import Writer, enumeration, rows_by_line, wrapped

HEADERS = Path(__file__).resolve().parents[2] / "include" / "kiln"

# Headers of cpp.md in the order in which a reader needs them. A header that is missing here comes last.
ORDER = [
    "service",
    "options",
    "kernel_template",
    "kernel",
    "scope",
    "attention",
    "specialization",
    "dtype",
    "device_ptr",
    "error",
    "event",
    "digest",
]


def uncommented(comment: str) -> str:
    lines = [re.sub(r"^\s*(?:\*|//+) ?", "", line) for line in comment.split("\n")]
    return "\n".join(lines).strip()


def section_text(comment: str) -> str:
    """The text of a section's comment, in paragraphs and numbered items of one line each."""
    return "\n\n".join(" ".join(p.split()) for p in re.split(r"\n\s*\n|\n(?=\s*\d+\. )", uncommented(comment)) if p.strip())


def c_page(reader: Reader, anchors: dict[str, str]) -> str:
    source = (HEADERS / "kiln.h").read_text()
    out = Writer(anchors)
    first = re.match(r"/\*(.*?)\*/", source, re.S)
    assert first, "kiln.h begins with a comment"
    out.add("# C interface\n")
    out.add("You can call kiln from C, or from any language that can call C functions.\n")
    out.code("#include <kiln/kiln.h>", "c")
    conventions = re.split(r"\n\s*- ", uncommented(first[1]))
    heading = conventions[0].rsplit("\n\n", 1)[0]
    out.paragraphs(" ".join(heading.split()))
    for rule in conventions[1:]:
        out.add("- " + out.inline(" ".join(rule.split())))
    out.add("")

    sections = [(0, "Basics", "")]
    for match in re.finditer(r"/\* ---- (\w+) -+ \*(?:/|\n(.*?)\*/)", source, re.S):
        sections.append((source.count("\n", 0, match.start()) + 1, match[1], section_text(match[2] or "")))
    records = {record.name: record for record in reader.records("kiln.h")}
    items = list(records.values())
    for item in reader.free("kiln.h"):
        opaque = item.kind == "typedef" and item.name in records
        if not opaque and item.name not in ("KILN_API", "KILN_KILN_H", "kiln_install_prefix", "KILN_INSTALL_PREFIX"):
            items.append(item)
    items.sort(key=lambda item: item.line)
    for (start, title, text), end in zip(sections, [s[0] for s in sections[1:]] + [sys.maxsize]):
        out.add(f"## {title}\n")
        out.paragraphs(text)
        for kind, group in itertools.groupby((i for i in items if start <= i.line < end), key=lambda item: item.kind):
            if kind == "define":
                out.code("\n".join(item.declaration for item in group), "c")
                continue
            for handles, declared in itertools.groupby(group, key=is_handle):
                if handles:
                    out.table(
                        ("Handle", "Meaning"), ((f'<span id="{item.name}">`{item.name}`</span>', item.text) for item in declared)
                    )
                else:
                    for item in declared:
                        c_item(out, item)
    return "\n".join(out.lines)


def is_handle(item: Item) -> bool:
    return item.declaration == f"typedef struct {item.name} {item.name};"


def c_item(out: Writer, item: Item) -> None:
    title = item.name
    if item.kind == "enum":
        common = item.parts[0].name
        for part in item.parts[1:]:
            while not part.name.startswith(common):
                common = common.rpartition("_")[0] if "_" in common else ""
        title = f"{common}_*" if len(item.parts) > 1 else item.parts[0].name
    out.add(f"### `{title}` {{#{item.name if item.kind != 'enum' else title.rstrip('_*')}}}\n")
    if item.kind == "struct":
        out.paragraphs(item.text)
        out.table(("Field", "Meaning"), rows_by_line(item.parts))
    elif item.kind == "enum":
        out.paragraphs(item.text)
        enumeration(out, item)
    else:
        out.code(wrapped(item.declaration + (";" if item.kind == "function" else "")), "c")
        out.paragraphs(item.text)


def cpp_page(reader: Reader, anchors: dict[str, str]) -> str:
    out = Writer(anchors)
    out.add("# C++ interface\n")
    out.add("You can open templates, get kernels and launch them from C++17 or later.\n")
    out.code("#include <kiln/kiln.hpp>", "cpp")
    out.add("Everything is in namespace `kiln`.")
    out.add("The classes are an inline layer over the [C interface](c.md), so a program depends on its symbols alone.")
    out.add("A call that fails throws [`kiln::Error`](#Error), which carries an [`Errc`](#Errc).\n")
    headers = [h.stem for h in HEADERS.glob("*.hpp") if h.stem not in ("kiln", "detail")]
    headers.sort(key=lambda stem: (ORDER.index(stem) if stem in ORDER else len(ORDER), stem))
    for stem in headers:
        header = f"{stem}.hpp"
        intro = re.match(r"((?://[^\n]*\n)+)", (HEADERS / header).read_text())
        text, _, example = uncommented(intro[1] if intro else "").partition("\n\n")
        out.add(f"## `kiln/{header}`\n")
        out.paragraphs(" ".join(text.split()))
        if example:
            out.code("\n".join(line.removeprefix("  ") for line in example.split("\n")), "cpp")
        items = reader.records(header) + reader.free(header)
        items.sort(key=lambda item: item.line)
        for _, overloads in itertools.groupby(items, key=lambda item: (item.kind, item.name)):
            cpp_item(out, list(overloads))
    return "\n".join(out.lines)


def cpp_item(out: Writer, overloads: list[Item]) -> None:
    item = overloads[0]
    out.add(f"### `{item.name}` {{#{item.name.replace('::', '-')}}}\n")
    if item.kind in ("struct", "class"):
        bases = "".join(f" : {base}" for base in item.bases)
        out.code(item.declaration + bases, "cpp")
        out.paragraphs(item.text)
        cpp_members(out, item)
    elif item.kind == "enum":
        out.code(item.declaration, "cpp")
        out.paragraphs(item.text)
        enumeration(out, item)
    else:
        functions(out, overloads)


def functions(out: Writer, overloads: list[Item]) -> None:
    out.code("\n".join(wrapped(o.declaration) + ("" if o.declaration.endswith(";") else ";") for o in overloads), "cpp")
    for text in dict.fromkeys(overload.text for overload in overloads):
        out.paragraphs(text)


def cpp_members(out: Writer, record: Item) -> None:
    def shown(part: Item) -> bool:
        deleted = part.declaration.endswith("=delete") or part.declaration.endswith("= delete")
        moves = part.name == "operator=" or f"({part.name}&&" in part.declaration
        return part.kind != "friend" and not deleted and not moves and not part.name.startswith("~")

    parts = [part for part in record.parts if shown(part)]
    for part in (p for p in parts if p.kind == "enum"):
        out.add(f"#### `{record.name}::{part.name}` {{#{record.name}-{part.name}}}\n")
        out.paragraphs(part.text)
        enumeration(out, part)
    fields = [part for part in parts if part.kind == "variable"]
    if fields:
        out.table(("Field", "Meaning"), rows_by_line(fields))
    methods = [part for part in parts if part.kind == "function"]
    for name, group in itertools.groupby(methods, key=lambda part: part.name):
        out.add(f"#### `{name}` {{#{re.sub(r'[^A-Za-z0-9_-]', '', record.name)}-{re.sub(r'[^A-Za-z0-9_]', '', name) or 'call'}}}\n")
        functions(out, list(group))
    for inner in record.inner:
        cpp_item(out, [inner])
