"""Finds the prose of a source tree: the comments of code, docstrings, and the text of Markdown pages.

`blocks(path)` yields one `Block` for each comment, docstring, paragraph, list item or table cell.
Consecutive `//` or `#` lines are one comment. A comment behind code and the comment lines below it that start in the same
column are one comment, too.
"""

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

C_LIKE = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".rs"}
HASH_COMMENTS = {".sh", ".cmake", ".toml", ".yml", ".yaml", ".conf", ".acl"}
HASH_NAMES = {"CMakeLists.txt", "run"}


@dataclass(frozen=True)
class Block:
    path: Path
    line: int
    text: str  # without comment marks; inline code is kept, code blocks are not
    kind: str  # "comment" or "page"


def is_prose(path: Path) -> bool:
    return path.suffix in C_LIKE | HASH_COMMENTS | {".py", ".pyi", ".md"} or path.name in HASH_NAMES


def blocks(path: Path, text: str | None = None) -> list[Block]:
    text = path.read_text(encoding="utf-8") if text is None else text
    if path.suffix == ".md":
        found = _markdown(text)
    elif path.suffix in C_LIKE:
        found = _join(_c_comments(text, _RUST_CHARACTER if path.suffix == ".rs" else _C_CHARACTER))
    elif path.suffix in {".py", ".pyi"}:
        found = _join(_python_comments(text)) + _docstrings(text)
    else:
        found = _join(_hash_comments(text))
    kind = "page" if path.suffix == ".md" else "comment"
    return [Block(path, line, body, kind) for line, body in found if re.search(r"[A-Za-z]{2}", body)]


@dataclass(frozen=True)
class _Piece:
    line: int
    column: int
    text: str
    alone: bool  # nothing but white space stands before it on its line
    joins: bool  # `//` and `#` comments join those above; /* */ comments are whole


_C_CHARACTER = r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # not the separator of digits
_RUST_CHARACTER = r"'(?:\\[^'\n]+|[^'\\\n])'"  # not the name of a lifetime


def _c_comments(text: str, character: str) -> list[_Piece]:
    """The comments of C, C++, CUDA or Rust, outside of strings and of literals that match `character`."""
    pieces = []
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\ ]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|' + character, re.S)
    for match in pattern.finditer(text):
        start = match.start()
        if match[0][:2] not in ("//", "/*"):
            continue
        line_start = text.rfind("\n", 0, start) + 1
        alone = not text[line_start:start].strip()
        if match[0].startswith("//"):
            body = re.sub(r"^//[/!]?<?", "", match[0])
        else:
            body = "\n".join(re.sub(r"^\s*\* ?", "", row) for row in match[0][2:-2].lstrip("*!").split("\n"))
        pieces.append(_Piece(text.count("\n", 0, start) + 1, start - line_start, body, alone, match[0].startswith("//")))
    return pieces


def _python_comments(text: str) -> list[_Piece]:
    pieces = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            alone = not token.line[: token.start[1]].strip()
            pieces.append(_Piece(token.start[0], token.start[1], token.string.lstrip("#"), alone, True))
    return pieces


def _hash_comments(text: str) -> list[_Piece]:
    """The comments of shell, CMake, TOML or YAML: a `#` at the start of a word, outside of quotes."""
    pieces = []
    for number, row in enumerate(text.split("\n"), 1):
        match = re.match(r"""((?:[^'"#]|"(?:\\.|[^"\\])*"|'[^']*'|(?<=\S)#)*?)(?:(?<=\s)|^)#(?!!)(.*)""", row)
        if match:
            pieces.append(_Piece(number, len(match[1]), match[2], not match[1].strip(), True))
    return pieces


def _join(pieces: list[_Piece]) -> list[tuple[int, str]]:
    found: list[list] = []
    for piece in pieces:
        above = found[-1] if found else None
        if above and piece.joins and piece.alone and above[2] and piece.line == above[1] + 1 and piece.column == above[3]:
            above[1] = piece.line
            above[4].append(piece.text)
        else:
            last = piece.line + piece.text.count("\n")
            found.append([piece.line, last, piece.joins, piece.column, [piece.text]])
    out = []
    for first, _, _, _, rows in found:
        out += _paragraphs("\n".join(rows).split("\n"), first)
    return out


def _docstrings(text: str) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            body = ast.get_docstring(node)
            if body:
                found += _paragraphs(body.split("\n"), node.body[0].lineno)
    return found


def _markdown(text: str) -> list[tuple[int, str]]:
    text = re.sub(r"<!--.*?-->", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    return _paragraphs(text.split("\n"), 1)


_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_NEW_COMMAND = re.compile(r"^\s*[\\@](?:param|return|returns|throws|tparam|brief|note|pre|post|code|endcode)\b(?:\[[a-z,]+\])?")


def _paragraphs(rows: list[str], first: int) -> list[tuple[int, str]]:
    """Splits at empty lines, list items, headings, table cells and Doxygen commands; leaves code blocks out."""
    found: list[tuple[int, str]] = []
    current: list[str] = []
    start = first
    fence = False

    def close() -> None:
        if current:
            found.append((start, " ".join(current)))
        current.clear()

    indent = min((len(row) - len(row.lstrip()) for row in rows[1:] if row.strip()), default=0)
    for offset, row in enumerate(rows):
        bare = row.strip()
        if re.match(r"(```|~~~)", bare) or re.match(r"[\\@](end)?code\b", bare):
            close()
            fence = not fence
        elif fence:
            continue
        elif re.search(r";(\s+//.*)?$|[{}]$", row) and row.startswith("  "):
            close()  # a line of code in an example
        elif not bare or re.fullmatch(r"[-=*_|:. \t]+", bare):
            close()
        elif not current and len(row) - len(row.lstrip()) >= indent + 4 and offset > 0 and not _LIST_ITEM.match(row):
            continue  # an indented code block
        elif bare.startswith("|"):
            close()
            found += [(first + offset, cell.strip()) for cell in re.split(r"(?<!\\)\|", bare.strip("|")) if cell.strip()]
        else:
            if _LIST_ITEM.match(row) or bare.startswith("#") or _NEW_COMMAND.match(row):
                close()
            if not current:
                start = first + offset
            current.append(_NEW_COMMAND.sub("", _LIST_ITEM.sub("", bare)).strip("# "))
            if bare.startswith("#"):
                close()
    close()
    return found
