#!/usr/bin/env python3
"""Checks the pages of a built site: each has a title, links within the site lead somewhere, and nothing is fetched from elsewhere.

site_check.py DIRECTORY
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"img": "src", "script": "src", "source": "srcset", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.ids, self.links, self.fetched = "", set[str](), list[str](), list[str]()
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self._in_title |= tag == "title" and not self.title
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag in FETCHED and FETCHED[tag] in values and values.get("rel") != "canonical":
            self.fetched.append(values[FETCHED[tag]])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    def handle_endtag(self, tag: str) -> None:
        self._in_title &= tag != "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    faults = []
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links are absolute: the server shows it under any address
        name = file.relative_to(site)
        if not page.title.strip():
            faults.append(f"{name}: no title")
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    faults.append(f"{name}: fetches {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                faults.append(f"{name}: {link} does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                faults.append(f"{name}: {link} has no such place")
    for file in site.rglob("*.css"):
        for url in re.findall(r"url\(\s*[\"']?(https?:[^)\"']+)|@import\s+[\"'](https?:[^\"']+)", file.read_text()):
            faults.append(f"{file.relative_to(site)}: fetches {''.join(url)}")
    print("\n".join([*faults, f"{len(pages)} pages, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
