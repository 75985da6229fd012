#!/usr/bin/env python3
"""Checks that each bold term of docs/glossary.md occurs in the product's code or in another page."""

import pathlib
import re
import sys

from tracked import tracked_files

GLOSSARY = "docs/glossary.md"
SEARCHED = ("src", "cache", "tools", "include", "templates", "python", "docs", "README.md")


def main() -> int:
    paths = [pathlib.Path(name) for name in tracked_files(*SEARCHED) if name != GLOSSARY]
    texts = []
    for path in paths:
        if path.suffix not in {".png", ".svg"}:
            texts.append(path.read_text(encoding="utf-8"))
    # Identifiers spell a term of two words with an underscore, or as CamelCase.
    everything = re.sub(r"[\s_-]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "\n".join(texts))).lower()
    terms = re.findall(r"\*\*(.+?)\*\*", pathlib.Path(GLOSSARY).read_text(encoding="utf-8"))
    unused = [term for term in terms if re.sub(r"[\s_-]+", " ", term.strip("`")).lower() not in everything]
    for term in unused:
        print(f'{GLOSSARY}: the term "{term}" occurs neither in the code nor in another page')
    if not terms:
        print(f"{GLOSSARY} has no bold term")
    return 1 if unused or not terms else 0


if __name__ == "__main__":
    sys.exit(main())
