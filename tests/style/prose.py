#!/usr/bin/env python3
"""Checks that comments and pages are plain sentences (CONTRIBUTING.md, "How to write").

    prose.py                   names each place that breaks a rule; exits 1 when there is one
    prose.py --statistics      words in a sentence: median and 90th percentile of headers, code and pages
    prose.py --sample N --seed S   prints N comments that were drawn at random

PATHS narrow all three. Without PATHS it reads every file that git tracks. It runs in the root of the source tree.
"""

import argparse
import random
import re
import statistics
import sys
from pathlib import Path

from blocks import Block, blocks, is_prose
from tracked import tracked_files

LONGEST_SENTENCE = 35

# A comment that starts so has no subject, or has a clause for one.
FIRST_WORDS = re.compile(r"(?:Of|Those|What|Who|Whether|Likewise|The same)\b")

# Each of these hides what it speaks of, or is no word of the field.
PHRASES = re.compile(
    r"\b(?:what is none|those of|the same for|likewise|anew|so many|in vain|askers?|his|her|whoever|he who)\b", re.IGNORECASE
)

# (path, start of the comment) of places that may break a rule. It is empty, and stays so.
ALLOWED: frozenset[tuple[str, str]] = frozenset()

# Nothing in these was written by hand for a reader of kiln: licences, generated pages, text that tests feed to kiln.
LEFT_OUT = re.compile(r"^(?:LICENSE|tests/fixtures/|tests/style/.*_test\.py|docs/reference/templates\.md)")

_CODE = re.compile(r"``.+?``|`[^`]*`|\[[^\]]*\]\([^)]*\)|https?://\S+")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|Fig|No)\.", re.IGNORECASE)


def sentences(text: str) -> list[str]:
    """Splits at full stops, question and exclamation marks. Inline code and links count as their own words."""

    def keep(match: re.Match) -> str:
        link = re.match(r"\[([^\]]*)\]", match[0])
        return link[1].replace(".", "\0") if link else "CODE"

    text = _ABBREVIATIONS.sub(lambda m: m[0].replace(".", ""), _CODE.sub(keep, text))
    text = re.sub(r"(?<=\w)\.(?=\w)", "\0", text)
    return [part.strip() for part in re.split(r"(?<=[.!?])[\"')*_]*\s+", text) if part.strip()]


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z0-9]", word))


def faults(block: Block) -> list[str]:
    out = []
    for sentence in sentences(block.text):
        count = words(sentence)
        if count > LONGEST_SENTENCE:
            out.append(f"a sentence of {count} words, at most {LONGEST_SENTENCE} are allowed")
    plain = _CODE.sub(" ", block.text).strip("*_ ")
    first = FIRST_WORDS.match(plain)
    if first and block.kind == "comment":
        out.append(f'starts with "{first[0]}": name the thing instead')
    out += [f'the phrase "{match[0]}": name the thing instead' for match in PHRASES.finditer(plain)]
    return out


def read(paths: list[Path]) -> list[Block]:
    wanted = []
    for path in paths:
        wanted += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [
        block
        for path in wanted
        if is_prose(path) and not path.is_symlink() and path.is_file() and not LEFT_OUT.match(path.as_posix())
        for block in blocks(path)
    ]


def group(block: Block) -> str:
    if block.kind == "page":
        return "pages"
    return "headers" if block.path.suffix in {".h", ".hpp", ".cuh"} else "code"


def print_statistics(found: list[Block]) -> None:
    for name in ("headers", "code", "pages"):
        lengths = [words(s) for block in found if group(block) == name for s in sentences(block.text) if words(s) > 2]
        if len(lengths) > 1:
            tenths = statistics.quantiles(lengths, n=10)
            print(
                f"{name:8} sentences {len(lengths):6}  median {statistics.median(lengths):4.0f}  90th percentile {tenths[8]:4.0f}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that comments and pages are plain sentences.")
    parser.add_argument("--statistics", action="store_true", help="print how long the sentences are")
    parser.add_argument("--sample", type=int, metavar="N", help="print N comments that were drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    found = read(options.paths or [Path(name) for name in tracked_files()])
    if options.statistics:
        print_statistics(found)
        return 0
    if options.sample:
        comments = [block for block in found if block.kind == "comment"]
        for block in random.Random(options.seed).sample(comments, options.sample):
            print(f"{block.path}:{block.line}: {block.text}")
        return 0
    count = 0
    for block in found:
        if (block.path.as_posix(), block.text[:40]) in ALLOWED:
            continue
        for fault in faults(block):
            count += 1
            print(f"{block.path}:{block.line}: {fault}\n    {' '.join(block.text.split())[:160]}")
    print(f"{count} faults in {len(found)} comments and paragraphs")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
