#!/usr/bin/env python3
"""Runs everything that needs a GPU: tests with label gpu, templates against float64, sanitizers, and the table beside streams and peers.

    tests/bench/gpu.py --build DIR [--out DIR] [--quick]

DIR holds kiln, kiln-worker, libkiln.so.0 and the *_gpu_test programs to run. Without PyTorch, the steps that need it are skipped with a message. --quick
leaves the sanitizers and torch.compile out. BENCH_PEERS: see tests/templates/run.py. Exit status 1 when anything failed.

With --record or --compare only the bench runs, without peers, and DIR needs no test programs. --tests runs everything else before the bench:

    tests/bench/gpu.py --build DIR --record tests/bench/baseline/h200.json [--only rms_norm,rope] [--runs N] [--revision TEXT]
    tests/bench/gpu.py --build DIR --compare tests/bench/baseline/h200.json [--only rms_norm,rope] [--repeats N] [--any-card]

--record writes a baseline (baseline.py has its format): the time of each row beside the floor of the same run. It takes the median of --runs benches (1).
With --only, the rows of these modules replace their rows in FILE, and the other rows stay. So a bench that is too long for one call can be recorded in parts.
--compare names each row whose time over its floor is more than 3 % above the baseline's, and each row that is missing, new or failed. Slower rows are
measured --repeats more times (3): only these rows, and each time in a new process. The median of the repeats decides, and all figures are shown.
Exit status 1: a row is slower, missing, failed or cannot be compared. 2: files or options are refused, such as a baseline of another card without --any-card.
77: no torch or no GPU.

--figures FILE replaces the GPU for both: FILE is what an earlier run left in --out (bench.json, again-1.json). --build is not needed then. It may be given
several times. With --compare, the first file that has a row is the run, and later files are its repeats. With --record, the median is taken.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import subprocess
import sys
import tempfile

import baseline

root = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", help="folder of kiln, kiln-worker, libkiln.so.0 and, for the tests, the *_gpu_test programs")
    parser.add_argument("--out", help="folder for the logs and figures (else a temporary one)")
    parser.add_argument("--quick", action="store_true", help="no sanitizers, no torch.compile")
    parser.add_argument("--record", metavar="FILE", help="run the bench alone and write this baseline")
    parser.add_argument("--compare", metavar="FILE", help="run the bench alone and name what is slower than in this baseline")
    parser.add_argument("--only", metavar="NAME,...", help="with --record or --compare: these modules of tests/templates")
    parser.add_argument("--runs", type=int, default=1, help="with --record: benches whose median is recorded (1)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="with --compare: further measurements of slower rows, whose median decides (3)"
    )
    parser.add_argument("--any-card", action="store_true", help="with --compare: compare with the baseline of another card")
    parser.add_argument("--revision", help="with --record: what was built, where this folder is no git checkout")
    parser.add_argument(
        "--figures", metavar="FILE", action="append", help="figures of an earlier run instead of a GPU; may be given several times"
    )
    parser.add_argument("--tests", action="store_true", help="with --record or --compare: run the tests and sanitizers, too")
    args = parser.parse_args()
    measures = args.record or args.compare
    if args.record and args.compare:
        parser.error("--record and --compare exclude each other: compare first, then record from the figures in --out by --figures")
    if not measures and (args.only or args.figures):
        parser.error("--only and --figures need --record or --compare")
    if not args.build and not args.figures:
        parser.error("--build is required without --figures")
    if args.tests and args.figures:
        parser.error("--tests needs a GPU, --figures is for a machine without one")
    if args.runs < 1 or args.repeats < 0:
        parser.error("--runs must be at least 1, --repeats at least 0")
    args.only = args.only.split(",") if args.only else None
    return args


class Machine:
    """Runs programs against the build and writes their logs to `out`."""

    def __init__(self, args):
        self.build, self.out = pathlib.Path(args.build).resolve(), pathlib.Path(args.out or tempfile.mkdtemp())
        missing = [name for name in ("kiln-worker", "libkiln.so.0") if not (self.build / name).exists()]
        if missing and (args.record or args.compare):
            raise baseline.Refused(
                f"--build {self.build} has no {' and no '.join(missing)}: build the targets kiln-cli, kiln-worker and kiln, or name their folder"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        self.environment = dict(os.environ, KILN_WORKER=str(self.build / "kiln-worker"), PATH=f"{self.build}:{os.environ['PATH']}")
        self.environment["LD_LIBRARY_PATH"] = f"{self.build}:" + os.environ.get("LD_LIBRARY_PATH", "")
        self.environment.setdefault("KILN_TEMPLATE_PATH", str(root / "templates"))
        self.environment.setdefault("KILN_CACHE_DIR", tempfile.mkdtemp() + "/cache")
        if args.quick:
            self.environment["BENCH_NO_COMPILE"] = "1"

    def run(self, name, *words, show=False):
        """Returns the exit status and the lines of output. `show` prints each line when it arrives."""
        lines = []
        with (
            open(self.out / f"{name}.log", "w") as log,
            subprocess.Popen(
                [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment
            ) as process,
        ):
            for text in process.stdout:
                log.write(text)
                log.flush()
                lines.append(text.rstrip("\n"))
                if show:
                    print(lines[-1], flush=True)
        return process.returncode, lines

    def templates(self, name, *words, show=False):
        return self.run(name, sys.executable, root / "tests/templates/run.py", *words, show=show)

    def bench(self, name, *words):
        """The figures of kiln's own launches. A bench that ends early leaves the figures of the modules that it had finished."""
        file = self.out / f"{name}.json"
        file.unlink(missing_ok=True)
        status, lines = self.templates(name, "--bench", "--no-peers", "--json", file, *words, show=True)
        if status == 77:
            sys.exit(77)
        if status == 2:
            raise baseline.Refused(f"{lines[-1]}. Name the file of this card; --compare also takes --any-card")
        if status not in (0, 1) or not file.exists():
            print(f"{name}: run.py ended with status {status}, its log is {self.out / name}.log", flush=True)
        if not file.exists():
            raise baseline.Refused(f"{name}: there are no figures. {lines[-1] if lines else 'It printed nothing.'}")
        return baseline.read_figures(file)


def run_tests(machine, quick, steps):
    """Runs the *_gpu_test programs, then run.py with the words of each step. Returns the names of the programs and steps that failed."""
    failed = []
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        programs = sorted(machine.build.glob("*_gpu_test"))
        for program, (status, lines) in zip(programs, pool.map(lambda p: machine.run(p.name, p), programs)):
            last = [line.strip() for line in lines if "PASSED" in line or "FAILED" in line or "SKIPPED" in line]
            print(f"{program.name:36} exit {status}  {last[0] if last else ''}", flush=True)
            if status:
                failed.append(program.name)
                print("\n".join(lines[-30:]))
    for name, words in steps.items():
        if name == "sanitize" and quick:
            continue
        status, lines = machine.templates(name, *words)
        if status not in (0, 77):
            failed.append(name)
        shown = lines if name == "bench" else [line for line in lines if not line.startswith("ok ")]
        print("\n".join([f"\n{name}: exit {status}, {sum(line.startswith('ok ') for line in lines)} ok"] + shown), flush=True)
    print(f"\n{len(failed)} failed" + (": " + ", ".join(failed) if failed else ""), flush=True)
    return failed


def measured(args, machine, count, card):
    """Figures of `count` runs of the bench on this card (None: any card), or the figures that were given."""
    if args.figures:
        return [baseline.read_figures(file) for file in args.figures]
    words = (["--only", ",".join(args.only)] if args.only else []) + (["--card", card] if card else [])
    runs = [machine.bench("bench" if turn == 1 else f"bench-{turn}", *words) for turn in range(1, count + 1)]
    print(f"\nfigures: {machine.out}/bench.json", flush=True)
    return runs


def record(args, machine):
    path = pathlib.Path(args.record)
    earlier = baseline.read_baseline(path) if path.exists() else None
    runs = measured(args, machine, args.runs, earlier["card"] if earlier else None)
    made, remarks, failed = baseline.record(earlier, runs, args.only, args.revision, path)
    if not args.only and any(figures["selection"] != "all" for figures in runs):
        remarks.append(
            f"FAILED  these figures are not of all modules, but of {', '.join(runs[0]['modules']) or 'none'}: rows of the others stay as they were"
        )
        failed = True
    print("\n".join(remarks))
    if not made["rows"]:
        raise baseline.Refused(f"{path} is not written: there is no row to record")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(baseline.text_of(made))
    print(
        f"{path}: {len(made['rows'])} rows of {made['card']}, {len(made['runs'][-1]['modules'])} modules of them by the latest run"
    )
    return 1 if failed else 0


def compare(args, machine):
    base = baseline.read_baseline(args.compare)
    runs = measured(args, machine, 1, None if args.any_card else base["card"])
    print("\n".join(baseline.differences(base, runs, args.only)))
    compare_with = functools.partial(baseline.compare, base, only=args.only, any_card=args.any_card, path=args.compare)

    def again(rows, turn):
        if turn == 1:  # so that a call that ends before the repeats has printed this much
            print("\n".join(["before the repeats:", *baseline.table(compare_with(runs)), ""]), flush=True)
        cases = [word for case in sorted({row["case"] for row in rows}) for word in ("--case", case)]
        return machine.bench(f"again-{turn}", "--only", ",".join(sorted({row["module"] for row in rows})), *cases)

    changes = baseline.confirm(compare_with, runs, again, 0 if args.figures else args.repeats)
    print("\n".join(["", *baseline.table(changes)]))
    return 1 if baseline.fails(changes) else 0


def main():
    args = arguments()
    machine = None if args.figures else Machine(args)
    steps, failed = {"tests": ["--tests"], "sanitize": ["--sanitize"]}, []
    if not (args.record or args.compare):
        steps["bench"] = ["--bench", "--json", machine.out / "bench.json"]
    if args.tests or "bench" in steps:
        failed = run_tests(machine, args.quick, steps)
    if args.record or args.compare:
        status = record(args, machine) if args.record else compare(args, machine)
        return status or (1 if failed else 0)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except baseline.Refused as refused:
        print(f"gpu.py: {refused}", file=sys.stderr)
        sys.exit(2)
