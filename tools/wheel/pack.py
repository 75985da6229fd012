"""Makes a wheel of an installed package: pack.py STAGE TAG DIRECTORY

STAGE holds the folder kiln/, which is the prefix that CMake installed to, and kiln-VERSION.data/.
The metadata comes from python/pyproject.toml. TAG is a tag such as cp311-cp311-manylinux_2_28_x86_64.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from scikit_build_core.build import prepare_metadata_for_build_wheel

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pack(stage: pathlib.Path, tag: str, directory: pathlib.Path) -> None:
    for source in sorted((ROOT / "python" / "kiln").rglob("*.py*")):
        if source.suffix in (".py", ".pyi"):
            target = stage / "kiln" / source.relative_to(ROOT / "python" / "kiln")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    shutil.copy(ROOT / "python" / "kiln" / "py.typed", stage / "kiln")
    os.chdir(ROOT / "python")
    info = stage / prepare_metadata_for_build_wheel(str(stage))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: kiln\nRoot-Is-Purelib: false\nTag: {tag}\n")
    licences = info / "licenses"
    shutil.rmtree(licences, ignore_errors=True)
    shutil.move(stage / "kiln" / "licenses", licences)
    shutil.move(stage / "kiln" / "LICENSE", licences / "LICENSE")
    subprocess.run([sys.executable, "-m", "wheel", "pack", str(stage), "--dest-dir", str(directory)], check=True)


if __name__ == "__main__":
    pack(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3]).resolve())
