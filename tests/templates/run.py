#!/usr/bin/env python3
"""The shipped templates on a GPU: tests against float64 in torch, and a table of times
beside streams and peers.

    tests/templates/run.py [--tests] [--bench] [--sanitize] [--warm] [--only NAME,...] [--match TEXT] [--case CASE]... [--no-peers] [--card NAME] [--jobs N] [--json FILE]

Without --tests, --bench, --sanitize and --warm it runs tests and bench.

- --warm makes each launch of the bench once and untimed, for peers that compile at first use.
- --sanitize runs the module's SANITIZE, which are words for `kiln run`, under
  compute-sanitizer's memcheck, racecheck,
  initcheck and synccheck. kiln is found in PATH.
- --no-peers times only kiln's launches and the stream. torch, torch.compile and BENCH_PEERS
  are left out, and the rows
  keep their names.
- --json is written after each module, so that a run that is killed leaves the figures of earlier modules.

The loader finds libkiln.so.0, or KILN_LIBRARY names it. Templates are found as kiln finds them
(KILN_TEMPLATE_PATH). BENCH_PEERS names a Python module with other projects' kernels (harness.peers). Exit
status 1 when a test failed, 77 without torch or a GPU.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), *(str(family) for family in sorted(here.iterdir()) if family.is_dir())]

parser = argparse.ArgumentParser()
parser.add_argument("--tests", action="store_true")
parser.add_argument("--bench", action="store_true")
parser.add_argument("--sanitize", action="store_true")
parser.add_argument("--warm", action="store_true")
parser.add_argument("--only", help="modules: rms_norm,rope")
parser.add_argument("--match", default="", help="tests and cases whose name has this text")
parser.add_argument("--case", action="append", help="only the row of the bench with exactly this case; may be given several times")
parser.add_argument("--no-peers", action="store_true", help="kiln and the stream only")
parser.add_argument("--card", help="exit at once on a device with another name")
parser.add_argument("--jobs", type=int, default=6, help="modules whose tests run at once")
parser.add_argument("--json", help="file for all figures")
parser.add_argument("--one", help=argparse.SUPPRESS)  # the child that runs one module's tests
args = parser.parse_args()
if not (args.tests or args.bench or args.sanitize or args.warm):
    args.tests = args.bench = True
if args.no_peers:  # imports neither torch.compile nor the peers' module, whose launches are not timed
    os.environ["BENCH_NO_COMPILE"] = "1"
    os.environ.pop("BENCH_PEERS", None)
HELPERS = ("run", "harness", "kiln_library", "attention_plan", "moe_products", "moe_gemm_times")  # modules without tests
modules = args.only.split(",") if args.only else sorted(p.stem for p in here.glob("**/*.py") if p.stem not in HELPERS)

try:
    import torch

    if not torch.cuda.is_available():
        raise ImportError
except ImportError:
    print("skipped: no torch with a GPU here")
    sys.exit(77)
if args.card and args.card != torch.cuda.get_device_name():
    print(f"this device is {torch.cuda.get_device_name()}, expected {args.card}")
    sys.exit(2)


def runs_here(module):
    """True if this device can run the module's template. A module with CAPABILITY is for one major version alone."""
    wanted = getattr(module, "CAPABILITY", None)
    if wanted is None or wanted == torch.cuda.get_device_capability()[0]:
        return True
    print(f"skipped {module.__name__}: it needs a device of compute capability {wanted}.x", flush=True)
    return False


def run_tests(name):
    module = importlib.import_module(name)
    if not runs_here(module):
        return 0
    failed = 0
    for label, test in list(vars(module).items()):
        if not label.startswith("test_") or args.match not in label:
            continue
        started = time.time()
        try:
            said = test()
            torch.cuda.synchronize()
            print(f"ok      {name}.{label[5:]}  {time.time() - started:.1f} s{'  ' + said if said else ''}", flush=True)
        except BaseException as error:  # a failing launch, too, fails only this test
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"FAILED  {name}.{label[5:]}  {type(error).__name__}: {str(error)[:600]}  ({pathlib.Path(where.filename).name}:{where.lineno})",
                flush=True,
            )
            if isinstance(error, KeyboardInterrupt):
                raise
        torch.cuda.empty_cache()
    return failed


def measure(row):
    """The figures of one row. Other launches of kiln ("kiln FOR=any") are no peers."""
    import harness

    sets = harness.make_sets(row.make)
    times = harness.time_all(sets, row.launches)
    del sets
    torch.cuda.empty_cache()
    us = times.pop("kiln")
    others = {k: v for k, v in times.items() if k.startswith("kiln")}
    rivals = {k: v for k, v in times.items() if not k.startswith("kiln")}
    best = min(rivals, key=rivals.get) if rivals else None
    size = row.read + row.write
    stream = harness.stream_us(row.read, row.write) if size else None
    return {
        "case": row.case,
        "us": us,
        "tb_per_s": size / us / 1e6,
        "stream_us": stream,
        "share": stream / us if stream else None,
        "bytes": size,
        "bar": row.bar if row.bar >= 0 else 0.92 if size >= 64e6 else 0.85,
        "bar_us": row.bar_us,
        "ours": others,
        "peers": rivals,
        "behind": [
            f"{own} is behind {peer}"
            for own, they in row.beats.items()
            for peer in they
            if peer in times and times[peer] < {"kiln": us, **others}.get(own, 0)
        ],
        "best_peer": best,
        "ratio": rivals[best] / us if best else None,
    }


def run_bench(name):
    """The figures of each case of the module. A case that raises gives a row with its
    error; later cases still run.
    """
    import harness

    module = importlib.import_module(name)
    for row in module.bench() if hasattr(module, "bench") and runs_here(module) else []:
        if args.match not in row.case or (args.case and row.case not in args.case):
            continue
        row.launches = {k: v for k, v in row.launches.items() if v and (k.startswith("kiln") or not args.no_peers)}
        if args.warm:
            harness.call_each(row.make(), row.launches)
            continue
        try:
            figures = measure(row)
        except Exception as error:
            figures = {
                "case": row.case,
                "error": f"{type(error).__name__}: {str(error)[:800]}",
                "where": traceback.format_exc()[-600:],
            }
        if figures.get("error"):  # after the handler, whose traceback holds the tensors
            torch.cuda.empty_cache()
        yield {"module": name, **figures}


def driver_version():
    """The driver's version; None when neither nvidia-smi nor /proc tells it."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout.split()
    except OSError:
        said = []
    with contextlib.suppress(OSError):
        said += re.findall(r"Kernel Module\D*(\d+\.[\d.]+)", pathlib.Path("/proc/driver/nvidia/version").read_text())
    return next((word for word in said if re.fullmatch(r"\d+\.[\d.]+", word)), None)


def revision():
    """The commit of these files, with + when tracked files differ from it; None outside of a checkout."""

    def git(*words):
        return subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True)

    try:
        found = git("rev-parse", "--short=12", "HEAD")
        return found.stdout.strip() + ("+" if git("diff", "--quiet", "HEAD").returncode else "") if found.returncode == 0 else None
    except OSError:
        return None


def machine():
    """The conditions of the figures: card, driver, versions, date.

    copy_us is the time to read and write 128 MiB, for rows without a floor of their own.
    """
    import harness

    return {
        "card": torch.cuda.get_device_name(),
        "driver": driver_version(),
        "torch": torch.__version__,
        "kiln": harness.version(),
        "revision": revision(),
        "date": datetime.date.today().isoformat(),
        "copy_us": harness.stream_us(128 << 20, 128 << 20),
        "peers": not args.no_peers,
    }


def line(r):
    if r.get("error"):
        return f"FAILED  {r['module']}.bench {r['case']}: {r['error']}  {r['where']}"
    if r["share"] is None:
        return f"{r['case']:58} {r['us']:8.2f}    no floor"
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
        return subprocess.run(
            ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "kiln", "run", *words.split(), "--check"],
            capture_output=True,
            text=True,
        )

    jobs = [
        (tool, words)
        for name in modules
        for module in [importlib.import_module(name)]
        for words in getattr(module, "SANITIZE", [])
        if args.match in words and runs_here(module)
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck")
    ]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for (tool, words), done in zip(jobs, pool.map(sanitized, jobs)):
            summary = [text for text in done.stdout.splitlines() if "SUMMARY" in text]
            clean = done.returncode == 0 and summary and ("0 errors" in summary[-1])
            print(
                f"{'ok      ' if clean else 'FAILED  '}{tool:9} {words}  {'' if clean else done.stdout[-1500:] + done.stderr[-500:]}",
                flush=True,
            )
            failed += not clean
if args.bench or args.warm:
    print(f"\n{'case':58} {'us':>8} {'TB/s':>6} {'stream':>8} {'share':>6}  ratio  peers (us; ratio: the best one over ours)")
    figures = {
        "schema": "kiln-bench-figures/1",
        **(machine() if args.json else {}),
        "selection": "modules",
        "modules": [],
        "errors": [],
        "rows": [],
    }

    def write():
        """Writes a new file and renames it, so that a run that is killed leaves the last complete file."""
        text = (
            json.dumps({**figures, "rows": []}, indent=1).removesuffix("[]\n}")
            + "[\n"
            + ",\n".join(json.dumps(row) for row in figures["rows"])
            + "\n]}\n"
        )
        pathlib.Path(args.json + ".part").write_text(text)
        os.replace(args.json + ".part", args.json)

    for name in modules:
        started, before = time.time(), len(figures["rows"])
        try:
            for row in run_bench(name):
                figures["rows"].append(row)
                failed += bool(row.get("error"))
                print(line(row), flush=True)
        except Exception as error:
            failed += 1
            figures["errors"].append({"module": name, "error": f"{type(error).__name__}: {str(error)[:800]}"})
            print(f"FAILED  {name}.bench: {figures['errors'][-1]['error']}  {traceback.format_exc()[-600:]}", flush=True)
        figures["modules"].append(name)
        print(f"  {name}: {len(figures['rows']) - before} rows in {time.time() - started:.1f} s", flush=True)
        if args.match or args.case:
            figures["selection"] = "cases"
        elif not args.only and len(figures["modules"]) == len(modules):
            figures["selection"] = "all"
        if args.json:
            write()
sys.exit(1 if failed else 0)
