#!/usr/bin/env python3
"""members.py on small files: the members that it counts, and the classes that it refuses."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "members.py"


def fields(count):
    return " ".join(f"int field{n};" for n in range(count))


def functions(count):
    return " ".join(f"void function{n}() {{}}" for n in range(count))


class Members(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "fixture.cpp"
            file.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, "--file", file], capture_output=True, text=True)
        if done.returncode == 77:
            print(done.stdout)
            sys.stdout.flush()
            os._exit(77)
        return done.returncode, done.stdout + done.stderr

    def passes(self, text):
        status, words = self.check(text)
        self.assertEqual(status, 0, words)

    def refuses(self, text, expected):
        status, words = self.check(text)
        self.assertEqual(status, 1, words)
        self.assertRegex(words, expected)

    def test_thirty_one_members_are_refused_and_thirty_are_not(self):
        text = "namespace a {{\nclass Large {{ public: Large(); ~Large(); {} private: {} }};\n}}"
        self.passes(text.format(functions(14), fields(14)))
        self.refuses(text.format(functions(14), fields(15)), r"fixture\.cpp:2: a::Large has 31 members, more than 30")

    def test_functions_templates_operators_and_static_data_are_members(self):
        one_of_each = "static int shared; template <class T> void apply(T); operator bool() const; bool operator==(const Large&) const; Large(const Large&) = delete;"
        self.passes(f"class Large {{ {one_of_each} {fields(25)} }};")
        self.refuses(f"class Large {{ {one_of_each} {fields(26)} }};", "Large has 31 members")

    def test_members_of_an_anonymous_union_are_its_class_s(self):
        self.refuses(f"class Large {{ {fields(29)} union {{ int a; float b; }}; }};", "Large has 31 members")

    def test_what_else_a_class_says_is_no_member(self):
        self.passes(
            f"struct Base {{ {functions(20)} }}; class Large : Base {{ using Base::function1; using Int = int; enum {{ a, b }}; friend class Other; "
            f"friend void look(Large&); struct Nested {{ {fields(20)} }}; static_assert(true); {fields(30)} }};"
        )

    def test_plain_data_may_have_more(self):
        constructors = "Facts(); Facts(int); bool operator==(const Facts&) const = default;"
        self.passes(f"struct Facts {{ {fields(60)} {constructors} }};")
        self.refuses(f"struct Facts {{ {fields(60)} void function(); }};", "Facts has 61 members")
        self.refuses(f"struct Facts {{ {fields(60)} static Facts* get(); }};", "Facts has 61 members")
        self.refuses(f"struct Facts {{ {fields(60)} private: int hidden; }};", "Facts has 61 members")
        self.refuses(f"struct Interface {{ {functions(31)} }};", "Interface has 31 members")

    def test_classes_in_unnamed_namespaces_in_classes_and_of_templates_are_seen(self):
        self.refuses(f"namespace a {{ namespace {{ class Large {{ {fields(31)} }}; }} }}", "a::.*Large has 31 members")
        self.refuses(f"class Outer {{ class Large {{ {fields(31)} }}; }};", "Outer::Large has 31 members")
        self.refuses(f"template <class T> class Large {{ {fields(31)} }};", "Large has 31 members")
        self.refuses(f"class Outer {{ class Large; }};\nclass Outer::Large {{ {fields(31)} }};", ":2: Outer::Large has 31 members")
        self.refuses(f'extern "C" {{ class Large {{ {fields(31)} }}; }}', "Large has 31 members")

    def test_a_file_that_cannot_be_parsed_is_no_success(self):
        status, words = self.check("struct Broken { Missing field; };")
        self.assertEqual(status, 2, words)
        self.assertIn("Missing", words)


if __name__ == "__main__":
    unittest.main()
