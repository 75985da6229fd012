"""Writes texts and declarations of headers as Markdown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from doxygen_xml import Item


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
