#!/usr/bin/env python3
"""Makes the pages of the C and the C++ interface from include/kiln, by way of Doxygen's XML.

    generate.py [DIRECTORY]   writes c.md and cpp.md into DIRECTORY (default: build/reference)

docs/hooks.py puts the same two pages into the site. They are not committed, so they cannot differ from the headers.
Doxygen calls this script as its input filter (generate.py --filter FILE), which makes it take comments as plain text.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include" / "kiln"

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


# ---- input filter: comments that Doxygen reads as documentation


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


# ---- reading Doxygen's XML


@dataclass
class Item:
    """One declaration: a function, a type, an enumeration or a field."""

    kind: str
    name: str
    line: int
    declaration: str = ""
    text: str = ""
    bases: list[str] = field(default_factory=list)
    parts: list[Item] = field(default_factory=list)
    inner: list[Item] = field(default_factory=list)


def flat(element: ET.Element | None) -> str:
    return "" if element is None else re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def prose(element: ET.Element | None) -> str:
    """Paragraphs and lists of a description, as text with blank lines."""
    if element is None:
        return ""
    out: list[str] = []

    def walk(node: ET.Element, lead: str) -> None:
        words = [node.text or ""]

        def close() -> None:
            text = re.sub(r"\s+", " ", "".join(words)).strip()
            if text:
                out.append(lead + text)
            words.clear()

        for child in node:
            if child.tag in ("para", "itemizedlist", "orderedlist", "listitem"):
                close()
                walk(child, "- " if child.tag == "listitem" else lead)
            elif child.tag == "verbatim":
                close()
                out.append("\n".join(re.sub(r"^\s*\* ", "", row) for row in (child.text or "").split("\n")).strip())
            else:
                words.append("".join(child.itertext()))
            words.append(child.tail or "")
        close()

    walk(element, "")
    # Doxygen leaves the escapes of `escaped` where they stand in quotes.
    return re.sub(r"\\([\\@<>#%&]|--+)", r"\1", "\n\n".join(out))


def tidy(code: str) -> str:
    """C++ as kiln writes it: `T& x`, `T* x`."""
    code = re.sub(r"\s+", " ", code)
    code = re.sub(r" ([&*]+)\s?", r"\1 ", code)
    code = re.sub(r"([&*]) (?=[,)\.>])", r"\1", code)
    code = re.sub(r"\(\s*", "(", code)
    code = re.sub(r"(?<=[\w&)*>])=(?=[\w{])", " = ", code)
    return code.replace("< ", "<").replace(" >", ">").replace("(* ", "(*").replace(">&&", "> &&").strip()


def described(node: ET.Element) -> str:
    return "\n\n".join(filter(None, (prose(node.find(tag)) for tag in ("briefdescription", "detaileddescription"))))


def line_of(node: ET.Element) -> int:
    where = node.find("location")
    return int(where.get("line", "0")) if where is not None else 0


def template_head(node: ET.Element) -> str:
    parameters = node.find("templateparamlist")
    if parameters is None:
        return ""
    words = []
    for parameter in parameters:
        default = flat(parameter.find("defval"))
        word = " ".join(filter(None, (flat(parameter.find("type")), flat(parameter.find("declname")))))
        words.append(word + (f" = {default}" if default else ""))
    return f"template <{tidy(', '.join(words))}>\n"


def member(node: ET.Element) -> Item:
    kind, name = node.get("kind", ""), flat(node.find("name"))
    item = Item(kind, name, line_of(node), text=described(node))
    type_text, arguments = flat(node.find("type")), flat(node.find("argsstring"))
    if kind == "enum":
        strong = "class " if node.get("strong") == "yes" else ""
        base = f" : {type_text}" if type_text else ""
        item.declaration = f"enum {strong}{name}{base}"
        for value in node.findall("enumvalue"):
            text = flat(value.find("name")) + " " + flat(value.find("initializer"))
            item.parts.append(Item("value", text.split()[0], line_of(value) or item.line, text.strip(), described(value)))
    elif kind == "define":
        item.declaration = f"#define {name} {flat(node.find('initializer'))}"
    elif kind == "typedef":
        alias = flat(node.find("definition")).startswith("using")
        item.declaration = (
            f"using {name} = {type_text.removeprefix('typedef ')};"
            if alias
            else tidy(f"typedef {type_text} {name}{arguments}") + ";"
        )
    else:
        default = flat(node.find("initializer")) if kind == "variable" else ""
        head = "static " * (node.get("static") == "yes") + "explicit " * (node.get("explicit") == "yes")
        item.declaration = template_head(node) + tidy(f"{head}{type_text} {name}{arguments}") + (f" {default}" if default else "")
    return item


def members(compound: ET.Element) -> list[Item]:
    wanted = [m for m in compound.iter("memberdef") if m.get("prot") in (None, "public")]
    return sorted((member(m) for m in wanted), key=lambda item: item.line)


def unqualified(name: str) -> str:
    return re.sub(r"\bkiln::(?:v1::)?", "", name)


class Reader:
    """Everything that Doxygen says about the headers."""

    def __init__(self, xml: Path) -> None:
        self.compounds: dict[str, ET.Element] = {}
        for file in xml.glob("*.xml"):
            for compound in ET.parse(file).getroot().findall("compounddef"):
                self.compounds[compound.get("id", "")] = compound

    def records(self, header: str) -> list[Item]:
        """Structs and classes of a header, those within others as parts of these."""
        found: dict[str, Item] = {}
        for compound in self.compounds.values():
            where = compound.find("location")
            if compound.get("kind") not in ("struct", "class") or where is None or Path(where.get("file", "")).name != header:
                continue
            name = unqualified(flat(compound.find("compoundname")))
            item = Item(compound.get("kind", ""), name, line_of(compound), text=described(compound), parts=members(compound))
            item.declaration = template_head(compound) + f"{item.kind} {name}"
            item.bases = [unqualified(flat(base)) for base in compound.findall("basecompoundref") if base.get("prot") == "public"]
            found[name] = item
        for name in [n for n in found if "::" in n]:
            outer = name.rpartition("::")[0]
            if outer in found:
                found[outer].inner.append(found.pop(name))
        return sorted(found.values(), key=lambda item: item.line)

    def free(self, header: str) -> list[Item]:
        """Functions, types and macros of a header that are no members, each once."""
        found: dict[tuple[str, int], Item] = {}
        for compound in self.compounds.values():
            if compound.get("kind") not in ("file", "namespace"):
                continue
            for node in compound.iter("memberdef"):
                where = node.find("location")
                if where is not None and Path(where.get("file", "")).name == header:
                    item = member(node)
                    found[item.name, item.line] = item
        return sorted(found.values(), key=lambda item: item.line)


# ---- writing Markdown


class Writer:
    def __init__(self, anchors: dict[str, str]) -> None:
        self.anchors = anchors  # name in the C interface -> link
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        self.lines.append(text)

    def inline(self, text: str) -> str:
        """Plain text as Markdown. Identifiers are set as code, and names of the C interface become links."""

        def word(match: re.Match[str]) -> str:
            name = match[0]
            if name in self.anchors:
                return f"[`{name}`]({self.anchors[name]})"
            return f"`{name}`"

        def plain(piece: str) -> str:
            pattern = r"\[\[?\w+\]\]?|\b(?:kiln|KILN)_[\w*]+(?:\(\))?|\bcu[A-Z]\w+|\bCU(?!DA\b)\w+\b|__\w+__|\b[A-Za-z]\w*(?:::\w+)+(?:\(\))?|\b\w+_\w+(?:\(\))?"
            out, at = [], 0
            for match in re.finditer(pattern, piece):
                out += [markdown_escaped(piece[at : match.start()]), word(match)]
                at = match.end()
            return "".join(out) + markdown_escaped(piece[at:])

        pieces = re.split(r"(`[^`]*`|\"[^\"]*\")", text)
        return "".join(
            plain(p) if i % 2 == 0 else p if p[0] == "`" else f'"{markdown_escaped(p[1:-1])}"' for i, p in enumerate(pieces)
        )

    def paragraphs(self, text: str) -> None:
        for part in filter(None, text.split("\n\n")):
            if part.startswith("|"):
                self.add("\n".join("|".join(self.inline(cell) for cell in row.split("|")) for row in part.split("\n")) + "\n")
                continue
            lead = re.match(r"(?:- |\d+\. )?", part)[0]
            self.add(lead + self.inline(part[len(lead) :]) + "\n")

    def code(self, text: str, language: str) -> None:
        self.add(f"```{language}\n{text}\n```\n")

    def table(self, head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
        rows = list(rows)
        self.add(f"| {head[0]} | {head[1]} |\n|---|---|")
        for left, right in rows:
            self.add(f"| {left} | {self.inline(' '.join(right.split())).replace('|', chr(92) + '|')} |")
        self.add("")


def markdown_escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def wrapped(declaration: str, width: int = 92) -> str:
    """A declaration on lines that fit a page: parameters below each other when they do not fit in one line."""
    head, _, last = declaration.rpartition("\n")
    if len(last) > width and "(" in last:
        before, _, rest = last.partition("(")
        inside, _, after = rest.rpartition(")")
        depth, parts, start = 0, [], 0
        for i, c in enumerate(inside):
            depth += (c in "(<{[") - (c in ")>}]")
            if c == "," and depth == 0:
                parts.append(inside[start:i].strip())
                start = i + 1
        parts.append(inside[start:].strip())
        last = before + "(\n    " + ",\n    ".join(parts) + ")" + after
    return (head + "\n" if head else "") + last


def rows_by_line(items: Iterable[Item]) -> Iterator[tuple[str, str]]:
    """Fields that are declared together stand in one row."""
    for _, group in itertools.groupby(items, key=lambda item: item.line):
        together = list(group)
        texts = list(dict.fromkeys(filter(None, (item.text for item in together))))
        yield "<br>".join(f"`{item.declaration}`" for item in together), " ".join(texts)


def enumeration(out: Writer, item: Item) -> None:
    out.table(("Value", "Meaning"), ((f"`{part.declaration}`", part.text) for part in item.parts))


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
