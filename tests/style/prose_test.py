#!/usr/bin/env python3
"""The prose check on small texts: each rule has a text that breaks it and a text that does not."""

import sys
import unittest
from pathlib import Path

from blocks import blocks
from prose import faults, sentences, words


def found(text: str, name: str = "x.cpp") -> list[str]:
    return [fault for block in blocks(Path(name), text) for fault in faults(block)]


class Rules(unittest.TestCase):
    def test_a_long_sentence_is_a_fault(self):
        self.assertEqual(found("// A " + "word " * 34 + "end.\n"), ["a sentence of 36 words, at most 35 are allowed"])
        self.assertEqual(found("// A " + "word " * 33 + "end.\n"), [])

    def test_a_first_word_without_a_subject_is_a_fault(self):
        for first in ("Of", "Those", "What", "Who", "Whether", "Likewise", "The same"):
            self.assertTrue(found(f"// {first} things in a store.\n"), first)
        self.assertEqual(found("// Offsets of things in a store.\n"), [])
        self.assertEqual(found("What a page may ask?\n", "page.md"), [])

    def test_comments_of_rust_are_read_beside_lifetimes_and_characters(self):
        self.assertTrue(found("fn f<'a>(x: &str) -> X<'a> {} // Those of it's owner.\n", "x.rs"))
        self.assertTrue(found("//! Those things.\nstruct X;\n", "x.rs"))
        self.assertEqual(found("""let x = ['"', '\\'', '/']; let y = "// Those of it";\n""", "x.rs"), [])

    def test_a_phrase_is_a_fault(self):
        for phrase in (
            "what is none",
            "those of",
            "the same for",
            "likewise",
            "anew",
            "so many",
            "in vain",
            "the asker",
            "his key",
        ):
            self.assertTrue(found(f"// It is {phrase} here.\n"), phrase)
        self.assertEqual(found("// It is `those of` here, and this ship has history.\n"), [])


class Extraction(unittest.TestCase):
    def texts(self, text: str, name: str = "x.cpp") -> list[str]:
        return [block.text for block in blocks(Path(name), text)]

    def test_lines_of_a_comment_are_joined(self):
        self.assertEqual(self.texts("// One\n// two.\nint x;\n// Three.\n"), ["One two.", "Three."])
        self.assertEqual(self.texts("int a;   // one\n         // two\n// Three.\n"), ["one two", "Three."])

    def test_strings_are_no_comments(self):
        self.assertEqual(self.texts('auto a = "// no"; auto b = R"(// no)"; char c = \'"\'; // yes\n'), ["yes"])
        self.assertEqual(self.texts("x = '# no'  # yes\n", "x.py"), ["yes"])
        self.assertEqual(self.texts("echo '# no' \"# no\" ${#no} # yes\n", "x.sh"), ["yes"])

    def test_code_of_pages_and_comments_is_left_out(self):
        self.assertEqual(self.texts("Text.\n```\nlikewise\n```\n| cell | other |\n", "x.md"), ["Text.", "cell", "other"])
        self.assertEqual(self.texts("// Example:\n//   kiln::Service service;\n// Text.\n"), ["Example:", "Text."])

    def test_docstrings_are_prose(self):
        self.assertEqual(self.texts('def f():\n    """Does it.\n\n    Then more.\n    """\n', "x.py"), ["Does it.", "Then more."])

    def test_sentences(self):
        self.assertEqual(
            sentences("It is 1.5 ms, e.g. in `a. b`. Then x.y is done!"), ["It is 1\x005 ms, eg in CODE.", "Then x\x00y is done!"]
        )
        self.assertEqual(words("a - b (c) = `d`"), 4)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
