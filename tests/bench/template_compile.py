#!/usr/bin/env python3
"""The cost of a cold compile of each shipped template, against rms_norm's in the same run. Needs no GPU.

    tests/bench/template_compile.py --kiln build/dev/kiln [--rounds N] [--arch sm_90a]

Each round compiles every specialisation that ships warm into an empty cache with one worker. A template's figures are the medians over
rounds of its middle and its slowest specialisation. Ratios are taken within a round. The limit: no template takes more than twice rms_norm's time.
"""

import argparse
import collections
import json
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--kiln", required=True)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--arch", default="sm_90a")
args = parser.parse_args()

middle, slowest, ratio = (collections.defaultdict(list) for _ in range(3))
count = {}
for _ in range(args.rounds):
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [args.kiln, "prewarm", "-j1", "--json", "--arch", args.arch, "--cache-dir", cache],
            capture_output=True,
            text=True,
            check=True,
        )
    times = collections.defaultdict(list)
    for entry in json.loads(done.stdout)["entries"]:
        times[entry["template"]].append(entry["compile_ms"])
    own = statistics.median(times["rms_norm"])
    for name, ms in times.items():
        count[name] = len(ms)
        middle[name].append(statistics.median(ms))
        slowest[name].append(max(ms))
        ratio[name].append(statistics.median(ms) / own)
print(
    f"{'template':20} {'specialisations':>15} {'middle ms':>10} {'slowest ms':>10} {'x rms_norm':>10}   {args.arch}, {args.rounds} rounds"
)
for name in sorted(middle, key=lambda n: statistics.median(ratio[n])):
    r = statistics.median(ratio[name])
    print(
        f"{name:20} {count[name]:15} {statistics.median(middle[name]):10.0f} {statistics.median(slowest[name]):10.0f} {r:10.2f}{'  above the bar' if r > 2 else ''}"
    )
