"""Runs one file of tests for ctest. Exits with 77 (skipped) and says why when a needed
package is not installed.
"""

import importlib.util
import os
import pathlib
import sys


def missing(file):
    if importlib.util.find_spec("pytest") is None:
        return "pytest"
    if importlib.util.find_spec("kiln") is None or importlib.util.find_spec("kiln._kiln") is None:
        return "the extension kiln._kiln (was nanobind there when the build was configured?)"
    if (file.stem.startswith("test_torch") or file.stem == "test_readme") and importlib.util.find_spec("torch") is None:
        return "torch"
    if file.stem == "test_caches_cuda_core" and not (importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.core")):
        return "cuda.core"
    needed = {"test_caches_triton": "triton", "test_caches_inductor": "torch"}.get(file.stem)
    if needed and importlib.util.find_spec(needed) is None:
        return needed
    if file.stem == "test_tvm_ffi" and importlib.util.find_spec("tvm_ffi") is None:
        return "tvm_ffi"
    if file.stem.startswith("test_engines"):
        engine = file.stem.removeprefix("test_engines_")
        sys.path += filter(None, os.environ.get("KILN_TEST_ENGINES", "").split(os.pathsep))
        return next((name for name in ("torch", engine) if importlib.util.find_spec(name) is None), None)
    return None


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1])
    lacking = missing(file)
    if lacking:
        print(f"skipped: {sys.executable} has not got {lacking}")
        sys.exit(77)
    import pytest

    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--show-capture=no", str(file)]))
