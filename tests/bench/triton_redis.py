"""Triton's Redis storage beside the fleet's tier: the time to get a kernel that is there, and its bytes on the wire.
  triton_redis.py REMOTE_BENCH [ROUNDS]   needs redis-server, and Python's packages triton and redis; no GPU.

Rounds of both take turns, on one machine over loopback. Triton's files are neither compressed nor verified.
"""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ENTRIES, REPEATS, KERNELS = 32, 20, 1000
SIZES = {"50 KB": 50_000, "1 MB": 1_000_000}


def image_of(size: int, seed: int) -> bytes:
    """An image like that of remote_bench: noise and runs."""
    rng = random.Random(seed)
    return b"".join(rng.randbytes(3) + bytes([rng.randrange(16)]) * 5 for _ in range(size // 8 + 1))[:size]


def start_server(directory: str) -> subprocess.Popen:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory],
        stdout=subprocess.DEVNULL,
    )
    os.environ.update(
        TRITON_REDIS_HOST="127.0.0.1",
        TRITON_REDIS_PORT=str(port),
        TRITON_CACHE_DIR=directory,
        TRITON_REMOTE_CACHE_BACKEND="triton.runtime.cache:RedisRemoteCacheBackend",
    )
    return server


def measure(client, name: str, get, keys: list) -> None:
    before = client.info("stats")
    times = []
    for _ in range(REPEATS):
        for key in keys:
            start = time.perf_counter()
            get(key)
            times.append((time.perf_counter() - start) * 1e3)
    after = client.info("stats")
    moved = [(after[f"total_net_{way}_bytes"] - before[f"total_net_{way}_bytes"]) / len(times) for way in ("output", "input")]
    p99 = statistics.quantiles(times, n=100)[98]
    print(
        f"{name:44s} p50 {statistics.median(times):7.3f} ms  p99 {p99:7.3f} ms; on the wire "
        f"{moved[0]:.0f} bytes in, {moved[1]:.0f} out a hit",
        flush=True,
    )


def triton_round(client) -> None:
    from triton import knobs
    from triton.runtime.cache import RedisRemoteCacheBackend, RemoteCacheManager

    if not hasattr(knobs.cache, "redis"):  # Triton 3.9's backend looks for its settings here, where they are not
        type(knobs.cache).redis = knobs.redis
    for label, size in SIZES.items():
        images = {f"{label}-{i}".replace(" ", ""): image_of(size, i) for i in range(ENTRIES)}
        for key, image in images.items():
            manager = RemoteCacheManager(key)
            group = {
                "k.cubin": manager.put(image, "k.cubin"),
                "k.json": manager.put(json.dumps({"name": "k", "shared": 0}), "k.json"),
            }
            manager.put_group("k.json", group)
        backends = {key: RedisRemoteCacheBackend(key) for key in images}

        def cubin(key):
            if backends[key].get(["k.cubin"])["k.cubin"] != images[key]:
                sys.exit("another image")

        def group_of(key):
            with open(RemoteCacheManager(key).get_group("k.json")["k.cubin"], "rb") as file:
                if file.read() != images[key]:
                    sys.exit("another image")

        for key in images:
            cubin(key)  # the first call connects
        measure(client, f"{label:6s} Triton: its backend's get", cubin, list(images))
        measure(client, f"{label:6s} Triton: a kernel's group, materialised", group_of, list(images))


def triton_fills() -> None:
    """A new node, as in remote_bench: small kernels, and none of them on its disk."""
    from triton.runtime.cache import RemoteCacheManager

    names = [f"small-{i}" for i in range(KERNELS)]
    for i, name in enumerate(names):
        manager = RemoteCacheManager(name)
        manager.put_group(
            "k.json",
            {"k.cubin": manager.put(image_of(6000, i), "k.cubin"), "k.json": manager.put(json.dumps({"name": "k"}), "k.json")},
        )
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TRITON_CACHE_DIR"] = fresh
        start = time.perf_counter()
        for name in names:
            RemoteCacheManager(name).get_group("k.json")
        print(f"Triton: {KERNELS} kernels of 6 KB on a fresh node in {time.perf_counter() - start:.2f} s", flush=True)


def main() -> None:
    bench, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as directory:
        server = start_server(directory)
        try:
            import redis

            client = redis.Redis(port=int(os.environ["TRITON_REDIS_PORT"]))
            for _ in range(200):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
            for number in range(rounds):
                print(f"round {number + 1}", flush=True)
                triton_round(client)
                subprocess.run([bench, "0"], check=True)
            triton_fills()
        finally:
            server.terminate()
            server.wait()


main()
