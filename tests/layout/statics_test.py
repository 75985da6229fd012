#!/usr/bin/env python3
"""statics.py on small libraries: the statics that it finds, and the ones that it lets pass."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "statics.py"


class Statics(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "fixture.so"
            subprocess.run(["c++", "-shared", "-fPIC", "-xc++", "-", "-o", library], input=text, text=True, check=True)
            done = subprocess.run([sys.executable, SCRIPT, library], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_statics_that_are_made_at_run_time_are_found(self):
        made = "int make(); int {name}() {{ static int value = make(); return value; }}"
        for text in (
            made.format(name="plain"),
            "namespace kiln { " + made.format(name="inside") + " }",
            "namespace { " + made.format(name="hidden") + " } int user() { return hidden(); }",
            'extern "C" { ' + made.format(name="kiln_thing") + " }",
        ):
            status, words = self.check(text)
            self.assertEqual(status, 1, text + words)
            self.assertIn("base::ProcessWide", words)

    def test_constants_pass(self):
        status, words = self.check("int plain() { static const int value = 3; static int counter = 0; return value + ++counter; }")
        self.assertEqual(status, 0, words)


if __name__ == "__main__":
    unittest.main()
