"""Packs the engines' Python files and the small packages that they import, for a machine without network:

    python python/tests/engines_pack.py WHEELS OUT.tgz

WHEELS is a folder with the wheels of engines-requirements.txt. OUT.tgz gets one folder for each engine, with
its *.py only, and the folder `deps`, with the other wheels as they are.
"""

import io
import pathlib
import sys
import tarfile
import zipfile

UNUSED = ("sglang/multimodal_gen/", "sglang/test/", "sglang/kernels/cake_kernels/", "vllm/models/")


def pack(wheels, out):
    with tarfile.open(out, "w:gz", compresslevel=9) as tar:
        for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
            engine = wheel.name.split("-")[0]
            whole = engine not in ("vllm", "sglang")
            with zipfile.ZipFile(wheel) as archive:
                for item in archive.infolist():
                    if (
                        item.is_dir()
                        or item.filename.startswith(UNUSED)
                        or not (whole or item.filename.endswith((".py", "METADATA", "entry_points.txt")))
                    ):
                        continue
                    entry = tarfile.TarInfo(f"engines/{'deps' if whole else engine}/{item.filename}")
                    entry.size, entry.mode = item.file_size, 0o644
                    tar.addfile(entry, io.BytesIO(archive.read(item)))


if __name__ == "__main__":
    pack(*sys.argv[1:])
    print(f"{sys.argv[2]}: {pathlib.Path(sys.argv[2]).stat().st_size / 2**20:.1f} MiB")
