#!/usr/bin/env python3
"""Fails when a class of the product has more than 30 members, counted in clang's AST.

    members.py BUILD      every class of src, cache, include and tools, compiled as BUILD/compile_commands.json says
    members.py --file F   the classes of one file alone, which includes nothing
    --list N              names also the N largest classes
    --night               does nothing (77) unless KILN_TEST_NIGHTLY is set: half a minute is too long for CI

The count has a class's own members, public and private: functions, constructors, destructors, templates of
functions, fields, static data. It leaves out nested types, friends, using-declarations, members of a base,
and implicit members. Plain data may have more members. In plain data all fields are public, and all functions
are constructors or operators. A class inside the body of a function is not seen, since bodies are not parsed.

Exits with 0 when no class is larger, with 1 when one is, with 2 when a file cannot be parsed, and with 77 without libclang.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import sys
import tempfile

DEBIAN = "/usr/lib/python3/dist-packages"  # has python3-clang-14; only Debian's python3 looks there
sys.path.append(DEBIAN)
try:
    from clang import cindex
    from clang.cindex import CursorKind as Kind

    INDEX = cindex.Index.create(excludeDecls=True)
except Exception as error:  # ImportError, or LibclangError of the module itself
    print(f"skipped: the package python3-clang-14 is not installed ({error})")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("src", "cache", "include", "tools")
MOST = 30

FUNCTIONS = {Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION, Kind.FUNCTION_TEMPLATE}
CLASSES = {Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.UNION_DECL, Kind.CLASS_TEMPLATE, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
SCOPES = {Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL}  # the last two: extern "C", by version of libclang

Class = collections.namedtuple("Class", "name members plain file line")


class Refused(Exception):
    pass


def members_of(cursor):
    """The members of a class. Members of an anonymous struct or union inside the class count as its own."""
    for child in cursor.get_children():
        if child.kind in FUNCTIONS or child.kind in (Kind.FIELD_DECL, Kind.VAR_DECL):
            yield child
        elif child.kind in CLASSES and cindex.conf.lib.clang_Cursor_isAnonymousRecordDecl(child):
            yield from members_of(child)


def is_plain(members):
    fields = [m for m in members if m.kind == Kind.FIELD_DECL]
    functions = [m for m in members if m.kind in FUNCTIONS and m.kind != Kind.CONSTRUCTOR]
    return (
        bool(fields)
        and all(f.access_specifier == cindex.AccessSpecifier.PUBLIC for f in fields)
        and all(f.spelling.startswith("operator") for f in functions)
    )


def name_of(cursor):
    words = []
    while cursor is not None and cursor.kind != Kind.TRANSLATION_UNIT:
        if cursor.kind not in (Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL):
            words.append(cursor.spelling or "(anonymous)")
        cursor = cursor.semantic_parent
    return "::".join(reversed(words))


def classes_in(cursor, wanted):
    for child in cursor.get_children():
        file = child.location.file
        if file is None or not wanted(file.name):
            continue
        if child.kind in SCOPES:
            yield from classes_in(child, wanted)
        elif child.kind in CLASSES and child.is_definition():
            members = list(members_of(child))
            yield Class(name_of(child), len(members), is_plain(members), file.name, child.location.line)
            yield from classes_in(child, wanted)


def parse(includes, arguments):
    """A unit that includes these files in this order, and the list of its errors."""
    options = cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES | cindex.TranslationUnit.PARSE_INCOMPLETE
    text = "".join(f'#include "{file}"\n' for file in includes)
    unit = INDEX.parse("kiln_members.cpp", arguments, unsaved_files=[("kiln_members.cpp", text)], options=options)
    return unit, [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]


def must_parse(includes, arguments):
    unit, errors = parse(includes, arguments)
    if errors:
        raise Refused("\n".join(errors))
    return unit


def flags_of(build):
    """The product's compiler flags that parsing needs: the standard, definitions, and folders of headers."""
    flags = []
    for command in json.loads((build / "compile_commands.json").read_text()):
        words = command.get("arguments") or shlex.split(command["command"])
        if words[words.index("-o") + 1].startswith(("tests/", "python/")):
            continue
        for at, word in enumerate(words):
            found = [word, words[at + 1]] if word == "-isystem" else [word] if word.startswith(("-I", "-D", "-std=")) else []
            if found and found not in flags:
                flags.append(found)
    return [word for found in flags for word in found]


def product_classes(build):
    """All headers are parsed in one unit, so no two of them may define the same name.

    Sources are parsed on top of the headers, one folder at a time. Where two sources of a folder clash,
    they are parsed one by one.
    """
    flags = flags_of(build)
    wanted = tuple(f"{ROOT / top}/" for top in PRODUCT)
    files = sorted(f for top in PRODUCT for f in (ROOT / top).rglob("*.[ch]*") if f.suffix in (".h", ".hpp", ".cpp"))
    # Public headers are parsed apart: the C++ interface defines names that internal headers define, too.
    public = [f for f in files if ROOT / "include" in f.parents]
    headers = [f for f in files if f.suffix == ".hpp" and f not in public]
    folders = collections.defaultdict(list)
    for file in files:
        if file.suffix == ".cpp":
            folders[file.parent].append(file)
    if len(headers) < 100 or len(folders) < 30:
        raise Refused(f"{ROOT} has {len(headers)} headers, and sources in {len(folders)} folders: not the product")

    units = [must_parse(public, ["-x", "c++", *flags])]
    with tempfile.TemporaryDirectory() as scratch:
        parsed = f"{scratch}/headers.pch"
        units.append(must_parse(headers, ["-x", "c++-header", *flags]))
        units[-1].save(parsed)
        over = ["-x", "c++", *flags, "-include-pch", parsed]
        for sources in folders.values():
            unit, errors = parse(sources, over)
            units += [must_parse([file], over) for file in sources] if errors else [unit]
        found = {(c.file, c.line, c.name): c for unit in units for c in classes_in(unit.cursor, lambda f: f.startswith(wanted))}
    return list(found.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--list", type=int, default=0)
    parser.add_argument("--night", action="store_true")
    given = parser.parse_args()
    if given.night and not os.environ.get("KILN_TEST_NIGHTLY"):
        print("only at night: KILN_TEST_NIGHTLY is not set")
        return 77
    if (given.build is None) == (given.file is None):
        parser.error("expected a build directory or --file")
    try:
        if given.file:
            unit = must_parse([given.file.resolve()], ["-x", "c++", "-std=c++20"])
            found = list(classes_in(unit.cursor, lambda f: True))
        else:
            found = product_classes(given.build)
    except Refused as refused:
        print(f"cannot count members:\n{refused}")
        return 2
    found.sort(key=lambda c: (-c.members, c.name))
    for c in found[: given.list]:
        print(f"{c.members:4} {c.name}{' (plain data)' if c.plain else ''} {c.file}:{c.line}")
    too_large = [c for c in found if c.members > MOST and not c.plain]
    for c in too_large:
        print(f"{c.file}:{c.line}: {c.name} has {c.members} members, more than {MOST}")
    print(f"{len(found)} classes")
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
