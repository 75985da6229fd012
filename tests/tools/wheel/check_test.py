#!/usr/bin/env python3
"""tools/wheel/check.py on small wheels: the breaches that it names."""

import pathlib
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools" / "wheel"))
import check

FILES = (
    "kiln/_kiln.abi3.so",
    "kiln/__main__.py",
    "kiln/bin/kiln",
    "kiln/lib/libkiln.so.0",
    "kiln/lib/libkiln_tvm_ffi.so",
    "kiln/lib/pkgconfig/kiln.pc",
    "kiln/lib/cmake/kiln/kilnConfig.cmake",
    "kiln/lib/cmake/kiln/kiln-shared.cmake",
    "kiln/lib/cmake/kiln/kiln-headers.cmake",
    "kiln/libexec/kiln/kiln-worker",
    "kiln/include/kiln/kiln.h",
    "kiln/share/kiln/templates/norm/rms_norm.cu",
    "kiln-0.2.0.data/data/share/bash-completion/completions/kiln",
    "kiln-0.2.0.data/data/share/man/man1/kiln.1",
    "kiln-0.2.0.dist-info/entry_points.txt",
    *(
        f"kiln-0.2.0.dist-info/licenses/{name}"
        for name in ("LICENSE", "lmdb.txt", "libsodium.txt", "libfmt-dev.txt", "libcxx.txt", "nanobind.txt", "robin-map.txt")
    ),
)
GOOD_NAME = "kiln-0.2.0-cp312-abi3-manylinux_2_28_x86_64.whl"


class WheelCheck(unittest.TestCase):
    def breaches(self, name=GOOD_NAME, files=FILES, content=b"Libs: -L${libdir} -l:libkiln.so.0"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            with zipfile.ZipFile(path, "w") as wheel:
                for file in files:
                    wheel.writestr(file, content)
            return check.breaches_of(path)

    def test_accepts_a_whole_wheel(self):
        self.assertEqual(self.breaches(), [])

    def test_names_each_missing_file(self):
        for file in FILES:
            found = self.breaches(files=[other for other in FILES if other != file])
            self.assertEqual(len(found), 1, file)
            self.assertIn("no file", found[0])

    def test_names_a_wheel_that_is_too_large(self):
        found = self.breaches(content=b" -l:libkiln.so.0" + bytes(check.MOST_BYTES // len(FILES)))
        self.assertEqual(len(found), 1)
        self.assertIn("8000000", found[0])

    def test_names_a_pc_file_that_links_to_a_missing_file(self):
        found = self.breaches(content=b"Libs: -L${libdir} -lkiln")
        self.assertEqual(len(found), 1)
        self.assertIn("kiln/lib/pkgconfig/kiln.pc links to", found[0])

    def test_names_a_platform_that_is_not_manylinux(self):
        found = self.breaches(name="kiln-0.2.0-cp312-abi3-linux_x86_64.whl")
        self.assertEqual(found, ["kiln-0.2.0-cp312-abi3-linux_x86_64.whl has no tag of manylinux"])

    def test_names_what_a_file_must_not_export(self):
        good = {
            "kiln/_kiln.abi3.so": {"PyInit__kiln"},
            "kiln/lib/libkiln.so.0": {"kiln_version", "kiln_template_get"},
            "kiln/lib/libkiln_tvm_ffi.so": {"__tvm_ffi_kiln_slot_00"},
            "kiln/libexec/kiln/kiln-worker": {"mmap"},
            "kiln/bin/kiln": set(),
        }
        for file, symbols in good.items():
            self.assertEqual(check.breaches_of_exports(file, symbols), [], file)
            self.assertEqual(check.breaches_of_exports(file, {*symbols, "_Znwm"}), ["exports _Znwm"], file)
            if symbols:
                self.assertIn("exports no ", check.breaches_of_exports(file, set())[0], file)


if __name__ == "__main__":
    unittest.main()
