"""Sixteen workers run random commands on one cache, each with a cap of its own, and some are killed.

cap_storm.py KILN [SECONDS [SEED]]

KILN is a built command; it needs NVRTC and no GPU. The test fails when a command crashes, hangs, reports damage or gives a wrong image. It fails when a command
does not store a kernel that had room, and when `kiln verify` finds anything at the end. Unfinished work of a killed process is no fault.
"""

import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

WORKERS = 16
KERNELS = 100
HANG_S = 300  # only a hang takes this long
MIB = 1 << 20

# An image of 200 KB that compiles in the time of an empty kernel: a hundred of them are 20 MB, four times the smallest cap.
SOURCE = """
__device__ int padding[50000] = {1};
template <int N> __global__ void padded(int* out) { out[threadIdx.x] = padding[threadIdx.x] + N; }
"""
MANIFEST = """
format = 1
[template]
name = "padded"
source = "padded.cu"
instantiate = "padded<{N}>"
summary = "An image of 200 KB"
[param.N]
kind = "int"
range = [0, 1000]
[[arg]]
name = "out"
type = "ptr<i32>"
access = "write"
shape = ["32"]
[launch]
grid = ["1"]
block = ["32"]
"""


class Storm:
    def __init__(self, kiln, seconds, seed, work):
        self.kiln, self.until, self.seed, self.work = kiln, time.monotonic() + seconds, seed, pathlib.Path(work)
        self.faults, self.counts, self.lock = [], collections.Counter(), threading.Lock()
        templates = self.work / "templates"
        templates.mkdir()
        (templates / "padded.cu").write_text(SOURCE)
        (templates / "padded.toml").write_text(MANIFEST)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KILN_")} | {
            "KILN_TEMPLATE_PATH": str(templates),
            "KILN_CACHE_DIR": str(self.work / "cache"),
            "HOME": str(self.work),
            "KILN_ARCH": "sm_90a",
        }
        self.images = {}

    def fault(self, text):
        with self.lock:
            self.faults.append(text)
            print("FAULT", text, flush=True)

    def run(self, arguments, environment=(), kill_after=None):
        """Returns (exit status, stdout, stderr). The status is None when this test killed the command."""
        child = subprocess.Popen(
            [self.kiln, *arguments],
            env=self.environment | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        timer = threading.Timer(kill_after, child.kill) if kill_after is not None else None
        if timer:
            timer.start()
        try:
            out, err = child.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            self.fault(f"hung: {arguments}")
        if timer:
            timer.cancel()
        if child.returncode == -9:
            return None, out, err.decode()
        if child.returncode < 0:
            self.fault(f"signal {-child.returncode}: {arguments}\n{err.decode()}")
        return child.returncode, out, err.decode()

    def image_of(self, number, path, environment=(), kill_after=None):
        path.unlink(missing_ok=True)
        status, out, err = self.run(["compile", "padded", f"N={number}", "-o", str(path), "--json"], environment, kill_after)
        return (json.loads(out)["outcome"], path.read_bytes(), err) if status == 0 else (status, None, err)

    def worker(self, index):
        rng = random.Random(self.seed * 1000 + index)
        mine = self.work / f"worker-{index}"
        mine.mkdir()
        while time.monotonic() < self.until:
            cap = {"KILN_CACHE_MAX_SIZE": str(rng.randint(5 * MIB, 100 * MIB))}
            kill_after = rng.uniform(0, 0.3) if rng.random() < 0.1 else None
            verb = rng.choices(["compile", "ls", "gc", "clear", "verify", "export"], [70, 8, 5, 1, 8, 8])[0]
            if verb == "compile":
                number = rng.randrange(KERNELS)
                status, image, err = self.image_of(number, mine / "image", cap, kill_after)
                if image is not None and image != self.images[number]:
                    self.fault(f"wrong image of N={number} ({status})")
                if image is None and status is not None:
                    self.fault(f"compile N={number} ended with {status}: {err}")
                # A process that waits for another process's compile warns after two seconds; this is no fault.
                warnings = [line for line in err.splitlines() if "which has been compiling" not in line]
                if warnings and status is not None:
                    self.fault(f"compile N={number} said: {err}")
                self.count(f"compile {status}")
            else:
                arguments, allowed = {
                    "ls": (["ls", "--json"], {0}),
                    "gc": (["gc", "--max-size", str(rng.randint(4 * MIB, 20 * MIB)), "--json", "--wait", str(HANG_S)], {0}),
                    "clear": (["clear", "--yes", "--json", "--wait", str(HANG_S)], {0}),
                    "verify": (["verify", "--json"], {0}),
                    "export": (["bundle", "export", str(mine / "bundle"), "--all", "--json"], {0, 3}),  # 3: the cache is empty
                }[verb]
                status, out, err = self.run(arguments, cap, kill_after)
                if status is not None and status not in allowed:
                    self.fault(f"{verb} ended with {status}: {err or out.decode()[:500]}")
                if status is not None and "damaged" in err:
                    self.fault(f"{verb} speaks of damage: {err}")
                if verb == "gc" and status == 0 and json.loads(out).get("damaged", 0) != 0:
                    self.fault(f"gc found damage: {out.decode()}")
                self.count(f"{verb} {status}")

    def count(self, what):
        with self.lock:
            self.counts[what.replace("None", "killed")] += 1

    def go(self):
        for number in range(KERNELS):
            outcome, image, err = self.image_of(number, self.work / "image", {"KILN_CACHE_DIR": str(self.work / "reference")})
            if image is None:
                sys.exit(f"cap_storm.py: cannot compile: {outcome} {err}")
            self.images[number] = image
        self.until += time.monotonic() - self.started
        threads = [threading.Thread(target=self.worker, args=(index,)) for index in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        status, out, err = self.run(["verify", "--json"])
        if status != 0 or json.loads(out).get("damaged"):
            self.fault(f"verify at the end: {status} {out.decode()} {err}")
        for what, number in sorted(self.counts.items()):
            print(f"{number:6} {what}")
        stats = json.loads(self.run(["stats", "--json"])[1])
        print(json.dumps({name: value for name, value in stats.items() if name in ("entries", "store", "lifetime")})[:1500])
        print(f"{sum(self.counts.values())} commands, {len(self.faults)} faults, seed {self.seed}")
        return 1 if self.faults else 0


if __name__ == "__main__":
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    with tempfile.TemporaryDirectory(prefix="kiln-cap-storm-", ignore_cleanup_errors=True) as directory:
        storm = Storm(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60, seed, directory)
        storm.started = time.monotonic()
        sys.exit(storm.go())
