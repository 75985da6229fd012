"""A 1 MB blob, uncompressed and verified, against reading the file: medians of interleaved calls.

PYTHONPATH=build/dev/python python3 tests/bench/blob_get.py
"""

import os
import pathlib
import statistics
import tempfile
import time

import kiln

with tempfile.TemporaryDirectory() as folder:
    file, data = pathlib.Path(folder) / "file", os.urandom(1 << 20)
    file.write_bytes(data)
    with kiln.Service(cache_dir=pathlib.Path(folder) / "cache", hermetic=True) as service:
        blobs = kiln.Blobs(service, "bench")
        blobs.put("k", data)
        assert blobs.get("k") == file.read_bytes()
        reads, gets = [], []
        for _ in range(600):
            begin = time.perf_counter()
            with open(file, "rb") as opened:
                opened.read()
            between = time.perf_counter()
            blobs.get("k")
            reads.append(between - begin)
            gets.append(time.perf_counter() - between)
read, get = statistics.median(reads) * 1e6, statistics.median(gets) * 1e6
print(f"read {read:.0f} us, get {get:.0f} us: {get / read:.2f} x (bar: 3 x)")
