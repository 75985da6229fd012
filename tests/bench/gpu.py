#!/usr/bin/env python3
"""Everything that needs a GPU, in one call: tests, the check matrix, the roofline table beside PyTorch.

    tests/bench/gpu.py --build DIR [--out DIR] [--quick]

DIR holds kiln and kiln-worker (and, for the tests, reference_gpu_test and toolchain_gpu_test). Times are L2-cold medians of graph replays,
ours and the peer's by the same method in the same run; the floor is a stream kernel of the same bytes in the same read : write mix.
Without PyTorch the peer columns are left out.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--out", default=None)
parser.add_argument("--quick", action="store_true", help="fewer checks, no torch.compile")
parser.add_argument("--no-tests", action="store_true")
args = parser.parse_args()
build = pathlib.Path(args.build).resolve()
out = pathlib.Path(args.out or tempfile.mkdtemp())
environment = dict(os.environ, LD_LIBRARY_PATH=f"{build}:" + os.environ.get("LD_LIBRARY_PATH", ""), KILN_CACHE_DIR=os.environ.get("KILN_CACHE_DIR", tempfile.mkdtemp() + "/cache"))
failures = []


def kiln(*words):
    done = subprocess.run([build / "kiln", *words], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def case(words):
    code, stdout, stderr = kiln("run", *words.split(), "--json")
    try:
        return code, json.loads(stdout), stderr
    except json.JSONDecodeError:
        return code, {}, stderr + stdout


# ---- tests labelled gpu -------------------------------------------------------------------------------------------------------------
for name in [] if args.no_tests else ["toolchain_gpu_test", "reference_gpu_test", "runtime_gpu_test"]:
    if (build / name).exists():
        done = subprocess.run([build / name], capture_output=True, text=True, env=environment)
        (out / f"{name}.log").write_text(done.stdout + done.stderr)
        last = [l for l in done.stdout.splitlines() if "PASSED" in l or "FAILED" in l or "SKIPPED" in l]
        print(f"{name}: exit {done.returncode}  {last[0].strip() if last else ''}")
        if done.returncode:
            failures.append(name)
            print(done.stdout[-3000:], done.stderr[-1000:])

# ---- check matrix ---------------------------------------------------------------------------------------------------------------------
checks = []
rows = [1, 3, 64, 8192]
hidden = [1, 7, 128, 129, 1000, 2048, 4096, 5001, 8192, 16384, 65536]
for t, h, r in itertools.product(["f32", "f16", "bf16"], hidden, rows):
    checks.append(f"rms_norm T={t} H={h} rows={r}")
for h, r in itertools.product([128, 4096, 5001, 8192, 32768], [1, 64, 1000]):
    checks += [f"rms_norm T=bf16 H={h} rows={r} FUSED_ADD=true", f"rms_norm T=f16 H={h} rows={r} GEMMA=true",
               f"rms_norm T=bf16 H={h} rows={r} OUT=e4m3", f"rms_norm T=f32 H={h} rows={r} FUSED_ADD=true GEMMA=true",
               f"rms_norm T=bf16 H={h} rows={r} FUSED_ADD=true OUT=e4m3"]
checks += ["rms_norm T=bf16 H=4096 rows=100 stride_x=4104 stride_out=5000", "rms_norm T=bf16 H=4096 VEC=1 rows=100 stride_x=4097 stride_out=4099"]
for t, d, r in itertools.product(["f32", "f16", "bf16"], [1, 9, 128, 1000, 4096, 14336, 28672], [1, 64, 2048]):
    checks.append(f"act_and_mul T={t} D={d} rows={r}")
for act, order in itertools.product(["silu", "gelu", "gelu_tanh", "swigluoai"], ["gate_first", "up_first", "interleaved"]):
    checks += [f"act_and_mul T=bf16 D=4096 rows=77 ACT={act} ORDER={order}", f"act_and_mul T=bf16 D=4096 rows=77 ACT={act} ORDER={order} ROUND_GATE=true",
               f"act_and_mul T=bf16 D=4096 rows=77 ACT={act} ORDER={order} OUT=e4m3 GROUP=128"]
checks += ["act_and_mul T=bf16 D=4096 rows=77 OUT=e4m3", "act_and_mul T=f16 D=4096 rows=77 OUT=e4m3 GROUP=64"]
for t, h, r in itertools.product(["f32", "f16", "bf16"], [1, 7, 128, 1000, 4096, 32000, 50257, 128256, 151936], [1, 5, 256]):
    checks.append(f"softmax T={t} H={h} rows={r}")
for h in [128, 32000, 128256]:
    checks += [f"softmax T=f32 H={h} rows=17 LOG=true", f"softmax T=f32 H={h} rows=17 temperature=0.3"]
checks += ["softmax T=f32 H=0 columns=12344 rows=33", "softmax T=bf16 H=0 columns=50000 rows=33 LOG=true"]
if args.quick:
    checks = checks[::7]
started = time.time()
worst = {}
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for words, (code, result, stderr) in zip(checks, pool.map(lambda c: case(c + " --check"), checks)):
        if code != 0:
            failures.append(words)
            print("FAILED", words, json.dumps(result.get("check")) if result.get("check") else stderr[:400])
        for c in result.get("check") or []:
            key = (result["template"], c["argument"], c["dtype"])
            if key not in worst or c["relative_rms"] > worst[key][0]:
                worst[key] = (c["relative_rms"], c["max_abs"], c["tolerance"], words)
print(f"\n{len(checks)} checks in {time.time() - started:.0f} s, worst by output:")
for (template, argument, dtype), (rms, max_abs, tolerance, words) in sorted(worst.items()):
    print(f"  {template:12} {argument:9} {dtype:5} relative RMS {rms:.2e} (allowed {tolerance:.0e}) max {max_abs:.3g}   {words}")

# ---- roofline, beside PyTorch -----------------------------------------------------------------------------------------------------------
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None


def torch_us(make, function):
    """Median time of one call: replays of a graph of at least 20 calls over buffer sets of at least 4 x L2."""
    first = make()
    size = sum(t.numel() * t.element_size() for t in first)
    function(*first)
    result = function(*first)
    size += sum(t.numel() * t.element_size() for t in (result if isinstance(result, tuple) else (result,)) if t is not None)
    sets = max(2, min(64, -(-4 * 60 * 2**20 // size)))
    inputs = [first] + [make() for _ in range(sets - 1)]
    launches = max(20, sets)
    outputs = []
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for x in inputs[:2]:
            function(*x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            outputs.append(function(*inputs[i % sets]))
            if len(outputs) >= sets:
                outputs.pop(0)
    times = []
    for i in range(24):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1000 / launches)
    return sorted(times[3:])[len(times[3:]) // 2]


def peers(name, t, size, r, extra):
    if torch is None:
        return {}
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[t]
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)
    found = {}
    if name == "rms_norm" and "FUSED_ADD" in extra:
        def fused(x, w, residual):
            s = x.float() + residual.float()
            residual.copy_(s.to(dtype))
            return (s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(dtype)
        make, functions = lambda: (new(r, size), new(size), new(r, size)), {"compile": fused}
    elif name == "rms_norm" and "OUT" not in extra:
        def plain(x, w):
            f = x.float()
            return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(dtype)
        make, functions = lambda: (new(r, size), new(size)), {"F.rms_norm": lambda x, w: F.rms_norm(x, (size,), w, 1e-6), "compile": plain}
    elif name == "act_and_mul" and "OUT" not in extra:
        make, functions = lambda: (new(r, 2 * size),), {"compile": lambda x: F.silu(x[:, :size].float()).to(dtype) * x[:, size:]}
    elif name == "softmax":
        make, functions = lambda: (new(r, size),), {"softmax": lambda x: torch.softmax(x, -1), "compile": lambda x: torch.softmax(x, -1)}
    else:
        return {}
    for label, function in functions.items():
        if label == "compile":
            if args.quick:
                continue
            torch._dynamo.reset()
            function = torch.compile(function, dynamic=False)
        found[label] = torch_us(make, function)
    return found


cases = [("rms_norm", "bf16", 8192, 8192, ""), ("rms_norm", "bf16", 8192, 8192, "FUSED_ADD=true"), ("rms_norm", "bf16", 8192, 8192, "OUT=e4m3"),
         ("rms_norm", "f16", 4096, 8192, ""), ("rms_norm", "f32", 4096, 8192, ""), ("rms_norm", "bf16", 128, 327680, ""),
         ("rms_norm", "bf16", 5120, 2048, ""), ("rms_norm", "bf16", 8192, 64, ""), ("rms_norm", "bf16", 4096, 64, ""), ("rms_norm", "bf16", 4096, 1, ""),
         ("act_and_mul", "bf16", 14336, 8192, ""), ("act_and_mul", "bf16", 14336, 8192, "OUT=e4m3 GROUP=128"), ("act_and_mul", "bf16", 14336, 64, ""),
         ("act_and_mul", "f32", 14336, 2048, ""),
         ("softmax", "f32", 128256, 256, ""), ("softmax", "f32", 32000, 1024, ""), ("softmax", "bf16", 128256, 256, ""), ("softmax", "f32", 1024, 8192, ""),
         ("softmax", "f32", 128256, 1, "")]
table = []
for name, t, size, r, extra in cases:
    parameter = "D" if name == "act_and_mul" else "H"
    words = f"{name} T={t} {parameter}={size} rows={r} {extra}".strip()
    code, result, stderr = case(words + " --check --bench")
    if code != 0 or "bench" not in result:
        failures.append(words)
        print("FAILED", words, stderr[:400], json.dumps(result.get("check")))
        continue
    table.append((words, result["bench"], peers(name, t, size, r, extra)))
(out / "gpu.json").write_text(json.dumps([{"case": w, "kiln": b, "peers": p} for w, b, p in table], indent=1))
print(f"\n{'case':58} {'us':>8} {'TB/s':>6} {'stream':>8} {'share':>6}  peers (us)")
for words, b, p in table:
    print(f"{words:58} {b['us']:8.2f} {b['tb_per_s']:6.2f} {b['stream_us']:8.2f} {100 * b['share']:5.1f}%  " + "  ".join(f"{k} {v:.2f}" for k, v in p.items()))
print(f"\n{len(failures)} failures" + (": " + "; ".join(failures[:5]) if failures else ""))
sys.exit(1 if failures else 0)
