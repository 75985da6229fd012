"""MkDocs hook: pages that are not files of docs/, and links that the site would not resolve.

- reference/c.md and reference/cpp.md are made from the headers (reference/generate.py).
- contributing.md and changelog.md are CONTRIBUTING.md and CHANGELOG.md of the repository.
- A link to a header of include/kiln leads to its reference. A link to another file or directory of the repository leads to a page
  below source/ that shows the file.

The pages of docs/ are written for GitHub's Markdown. `for_python_markdown` changes the two things in which MkDocs differs.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
# Files of the repository that the site shows in another way.
OTHER_PAGES = {
    "README.md": "index.md",
    "include/kiln": "reference/cpp.md",
    "include/kiln/kiln.h": "reference/c.md",
    "python/kiln": "reference/python.md",
}
LANGUAGES = {
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".h": "c",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".py": "python",
    ".rs": "rust",
    ".sh": "bash",
    ".toml": "toml",
    ".json": "json",
    ".cmake": "cmake",
    ".txt": "text",
}

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^\s*(```+|~~~+)")


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Applies `change` to what does not stand in a fenced block."""
    out, prose, fence = [], [], ""

    def flush() -> None:
        if prose:
            out.append(change("\n".join(prose)))
            prose.clear()

    for line in markdown.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            out.append(line)
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
        elif mark:
            flush()
            fence = mark[1]
            out.append(line)
        else:
            prose.append(line)
    flush()
    return "\n".join(out)


def generated_references(build: Path) -> dict[str, str]:
    sys.path.insert(0, str(ROOT / "docs/reference"))
    from generate import pages

    return {f"reference/{name}": text for name, text in pages(build).items()}


def repository_path(page: str) -> str:
    """Where the text of a page of the site stands in the repository. Links in the text are relative to that."""
    for name, target in ROOT_PAGES.items():
        if page == target:
            return name
    if page.startswith("source/"):
        target = page.removeprefix("source/").removesuffix(".md")
        return f"{target}/README.md" if (ROOT / target).is_dir() else target
    return f"docs/{page}"


def site_path(target: str) -> str | None:
    """The page or file of the site that shows a file of the repository; None when it has to be made."""
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target in OTHER_PAGES:
        return OTHER_PAGES[target]
    if re.fullmatch(r"include/kiln/\w+\.hpp", target):
        return OTHER_PAGES["include/kiln"]
    if target.startswith("docs/") and not (ROOT / target).is_dir():
        return target.removeprefix("docs/")
    return None


def source_page(target: str) -> str:
    return f"source/{target.rstrip('/')}.md"


def links_of(page: str, markdown: str) -> list[str]:
    """Files and directories of the repository that a page links to."""
    found: list[str] = []

    def take(prose: str) -> str:
        for match in _LINK.finditer(prose):
            if not re.match(r"[a-z+]+:", match[2]):
                found.append(posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2])))
        return prose

    outside_code(markdown, take)
    return found


def source_text(target: str) -> str:
    """The page of a file or of a directory of the repository."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if not p.name.startswith((".", "__")))
        readme = path / "README.md"
        head = readme.read_text() if readme.is_file() else f"# {target}\n\nThis directory of the repository has these files."
        return f"{head}\n\n" + "\n".join(f"- [{name}]({name.rstrip('/')})" for name in names if name != "README.md") + "\n"
    if path.suffix == ".md":
        return path.read_text()
    text = path.read_text(errors="replace")
    fence = "`" * max(3, 1 + max((len(m) for m in re.findall(r"`+", text)), default=0))
    return f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = generated_references(ROOT / "build")
    made |= {target: (ROOT / name).read_text() for name, target in ROOT_PAGES.items() if (ROOT / name).is_file()}
    texts = {file.src_uri: file.content_string for file in files if file.is_documentation_page()} | made
    while texts:
        page, text = texts.popitem()
        for target in links_of(repository_path(page), text):
            exists = not target.startswith("..") and (ROOT / target).exists()
            place = source_page(target)
            if exists and site_path(target) is None and place not in made:
                made[place] = texts[place] = source_text(target)
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    origin = posixpath.dirname(repository_path(here))

    def link(match: re.Match[str]) -> str:
        if re.match(r"[a-z+]+:", match[2]):
            return match[0]
        target = posixpath.normpath(posixpath.join(origin, match[2]))
        if target.startswith("..") or not (ROOT / target).exists():
            return match[0]
        place = site_path(target) or source_page(target)
        return match[1] + posixpath.relpath(place, posixpath.dirname(here) or ".") + match[3]

    return for_python_markdown(outside_code(markdown, lambda prose: _LINK.sub(link, prose)))


_ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])(\s+)(?=\S)")


def for_python_markdown(markdown: str) -> str:
    """Python-Markdown wants an empty line before a list, and four columns of indentation for what belongs to an item."""
    out: list[str] = []
    levels: list[int] = []  # columns at which the text of the open items begins, outermost first
    fence, in_list = "", False
    for line in markdown.split("\n"):
        if not line.strip():
            out.append(line)
            continue
        mark = _FENCE.match(line)
        indent = len(line) - len(line.lstrip())
        follows_blank = not out or not out[-1].strip()
        item = None if fence or (indent >= 4 and not levels) else _ITEM.match(line)
        if item:
            while levels and indent < levels[-1]:
                levels.pop()
            if not in_list and not follows_blank:
                out.append("")
            out.append("    " * len(levels) + f"{item[2]} {line[item.end() :]}")
            levels.append(item.end())
        else:
            ends = follows_blank or mark or line.startswith(("#", "|", ">"))
            while not fence and ends and levels and indent < levels[-1]:
                levels.pop()
            if levels and mark and not fence and not follows_blank:
                out.append("")
            own = " " * max(0, indent - levels[-1]) if levels else ""
            out.append("    " * len(levels) + own + line.lstrip() if levels else line)
        in_list = bool(levels)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
    return "\n".join(out)
