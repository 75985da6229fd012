"""Run by two_architectures.sh in each system: a sealed process takes every kernel of the plan from the layer.

    two_architectures_process.py PLAN COUNTER

PLAN is the file with the plan. COUNTER is the counter that must have all kernels. The process prints one line for each
kernel: its key, the digest of its image, the bytes of the image, and its name.
"""

import hashlib
import pathlib
import sys

import kiln
import tomllib

plan = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["prewarm"]
service = kiln.Service()
for row in plan:
    image = service.compile(row.pop("template"), arch="sm_90a", **row)
    print(image.key, hashlib.sha256(image.cubin).hexdigest(), len(image.cubin), image.specialization)
stats = service.stats()
hits = {name: stats[name] for name in ("layer_hits", "foreign_toolchain", "compiles")}
expected = dict.fromkeys(hits, 0) | {sys.argv[2]: len(plan)}
assert hits == expected, f"counted {hits}, expected {expected}"
