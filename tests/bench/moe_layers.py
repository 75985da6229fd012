#!/usr/bin/env python3
"""Times of whole mixtures of experts: kiln's fused_moe beside a stream, torch and the peers, as docs/guide/pytorch/moe.md shows them.

    tests/bench/moe_layers.py [--layer NAME,...] [--dtype bf16|fp8] [--tokens N,...] [--warm] [--json FILE]

Every launch goes from logits to the output of the layer in one captured graph, and the graphs take turns in a random order. The
weights of several layers take turns inside a graph, so that they come from device memory. Weights in fp8 have a scale for each
128 x 128 elements.

- The floor of few tokens is kiln_stream, which reads as many bytes as the experts that have tokens. The floor of many tokens is the
  time of the products at the peak that kiln_wgmma reaches, if that is longer.
- Every launch is compared with float64 on some tokens; kiln's results must have the same bits twice.
- torch is two torch._grouped_mm with the gather and the sum around them.
- BENCH_PEERS names a Python module with other projects' kernels: its get("moe_layers") is a dictionary of label ->
  factory(case), whose result is called with a Set and returns the output. A factory may return None. If the result has
  prepare(sets), that is called before a capture.
- --warm makes each launch once, untimed, so that it compiles. --json writes all figures to a file.

It needs the Python package of kiln, and KILN_LIBRARY as tests/templates/run.py does. Exit status 1 when a result is wrong.
"""

import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import pathlib
import random
import statistics
import sys

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "templates"))
import harness
import kiln
import kiln.torch
from kiln.torch import _fused_moe, _moe

TOKENS = (1, 4, 16, 64, 256, 4096, 32768)
FEW = 256  # tokens up to which a layer is bound by the bytes of its weights
LAYERS_IN_TURN = 4
COMPARED = 16  # tokens of a call
#: Relative RMS errors of kiln; other launches may have twice as much, because some round more often. A rounding to e4m3 has
#: one of about 2.6 %, and x and the activations are rounded.
TOLERANCE = {"bf16": 6e-3, "fp8": 6e-2}


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    experts: int  # that a token chooses from
    local: int  # with weights here
    k: int
    hidden: int
    inner: int
    grouped: bool = False  # DeepSeek's gate: sigmoid, a bias, 8 groups of which 4 are chosen
    bars: tuple = ()  # TFLOP/s for many tokens in bf16 and in fp8


LAYERS = (
    Layer("Qwen3-30B-A3B", 128, 128, 8, 2048, 768, bars=(450, 750)),
    Layer("Mixtral 8x7B", 8, 8, 2, 4096, 14336, bars=(550, 950)),
    Layer("DeepSeek-V3, 32 experts", 256, 32, 8, 7168, 2048, grouped=True),
)


# ---- data


@dataclasses.dataclass
class Weights:
    w13: torch.Tensor
    w2: torch.Tensor
    w13_scale: torch.Tensor | None = None
    w2_scale: torch.Tensor | None = None

    @property
    def expert_bytes(self):
        return sum(t[0].nbytes for t in (self.w13, self.w2, self.w13_scale, self.w2_scale) if t is not None)

    @functools.cached_property
    def wide(self):
        """w13 and w2 in float64, with their scales."""
        return tuple(wide(*pair) for pair in ((self.w13, self.w13_scale), (self.w2, self.w2_scale)))


def wide(weight, scale):
    out = weight.double()
    for expert, factors in zip(out, () if scale is None else scale.double()):
        expert *= factors.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return out


@dataclasses.dataclass
class Set:
    """The operands of one call."""

    x: torch.Tensor
    logits: torch.Tensor
    weights: Weights


def make_weights(layer, dtype):
    def one(rows, columns):
        return torch.empty(layer.local, rows, columns, dtype=torch.bfloat16, device="cuda").normal_(std=columns**-0.5)

    w13, w2 = one(2 * layer.inner, layer.hidden), one(layer.hidden, layer.inner)
    if dtype == "bf16":
        return Weights(w13, w2)
    (w13, s13), (w2, s2) = _moe.quantize(w13), _moe.quantize(w2)
    return Weights(w13, w2, s13, s2)


class Case:
    """A layer with a number of tokens, and what every launch of it shares."""

    def __init__(self, layer, dtype, tokens):
        self.layer, self.dtype, self.tokens = layer, dtype, tokens
        self.pairs = tokens * layer.k
        self.gate = {"k": layer.k}
        self.map = None
        if layer.grouped:
            bias = torch.randn(layer.experts, device="cuda") * 0.01
            self.gate |= dict(score="sigmoid", groups=8, topk_groups=4, scale=2.5)
            self.gate["correction_bias"] = bias
        if layer.local < layer.experts:
            self.map = torch.full((layer.experts,), -1, dtype=torch.int32, device="cuda")
            self.map[: layer.local] = torch.arange(layer.local, dtype=torch.int32)

    @property
    def fp8(self):
        return self.dtype == "fp8"

    def call(self, operands):
        """The arguments of fused_moe."""
        w = operands.weights
        return dict(
            x=operands.x,
            w13=w.w13,
            w2=w.w2,
            logits=operands.logits,
            expert_map=self.map,
            w13_scale=w.w13_scale,
            w2_scale=w.w2_scale,
            **self.gate,
        )

    def route(self, operands, block):
        """weights, sorted_token_ids, expert_ids, num_tokens_post_padded and inverse of moe_route, or of topk_gate and moe_align."""
        gate = {name: value for name, value in self.gate.items() if name != "correction_bias"}
        gate["bias"] = self.gate.get("correction_bias")
        local = {"expert_map": self.map, "local_only": self.map is not None}
        if self.tokens <= _fused_moe.MOST_TOKENS_OF_ROUTE:
            weights, _, *rows = torch.ops.kiln.moe_route(operands.logits, block=block, **gate, **local)
        else:
            weights, ids = torch.ops.kiln.topk_gate(operands.logits, **gate)
            rows = torch.ops.kiln.moe_align(ids, self.layer.experts, block, **local)
        return weights, *rows

    def ids(self, operands):
        """The chosen experts of each token, with the numbers that they have here, and -1 for experts of other GPUs."""
        _, ids = _moe.route(_fused_moe.Call(**self.call(operands)))
        return ids if self.map is None else self.map.long()[ids.long()]


def make_sets(case, weights, count):
    return [
        Set(
            torch.randn(case.tokens, case.layer.hidden, device="cuda").bfloat16(),
            torch.randn(case.tokens, case.layer.experts, device="cuda"),  # f32: no two logits of a token are equal
            weights[i % len(weights)],
        )
        for i in range(count)
    ]


# ---- launches


def fused(case):
    return lambda operands: torch.ops.kiln.fused_moe(**case.call(operands))


def grouped(case):
    """torch._grouped_mm for both products. Rows of experts that are not here are sorted to the end."""
    if case.fp8:
        return None
    layer, arange = case.layer, torch.arange(case.layer.local, device="cuda", dtype=torch.int32)
    names = {name: value for name, value in case.gate.items() if name != "correction_bias"}

    def launch(operands):
        weights, ids = torch.ops.kiln.topk_gate(operands.logits, bias=case.gate.get("correction_bias"), **names)
        ids = ids.flatten()
        if case.map is not None:
            ids = case.map[ids.long()]
            ids = torch.where(ids < 0, layer.local, ids)
            weights = weights.flatten() * (ids < layer.local)
        ordered, order = ids.sort()
        ends = torch.searchsorted(ordered, arange, right=True, out_int32=True)
        rows = operands.x[order // layer.k]
        gate, up = torch._grouped_mm(rows, operands.weights.w13.transpose(-2, -1), offs=ends).chunk(2, -1)
        y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, operands.weights.w2.transpose(-2, -1), offs=ends)
        if case.map is not None:  # the rows after the last expert have no values
            y = torch.where((ordered < layer.local)[:, None], y, 0)
        y = y * weights.flatten()[order, None].to(y.dtype)
        return torch.zeros_like(operands.x).index_add_(0, order // layer.k, y)

    return launch


def launches_of(case):
    factories = {"kiln": fused, "torch": grouped, **harness.peers.get("moe_layers")}
    made = {label: factory(case) for label, factory in factories.items()}
    return {label: launch for label, launch in made.items() if launch}


@contextlib.contextmanager
def counted():
    """Yields a list, which has the names of the operators that fused_moe launches inside of the context."""
    kernels, names = _fused_moe._kernels, []

    def counting(name, launch):
        def call(*arguments, **named):
            names.append(name)
            return launch(*arguments, **named)

        return call

    _fused_moe._kernels = {name: counting(name, launch) for name, launch in kernels.items()}
    try:
        yield names
    finally:
        _fused_moe._kernels = kernels


# ---- what is measured


def exact(case, operands, some):
    """The rows `some` of the output in float64. Weights in fp8 count as what they stand for."""
    w13, w2 = operands.weights.wide
    call = case.call(operands) | dict(w13=w13, w2=w2, w13_scale=None, w2_scale=None)
    call |= dict(x=operands.x[some].double(), logits=operands.logits[some].double())
    return _moe.plain(_fused_moe.Call(**call))


def replays_of(sets, launches, seconds):
    """Median microseconds of a call by label. The labels take turns in a random order."""
    timed = {}
    for label, launch in launches.items():
        try:
            getattr(launch, "prepare", lambda sets: None)(sets)
            timed[label] = harness.Timed([(operands,) for operands in sets], launch, len(sets))
        except Exception as error:  # a peer that refuses this row is left out
            if label == "kiln":
                raise
            print(f"  {label} refuses: {str(error).splitlines()[0][:200]}", flush=True)
    for _ in range(2):
        for one in timed.values():
            one.replay()
    round_us = sum(one.times[-1] * one.launches for one in timed.values())
    for one in timed.values():
        one.times.clear()
    order = random.Random(1)  # a launch at the limit of power is slower after one that heats the GPU
    for _ in range(max(5, min(21, int(seconds * 1e6 / round_us)))):
        for one in order.sample(list(timed.values()), len(timed)):
            one.replay()
    return {label: one.us for label, one in timed.items()}


def stream_of(size):
    """The launches of kiln_stream that read `size` bytes, a multiple of 16, which rotate through more memory than the L2 has."""
    copies, step = max(2, -(-4 * harness.l2_bytes() // size)), size // 4
    source, target, at = torch.randn(step * copies + 4, device="cuda"), torch.empty(4, device="cuda"), [0]

    def launch(unroll):
        stream = harness.kernel("kiln_stream", UNROLL=unroll)

        def read(_):
            at[0] = (at[0] + 1) % copies
            stream(source[at[0] * step :], target, size, 0)

        return read

    return {f"stream {unroll}": launch(unroll) for unroll in (1, 2)}


@functools.cache
def peak(dtype, steps=400):
    """Products in TFLOP/s of tensor cores that do nothing else."""
    product, out = harness.kernel("kiln_wgmma", T="bf16" if dtype == "bf16" else "e4m3"), torch.empty(1, device="cuda")
    timed = harness.Timed([()], lambda: product(out, steps))
    for _ in range(9):
        timed.replay()
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    return processors * 2 * steps * 2 * 64 * 256 * (64 if dtype == "bf16" else 128) / min(timed.times) / 1e6


def compared(case, launches, operands):
    """Relative RMS errors by label, and whether kiln's bits are the same twice."""
    some = torch.linspace(0, case.tokens - 1, min(COMPARED, case.tokens)).long().cuda()
    want, errors = exact(case, operands, some), {}
    for label, launch in launches.items():
        try:
            errors[label] = harness.relative_rms(launch(operands)[some], want)
        except Exception as error:
            if label == "kiln":
                raise
            print(f"  {label} refuses: {str(error).splitlines()[0][:200]}", flush=True)
    return errors, torch.equal(launches["kiln"](operands), launches["kiln"](operands))


def wrong_ones(case, errors):
    return [label for label, error in errors.items() if not error <= TOLERANCE[case.dtype] * (1 if label == "kiln" else 2)]


def measured(case, weights, seconds):
    """The figures of one row."""
    layer, launches = case.layer, launches_of(case)
    first = make_sets(case, weights, 1)
    with counted() as names:
        launches["kiln"](first[0])
    errors, same = compared(case, launches, first[0])
    expert_bytes = weights[0].expert_bytes
    guess = expert_bytes * len(set(case.ids(first[0]).flatten().tolist()) - {-1})
    sets = make_sets(case, weights, 2 if case.tokens > 8192 else max(4, min(20, int(2.4e9 / max(1, guess)))))
    local = [case.ids(operands) for operands in sets]
    touched = statistics.mean(len(set(ids.flatten().tolist()) - {-1}) for ids in local) * expert_bytes
    flops = 6 * layer.hidden * layer.inner * statistics.mean(int((ids >= 0).sum()) for ids in local)
    us = replays_of(sets, launches | stream_of(int(touched) // 16 * 16), seconds)
    read_us = min(us.pop("stream 1"), us.pop("stream 2"))
    product_us = flops / peak(case.dtype) / 1e6
    return {
        "layer": layer.name,
        "dtype": case.dtype,
        "tokens": case.tokens,
        "us": us,
        "read_us": read_us,
        "product_us": product_us,
        "floor_us": max(read_us, product_us),
        "bytes": touched,
        "tflops": flops / us["kiln"] / 1e6,
        "peak": peak(case.dtype),
        "launches": names,
        "errors": errors,
        "same_bits": same,
        "calls": len(sets),
        "wrong": [*wrong_ones(case, errors), *([] if same else ["bits"])],
        **verdict(layer, case, us, read_us, flops, len(names)),
    }


def verdict(layer, case, us, read_us, flops, launches):
    """The bar of a row in microseconds, and kiln's speed over the best other one."""
    others = {label: time for label, time in us.items() if label != "kiln"}
    best = min(others, key=others.get) if others else None
    bar = None
    if case.tokens <= FEW:
        bar = 1.25 * read_us + 2 * launches
    elif layer.bars:
        bar = flops / layer.bars[case.fp8] / 1e6
    return {"bar_us": bar, "best": best, "ahead": others[best] / us["kiln"] if best else None}


# ---- the table


def line(row):
    us = row["us"]
    cells = [f"{row['layer']}, {row['dtype']}", row["tokens"], f"{us['kiln']:,.1f}", f"{row['floor_us']:,.1f}"]
    cells += [f"{row['tflops']:,.0f}" if row["tokens"] > FEW else "", f"{row['bar_us']:,.1f}" if row["bar_us"] else ""]
    cells += [", ".join(f"{label} {time:,.1f}" for label, time in us.items() if label != "kiln")]
    cells += [f"{row['ahead']:.2f}" if row["ahead"] else ""]
    cells += [", ".join(f"{label} {error:.1e}" for label, error in row["errors"].items())]
    marks = ["WRONG: " + ", ".join(row["wrong"])] if row["wrong"] else []
    marks += ["below the bar"] if row["bar_us"] and us["kiln"] > row["bar_us"] else []
    marks += ["behind " + row["best"]] if row["ahead"] and row["ahead"] < 1 else []
    return "| " + " | ".join(map(str, cells)) + " | " + "; ".join(marks)


def warmed(case, weights):
    for label, launch in launches_of(case).items():
        if label == "torch":  # compiles nothing
            continue
        try:
            launch(make_sets(case, weights, 1)[0])
            torch.cuda.synchronize()
        except Exception as error:
            print(f"  {label} refuses {case.tokens} tokens: {str(error).splitlines()[0][:200]}", flush=True)


def main(words=None, alone=contextlib.nullcontext):
    """Measures what `words` select. `alone` makes a context in which nothing else uses the device. Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--layer", default=",".join(layer.name.split()[0].strip(",") for layer in LAYERS), help="names, or their beginnings"
    )
    parser.add_argument("--dtype", default="bf16,fp8")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)))
    parser.add_argument("--seconds", type=float, default=0.5, help="for the replays of a row")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args(words)
    rows = []
    print("| layer | T | kiln | floor | TFLOP/s | bar | others | ahead | relative RMS errors |", flush=True)
    for layer in LAYERS:
        if not any(layer.name.startswith(name) for name in args.layer.split(",")):
            continue
        for dtype in args.dtype.split(","):
            with contextlib.nullcontext() if args.warm else alone(), torch.inference_mode():
                torch.manual_seed(1)
                weights = [make_weights(layer, dtype) for _ in range(1 if args.warm else LAYERS_IN_TURN)]
                if args.warm:
                    peak(dtype), stream_of(16)
                for tokens in map(int, args.tokens.split(",")):
                    case = Case(layer, dtype, tokens)
                    if args.warm:
                        warmed(case, weights)
                    else:
                        rows.append(measured(case, weights, args.seconds))
                        print(line(rows[-1]), flush=True)
                    torch.cuda.empty_cache()
                del weights
                torch.cuda.empty_cache()
            if args.json:
                write(args.json, rows)
    return 1 if any(row["wrong"] for row in rows) else 0


def write(path, rows):
    facts = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "kiln": kiln.__version__}
    facts["date"] = datetime.date.today().isoformat()
    pathlib.Path(path).write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
