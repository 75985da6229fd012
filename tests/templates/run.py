#!/usr/bin/env python3
"""The shipped templates on a GPU: tests against float64 in torch, and the table beside streams and peers.

    tests/templates/run.py [--tests] [--bench] [--sanitize] [--warm] [--only NAME,...] [--match TEXT] [--jobs N] [--json FILE]

Without any of the three: tests and bench. --warm: each launch of the bench once and untimed, for peers that compile at first use. --sanitize: the module's SANITIZE, which are words for `kiln run`, under compute-sanitizer's memcheck,
racecheck, initcheck and synccheck; kiln is found in PATH. libkiln.so.0 is found by the loader (or KILN_LIBRARY), templates as kiln finds them (KILN_TEMPLATE_PATH).
BENCH_PEERS names a Python module with other projects' kernels (harness.peers). Exit status 1 when a test failed, 77 without torch or a GPU.
"""
import argparse
import concurrent.futures
import importlib
import json
import pathlib
import subprocess
import sys
import time
import traceback

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))

parser = argparse.ArgumentParser()
parser.add_argument("--tests", action="store_true")
parser.add_argument("--bench", action="store_true")
parser.add_argument("--sanitize", action="store_true")
parser.add_argument("--warm", action="store_true")
parser.add_argument("--only", help="modules: rms_norm,rope")
parser.add_argument("--match", default="", help="tests and cases whose name has this text")
parser.add_argument("--jobs", type=int, default=6, help="modules whose tests run at once")
parser.add_argument("--json", help="file for all figures")
parser.add_argument("--one", help=argparse.SUPPRESS)  # the child that runs one module's tests
args = parser.parse_args()
if not (args.tests or args.bench or args.sanitize or args.warm):
    args.tests = args.bench = True
modules = args.only.split(",") if args.only else sorted(p.stem for p in here.glob("*.py") if p.stem not in ("run", "harness", "kiln_library", "attention_plan"))

try:
    import torch
    if not torch.cuda.is_available():
        raise ImportError
except ImportError:
    print("skipped: no torch with a GPU here")
    sys.exit(77)


def run_tests(name):
    module = importlib.import_module(name)
    failed = 0
    for label, test in list(vars(module).items()):
        if not label.startswith("test_") or args.match not in label:
            continue
        started = time.time()
        try:
            said = test()
            torch.cuda.synchronize()
            print(f"ok      {name}.{label[5:]}  {time.time() - started:.1f} s{'  ' + said if said else ''}", flush=True)
        except BaseException as error:  # a failing launch, too, is that test's
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED  {name}.{label[5:]}  {type(error).__name__}: {str(error)[:600]}  ({pathlib.Path(where.filename).name}:{where.lineno})", flush=True)
            if isinstance(error, KeyboardInterrupt):
                raise
        torch.cuda.empty_cache()
    return failed


def run_bench(name):
    import harness
    module = importlib.import_module(name)
    for row in module.bench() if hasattr(module, "bench") else []:
        if args.match not in row.case:
            continue
        if args.warm:
            harness.call_each(row.make(), row.launches)
            continue
        sets = harness.make_sets(row.make)
        times = harness.time_all(sets, {k: v for k, v in row.launches.items() if v})
        del sets
        torch.cuda.empty_cache()
        us = times.pop("kiln")
        others = {k: v for k, v in times.items() if k.startswith("kiln")}  # other ways of ours: not peers
        rivals = {k: v for k, v in times.items() if not k.startswith("kiln")}
        best = min(rivals, key=rivals.get) if rivals else None
        stream = harness.stream_us(row.read, row.write)
        yield {"case": row.case, "us": us, "tb_per_s": (row.read + row.write) / us / 1e6, "stream_us": stream, "share": stream / us, "bytes": row.read + row.write,
               "bar": row.bar if row.bar >= 0 else 0.92 if row.read + row.write >= 64e6 else 0.85, "bar_us": row.bar_us, "ours": others, "peers": rivals,
               "behind": [f"{own} is behind {peer}" for own, they in row.beats.items() for peer in they if peer in times and times[peer] < {"kiln": us, **others}.get(own, 0)], "best_peer": best,
               "ratio": rivals[best] / us if best else None}


def line(r):
    mark = "" if (r["us"] <= r["bar_us"] if r["bar_us"] else r["share"] >= r["bar"]) else " below the bar"
    if r["ratio"] is not None and r["ratio"] < 0.98:
        mark += " SLOWER than a peer"
    mark += "".join(" " + words.upper() for words in r["behind"])
    text = f"{r['case']:58} {r['us']:8.2f} {r['tb_per_s']:6.2f} {r['stream_us']:8.2f} {100 * r['share']:5.0f}%"
    text += f"  {r['ratio']:5.2f}x " if r["ratio"] is not None else "        "
    return text + "  ".join(f"{k} {v:.2f}" for k, v in {**r["ours"], **r["peers"]}.items()) + mark


failed = 0
if args.one:
    sys.exit(min(100, run_tests(args.one)))
if args.tests:
    def child(name):
        words = [sys.executable, __file__, "--one", name, "--tests", "--match", args.match]
        return subprocess.run(words, capture_output=True, text=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, done in zip(modules, pool.map(child, modules)):
            print(done.stdout, end="")
            if done.returncode:
                failed += 1
                print(f"{name}: exit {done.returncode}  {done.stderr[-1500:]}")
if args.sanitize:
    def sanitized(job):
        tool, words = job
        return subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "kiln", "run", *words.split(), "--check"], capture_output=True, text=True)
    jobs = [(tool, words) for name in modules for words in getattr(importlib.import_module(name), "SANITIZE", []) if args.match in words for tool in ("memcheck", "racecheck", "initcheck", "synccheck")]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (tool, words), done in zip(jobs, pool.map(sanitized, jobs)):
            summary = [text for text in done.stdout.splitlines() if "SUMMARY" in text]
            clean = done.returncode == 0 and summary and ("0 errors" in summary[-1])
            print(f"{'ok      ' if clean else 'FAILED  '}{tool:9} {words}  {'' if clean else done.stdout[-1500:] + done.stderr[-500:]}", flush=True)
            failed += not clean
if args.bench or args.warm:
    print(f"\n{'case':58} {'us':>8} {'TB/s':>6} {'stream':>8} {'share':>6}  ratio  peers (us; ratio: the best one over ours)")
    rows = []
    for name in modules:
        try:
            for row in run_bench(name):
                rows.append(row)
                print(line(row), flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}.bench: {type(error).__name__}: {str(error)[:800]}  {traceback.format_exc()[-600:]}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
sys.exit(1 if failed else 0)
