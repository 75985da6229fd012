"""Directories of a JIT compiler through `kiln caches` beside tar and zstd, and Triton's hits through kiln beside its own.

  PYTHONPATH=build/dev/python python3 tests/bench/jit_caches.py build/dev/kiln [ROUNDS]

Needs tar and zstd, and Python's package triton for the hits; no GPU. The directory has as many files and bytes as
Inductor's and Triton's after a model of 4 layers: 3,057 files and 151 MB. TMPDIR says on which filesystem it lies.
"""

import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FILES, SIZE = 3057, 151_000_000
KERNELS = 200


def content(rng: random.Random, size: int) -> bytes:
    """Bytes that zstd makes about four times smaller, as IR and cubins are."""
    words = [rng.randbytes(6).hex().encode() for _ in range(64)]
    out = b" ".join(rng.choices(words, k=size // 13 + 1))
    return out[:size]


def make_tree(root: pathlib.Path) -> None:
    rng = random.Random(1)
    mean = SIZE // FILES
    for number in range(FILES):
        folder = root / f"{number // 9:04d}"
        folder.mkdir(exist_ok=True, parents=True)
        (folder / f"kernel.{number % 9}").write_bytes(content(rng, rng.randrange(mean // 4, mean * 7 // 4)))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(command: str) -> tuple[float, float]:
    """The time of a command in seconds, and its CPU time."""
    begin, before = time.perf_counter(), cpu()
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin, cpu() - before


def show(name: str, seconds: list[float], scale: float, unit: str) -> None:
    low, high = min(seconds) * scale, max(seconds) * scale
    print(f"{name:45} {statistics.median(seconds) * scale:8.2f} {unit}   ({low:.2f} to {high:.2f})", flush=True)


def directories(kiln: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_tree(root / "jit")
        times: dict[str, list[tuple[float, float]]] = {}
        for number in range(rounds):
            store, archive = root / f"store{number}", root / "jit.tar.zst"
            os.environ["KILN_CACHE_DIR"] = str(store)
            for name, command in {
                "tar and zstd -3, write": f"tar -C {root}/jit -cf - . | zstd -3 -q -f -o {archive}",
                "kiln caches capture, into an empty store": f"{kiln} caches capture {root}/jit --name jit",
                "tar and zstd, read": f"mkdir {root}/tar && zstd -d -q -c {archive} | tar -C {root}/tar -xf -",
                "kiln caches restore": f"{kiln} caches restore jit --to {root}/kiln",
                "kiln caches capture, nothing changed": f"{kiln} caches capture {root}/jit --name jit",
            }.items():
                times.setdefault(name, []).append(timed(command))
            subprocess.run(["diff", "-r", root / "jit", root / "kiln"], check=True)
            print(f"archive {archive.stat().st_size >> 20} MiB, store {(store / 'v1' / 'data.mdb').stat().st_size >> 20} MiB")
            for left in (store, root / "tar", root / "kiln"):
                shutil.rmtree(left)
        for name, seconds in times.items():
            show(name, [wall for wall, _ in seconds], 1, "s")
            show("    CPU time", [used for _, used in seconds], 1, "s")


def hits() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"KILN_CACHE_DIR": f"{folder}/store", "TRITON_CACHE_DIR": f"{folder}/triton"}
        import triton.runtime.cache
        from kiln.caches import _files
        from kiln.caches import triton as caches

        rng = random.Random(2)
        names = ["k.source", "k.ttir", "k.ttgir", "k.llir", "k.ptx", "k.cubin", "k.json"]
        for number in range(KERNELS):
            for manager in (triton.runtime.cache.FileCacheManager(f"K{number}"), caches.CacheManager(f"K{number}")):
                manager.put_group("k.json", {name: manager.put(content(rng, 20_000), name) for name in names})
        caches._blobs().flush()
        caches._groups.clear()
        caches._directory = _files.PrivateDirectory("kiln-bench-")  # as a new process has it
        caches.CacheManager("K").get_group("k.json")
        for again in ("the first", "each later"):
            for name, manager in ("Triton's", triton.runtime.cache.FileCacheManager), ("kiln's", caches.CacheManager):
                seconds = []
                for number in range(KERNELS):
                    begin = time.perf_counter()
                    found = manager(f"K{number}").get_group("k.json")
                    seconds.append(time.perf_counter() - begin)
                    assert len(found) == len(names)
                show(f"{name} manager, {again} hit of a kernel", seconds, 1e6, "us")


if __name__ == "__main__":
    directories(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    hits()
