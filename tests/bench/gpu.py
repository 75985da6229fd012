#!/usr/bin/env python3
"""Everything that needs a GPU, in one call: the tests with label gpu, the templates against float64, sanitizers, the table beside streams and peers.

    tests/bench/gpu.py --build DIR [--out DIR] [--quick]

DIR holds kiln, kiln-worker, libkiln.so.0 and the *_gpu_test programs that shall run. What needs PyTorch is skipped aloud without it; --quick leaves
the sanitizers and torch.compile out. BENCH_PEERS: see tests/templates/run.py. Exit status 1 when anything failed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--out", default=None, help="folder for the logs and figures")
parser.add_argument("--quick", action="store_true")
args = parser.parse_args()
build, root = pathlib.Path(args.build).resolve(), pathlib.Path(__file__).resolve().parents[2]
out = pathlib.Path(args.out or tempfile.mkdtemp())
out.mkdir(parents=True, exist_ok=True)
environment = dict(os.environ, KILN_WORKER=str(build / "kiln-worker"), PATH=f"{build}:{os.environ['PATH']}")
environment["LD_LIBRARY_PATH"] = f"{build}:" + os.environ.get("LD_LIBRARY_PATH", "")
environment.setdefault("KILN_TEMPLATE_PATH", str(root / "templates"))
environment.setdefault("KILN_CACHE_DIR", tempfile.mkdtemp() + "/cache")
if args.quick:
    environment["BENCH_NO_COMPILE"] = "1"


def run(name, *words):
    """The log goes to out; returns the exit status and the lines."""
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    (out / f"{name}.log").write_text(done.stdout)
    return done.returncode, done.stdout.splitlines()


failed = []
with concurrent.futures.ThreadPoolExecutor(6) as pool:
    programs = sorted(build.glob("*_gpu_test"))
    for program, (status, lines) in zip(programs, pool.map(lambda p: run(p.name, p), programs)):
        last = [line.strip() for line in lines if "PASSED" in line or "FAILED" in line or "SKIPPED" in line]
        print(f"{program.name:36} exit {status}  {last[0] if last else ''}", flush=True)
        if status:
            failed.append(program.name)
            print("\n".join(lines[-30:]))
steps = {"tests": ["--tests"], "sanitize": ["--sanitize"], "bench": ["--bench", "--json", str(out / "bench.json")]}
for name, words in steps.items():
    if name == "sanitize" and args.quick:
        continue
    status, lines = run(name, sys.executable, root / "tests/templates/run.py", *words)
    if status not in (0, 77):
        failed.append(name)
    shown = lines if name == "bench" else [line for line in lines if not line.startswith("ok ")]
    print("\n".join([f"\n{name}: exit {status}, {sum(line.startswith('ok ') for line in lines)} ok"] + shown), flush=True)
print(f"\n{len(failed)} failed" + (": " + ", ".join(failed) if failed else ""))
sys.exit(1 if failed else 0)
