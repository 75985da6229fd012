"""Reads what Doxygen's XML says about the headers of include/kiln."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path


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
