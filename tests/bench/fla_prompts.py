#!/usr/bin/env python3
"""kiln's recurrent operators beside Flash Linear Attention's chunked kernels, for prompts of many lengths.

    tests/bench/fla_prompts.py compile RANK OF    # process RANK of OF compiles its share of Triton's kernels, and launches none
    tests/bench/fla_prompts.py run [SECONDS]      # the table; rows that would begin after SECONDS are left out

The packages fla and einops are on PYTHONPATH, and all processes share TRITON_CACHE_DIR. Settings in the environment:

- FLA_CONFIGS is the number of configurations that each of Triton's autotuners tries. Without it they try all, which takes
  minutes to compile.
- FLA_BEST names a JSON file with the configurations that an earlier run chose. They are then among those that are tried.
- FLA_CHOSEN names such a file, which this run writes.
- FLASHINFER names a library with FlashInfer's kernel as the C functions gdn, for the gated rule, and delta, for the plain one.
  flashinfer_calls() has their arguments. FlashInfer's releases up to 0.6.10 have this kernel in C++. The kernel takes
  normalised q and k, so the time of their norms is missing from its figures.

Times are medians of interleaved replays of captured graphs. Inputs rotate: 12 sets of them, or fewer that take twice the L2.
The autotuners see 4 sequences of 2,048 tokens first, and their keys do not have the number of tokens. Flash Linear Attention's
kernel of RWKV7 gets -kk and kk * a, whose time is missing from its figures.
"""

import ctypes
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import time

import torch
import triton
import triton.testing
from triton.runtime import autotuner, jit

DEVICE = "cuda"
COUNT = int(os.environ.get("FLA_CONFIGS", "0"))
BEST = json.loads(pathlib.Path(os.environ["FLA_BEST"]).read_text()) if os.environ.get("FLA_BEST") else {}
KINDS = ("gated_delta", "kda", "delta", "wkv7")
LENGTHS = (64, 256, 1024, 2048, 8192, 32768)
MIXTURE = tuple(16 + 37 * i * i % 480 for i in range(127))
MIXTURE += (128 * 256 - sum(MIXTURE),)
#: (sequences, tokens of each sequence), or the lengths of one call with cu_seqlens
SHAPES = [(1, t) for t in LENGTHS] + [MIXTURE] + [(4, t) for t in LENGTHS[:-1]]

triton.testing.do_bench = functools.partial(triton.testing.do_bench, warmup=1, rep=6)

# ---- Triton's autotuners

whole = autotuner.Autotuner.prune_configs


def chosen(self, kwargs):
    """A sample of an autotuner's configurations, the same in each process."""
    configs = whole(self, kwargs)
    name = self.base_fn.__name__
    best = [c for c in configs if str(c) in BEST.get(name, ())]
    others = [c for c in configs if c not in best]
    if COUNT and len(others) > COUNT:
        others = [others[i] for i in sorted(random.Random(name).sample(range(len(others)), COUNT))]
    return best + others


def compile_share(rank, of):
    """From now on a kernel's call compiles it if it belongs to this process's share, and launches nothing."""
    done, run = set(), jit.JITFunction.run

    def share(self, *args, grid, warmup, **kwargs):
        binder = self.device_caches[triton.runtime.driver.active.get_current_device()][-1]
        _, specialization, options = binder(*args, **{**kwargs, "debug": False})
        key = f"{self.__module__} {self.__name__} {specialization} {sorted((k, str(v)) for k, v in options.items())}"
        if key in done or int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) % of != rank:
            return
        done.add(key)
        begin = time.perf_counter()
        try:
            run(self, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:  # a configuration that does not fit; the autotuner will leave it out, too
            print(f"{self.__name__} does not compile: {type(error).__name__} {str(error)[:80]!r}")
        print(f"compiled {self.__name__} in {time.perf_counter() - begin:.1f} s", flush=True)

    def each(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        for config in chosen(self, kwargs) if len(self.configs) > 1 else self.configs:
            self.fn.run(*args, **kwargs, **config.all_kwargs())

    jit.JITFunction.run, autotuner.Autotuner.run = share, each


def write_choices(path):
    import gc

    found = {}
    for one in gc.get_objects():
        if issubclass(type(one), autotuner.Autotuner) and one.cache:
            found.setdefault(one.base_fn.__name__, set()).update(str(config) for config in one.cache.values())
    with open(path, "w") as file:
        json.dump({name: sorted(configs) for name, configs in sorted(found.items())}, file, indent=1)


# ---- the calls


@functools.cache
def bounds(lengths):
    """cu_seqlens of a call. One tensor for all calls, because Flash Linear Attention reads each new one on the host."""
    return torch.tensor([0, *itertools.accumulate(lengths)], device=DEVICE)


def inputs(kind, shape):
    """Tensors of one call, by name; [B, T, H, ...], with states before the call."""
    mixed = len(shape) > 2
    sequences, b, t = (len(shape), 1, sum(shape)) if mixed else (shape[0], *shape)
    h, K = (32, 64) if kind == "wkv7" else (16, 128)
    normal = lambda *s: torch.randn(*s, device=DEVICE, dtype=torch.bfloat16)
    x = {"v": normal(b, t, h, K), "initial_state": torch.randn(sequences, h, K, K, device=DEVICE)}
    x["cu_seqlens"] = bounds(shape) if mixed else None
    if kind == "wkv7":
        x |= {name: normal(b, t, h, K) for name in "rk"}
        x["w"] = (-0.6065306597 * torch.sigmoid(torch.randn(b, t, h, K, device=DEVICE) * 2)).bfloat16()
        x["kk"] = torch.nn.functional.normalize(torch.randn(b, t, h, K, device=DEVICE), dim=-1).bfloat16()
        x["a"] = torch.rand(b, t, h, K, device=DEVICE).bfloat16()
        x["minus_kk"], x["b"] = -x["kk"], x["kk"] * x["a"]
        return x
    x |= {name: normal(b, t, h, K) for name in "qk"}
    x["beta"] = torch.rand(b, t, h, device=DEVICE).bfloat16()
    if kind != "delta":
        x["g"] = -0.2 * torch.rand(b, t, h, *((K,) if kind == "kda" else ()), device=DEVICE)
    return x


def kiln_calls(kind, name):
    operator = getattr(torch.ops.kiln, name)
    if kind == "wkv7":
        names = ("r", "w", "k", "v", "a")
        return lambda x: operator(*(x[n] for n in names), kk=x["kk"], initial_state=x["initial_state"], cu_seqlens=x["cu_seqlens"])
    names = ("q", "k", "v", "beta")
    return lambda x: operator(
        *(x[n] for n in names), g=x.get("g"), initial_state=x["initial_state"], cu_seqlens=x["cu_seqlens"], l2norm=True
    )


def fla_calls(kind, shape):
    """The calls that a layer of Flash Linear Attention makes for a prompt; its layers take the recurrent kernel up to 64 tokens (RWKV7: 63)."""
    common = ("initial_state", "cu_seqlens")
    short = len(shape) == 2 and shape[1] <= 64
    if kind == "wkv7":
        from fla.ops.rwkv7 import chunk_rwkv7, fused_mul_recurrent_rwkv7

        bounds = {"safe_gate": True, "lower_bound": -0.6065306597126334, "chunk_size": 64}
        calls = {
            "FLA": lambda x: chunk_rwkv7(
                **{n: x[n] for n in ("r", "w", "k", "v", "b", *common)},
                a=x["minus_kk"],
                scale=1.0,
                output_final_state=True,
                **bounds,
            )
        }
        if short:
            calls["FLA recurrent"] = lambda x: fused_mul_recurrent_rwkv7(
                *(x[n] for n in ("r", "w", "k", "v", "kk", "a")),
                scale=1.0,
                initial_state=x["initial_state"],
                output_final_state=True,
            )
        return calls
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    from fla.ops.kda import chunk_kda, fused_recurrent_kda

    chunk, recurrent = {
        "delta": (chunk_delta_rule, fused_recurrent_delta_rule),
        "gated_delta": (chunk_gated_delta_rule, fused_recurrent_gated_delta_rule),
        "kda": (chunk_kda, fused_recurrent_kda),
    }[kind]
    names = ("q", "k", "v", "beta", *common, *(("g",) if kind != "delta" else ()))

    def call(function, **more):
        return lambda x: function(**{n: x[n] for n in names}, output_final_state=True, use_qk_l2norm_in_kernel=True, **more)

    calls = {"FLA": call(chunk)}
    if kind == "kda":
        calls["FLA safe_gate"] = call(chunk, safe_gate=True)
    if short:
        calls["FLA recurrent"] = call(recurrent)
    return calls


def flashinfer_calls(kind):
    path = os.environ.get("FLASHINFER")
    if not path or kind not in ("delta", "gated_delta"):
        return {}
    function = getattr(ctypes.CDLL(path), "gdn" if kind == "gated_delta" else "delta")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    space = torch.empty(sms * 128, dtype=torch.uint8, device=DEVICE)

    def prepared(x):
        """The inputs of FlashInfer: norms, decays and beta are computed before the call, and states are [N, H, V, K]."""
        if "flashinfer" not in x:
            b, t = x["v"].shape[:2]
            unit = {n: (x[n].float() * torch.rsqrt(x[n].float().square().sum(-1, keepdim=True) + 1e-6)).bfloat16() for n in "qk"}
            lengths = torch.arange(b + 1, device=DEVICE) * t if x["cu_seqlens"] is None else x["cu_seqlens"]
            state = x["initial_state"].mT.contiguous()
            x["flashinfer"] = {
                **unit,
                "v": x["v"],
                "alpha": x["g"].exp() if "g" in x else None,
                "beta": x["beta"].float(),
                "cu": lengths.to(torch.int64),
                "state": state,
                "o": torch.empty_like(x["v"]),
                "final": torch.empty_like(state),
            }
        return x["flashinfer"]

    pointer = lambda tensor: ctypes.c_void_p(None if tensor is None else tensor.data_ptr())

    def call(x):
        y = prepared(x)
        b, t, h, K = x["v"].shape
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        failed = function(
            stream, *(pointer(y[n]) for n in ("o", "final", "q", "k", "v", "state", "alpha", "beta", "cu")), pointer(space),
            len(y["cu"]) - 1, h, h, ctypes.c_int64(b * t), ctypes.c_float(K**-0.5), sms,
        )  # fmt: skip
        if failed:
            raise RuntimeError("FlashInfer refuses the call")
        return y["o"], y["final"].mT

    return {"FlashInfer": call}


# ---- timing


def graph_of(call, sets, launches):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for x in sets:
            call(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for i in range(launches):
            kept.append(call(sets[i % len(sets)]))
            if len(kept) >= len(sets):
                kept.pop(0)
    return graph


def times_of(calls, sets, launches, rounds=7):
    graphs, times = {name: graph_of(call, sets, launches) for name, call in calls.items()}, {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 2:
                times[name].append(begin.elapsed_time(end) * 1e3 / launches)
    return {name: statistics.median(each) for name, each in times.items()}


def difference(got, expected):
    return ((got.float() - expected.float()).square().mean() / expected.float().square().mean()).sqrt().item()


@torch.no_grad()
def measure(kind, shape):
    first = inputs(kind, shape)
    size = sum(t.nbytes for t in first.values() if t is not None)
    count = max(2, min(12, -(-2 * torch.cuda.get_device_properties(0).L2_cache_size // size)))
    sets = [first] + [inputs(kind, shape) for _ in range(count - 1)]
    operator = "wkv7" if kind == "wkv7" else "delta_rule"
    calls = {"kiln": kiln_calls(kind, operator)}
    calls |= {name: kiln_calls(kind, name) for name in ("delta_chunk", "delta_chunk_mma") if kind != "wkv7"}
    calls |= fla_calls(kind, shape) | flashinfer_calls(kind)
    o, state = calls["kiln"](first)
    row = {"kind": kind, "shape": "128 mixed" if len(shape) > 2 else f"{shape[0]} x {shape[1]}", "differs": {}}
    for name in [*calls]:
        try:
            other, final = calls[name](first)[:2]
        except Exception as error:  # such as triton's OutOfResources
            print(f"  {name} refuses: {str(error).splitlines()[0][:100]}", flush=True)
            del calls[name]
            continue
        if name != "kiln":
            row["differs"][name] = max(difference(other, o), difference(final, state))
    row["us"] = times_of(calls, sets, max(8 if size < 64 << 20 else 4, len(sets)))
    return row


def summary(rows):
    """One line for each kind: kiln's time, and how many times as long Flash Linear Attention's fastest kernel takes."""
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        text = [
            f"{row['shape'].replace(' ', '')} {row['us']['kiln']:.0f} {best_of(row)[1] / row['us']['kiln']:.2f}x" for row in own
        ]
        worst = max((max(row["differs"].values()) for row in own), default=0.0)
        print(f"SUM {kind}: {', '.join(text)}; differ {worst:.0e}", flush=True)


def best_of(row):
    """(name, microseconds) of Flash Linear Attention's fastest kernel in this row."""
    return min(((name, value) for name, value in row["us"].items() if name.startswith("FLA")), key=lambda one: one[1])


def line(row):
    us = row["us"]
    best = best_of(row)[0]
    others = "  ".join(f"{name} {value:.1f}" for name, value in us.items() if name not in ("kiln", best))
    worst = max(row["differs"].values())
    return f"{row['kind']:12}{row['shape']:>10}{us['kiln']:9.1f}{us[best]:9.1f} {us[best] / us['kiln']:5.2f} x  {best}  {others}  differ {worst:.1e}"


@torch.no_grad()
def main():
    begin = time.perf_counter()
    if sys.argv[1] == "compile":
        compile_share(int(sys.argv[2]), int(sys.argv[3]))
        for kind in KINDS:
            for shape in SHAPES:
                for call in fla_calls(kind, shape).values():
                    call(inputs(kind, shape))
        return
    import kiln.torch  # noqa: F401

    autotuner.Autotuner.prune_configs = chosen
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 1e9
    print(
        torch.cuda.get_device_name(), f"torch {torch.__version__}, triton {triton.__version__}, FLA configurations {COUNT or 'all'}"
    )
    print(f"{'':12}{'shape':>10}{'kiln':>9}{'FLA':>9}   ratio", flush=True)
    for kind in KINDS:
        for call in fla_calls(kind, (4, 2048)).values():
            call(inputs(kind, (4, 2048)))
    torch.cuda.synchronize()
    print(f"  tuned at {time.perf_counter() - begin:.1f} s", flush=True)
    rows = []
    for shape, kind in itertools.product(SHAPES, KINDS):
        if time.perf_counter() - begin < limit:
            rows.append(measure(kind, shape))
            print(line(rows[-1]), flush=True)
            print("json", json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    summary(rows)
    print(f"  ended at {time.perf_counter() - begin:.1f} s", flush=True)
    if os.environ.get("FLA_CHOSEN"):
        write_choices(os.environ["FLA_CHOSEN"])


if __name__ == "__main__":
    main()
