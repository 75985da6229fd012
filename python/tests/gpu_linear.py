"""The section linear of gpu_engines_transformers: a layer of Qwen3-Next, and a block and a model of RWKV7, with and without kiln.

The sizes come from Qwen3-Next-80B-A3B and RWKV7 2.9B, with random weights in bf16. Results are compared with f32 and
float64. Times are medians of interleaved replays of captured graphs. transformers and the RWKV7 block of Flash Linear
Attention run its kernels if the package can be imported; the model in f32 runs transformers' own functions. gpu_rwkv7 has
the part for RWKV7.
"""

import contextlib
import copy
import importlib.util
import inspect
import os
import random
import statistics
import unittest.mock

import kiln.engines.transformers as engine
import mixer_checks as checks
import torch
from transformers import DynamicCache
from transformers.models.qwen3_next import modeling_qwen3_next
from transformers_support import model_of

BF16, F64 = torch.bfloat16, torch.float64
PROMPTS, STEPS = ((1, 2048), (1, 8192)), (1, 64)


def graph_of(call):
    """A captured graph of one call."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def times_of(calls, rounds=15):
    """Microseconds of each call, by name."""
    graphs, times = {name: graph_of(call) for name, call in calls.items()}, {name: [] for name in calls}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            begin.record()
            for _ in range(4):
                graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / 4 * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def compare(row, what, calls, times_of=times_of):
    """A row with the times of calls. The last one is without kiln, and none of the others may be slower."""
    *ours, (name, theirs) = times_of(calls).items()
    words = [f"{one} {us:.1f} us ({theirs / us:.2f} x)" for one, us in ours]
    row(all(us <= theirs for _, us in ours), f"{what}: {', '.join(words)}, {name} {theirs:.1f} us")


def timed(guarded, row, what, *more):
    """compare(), whose failure hides no other row."""
    guarded(what, compare, row, what, *more)


def try_few_configurations():
    """Lets Triton's autotuners try FLA_CONFIGS of their configurations at most, for each shape; without the variable, all."""
    from triton.runtime import autotuner

    count, whole = int(os.environ.get("FLA_CONFIGS", "0")), autotuner.Autotuner.prune_configs

    def few(self, kwargs):
        configs = whole(self, kwargs)
        if not count or len(configs) <= count:
            return configs
        return [configs[i] for i in sorted(random.Random(self.base_fn.__name__).sample(range(len(configs)), count))]

    autotuner.Autotuner.prune_configs = few


def compare_errors(row, what, mine, theirs, expected):
    mine, theirs = checks.error_of(mine, expected), checks.error_of(theirs, expected)
    row(mine <= 1.1 * theirs, f"{what}: error of kiln {mine:.2e}, without {theirs:.2e}, ratio {mine / theirs:.2f}")


# ---- Qwen3-Next

SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 1,
    "layer_types": ["linear_attention"],
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "mlp_only_layers": [],
}


def own_functions():
    """Lets transformers compute the gated delta rule by its own functions, which keep f32, instead of by packages."""
    names = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn", "causal_conv1d_update")
    own = {name: inspect.unwrap(getattr(modeling_qwen3_next, name)) for name in names}
    return unittest.mock.patch.multiple(modeling_qwen3_next, **own)


def qwen3_next_layers(row):
    """The first layers by name: "exact" in f32, "kiln", and "transformers" in bf16; and a function that makes an empty cache."""
    torch.manual_seed(3)
    with torch.device("cuda"):
        exact = model_of("qwen3-next", **SIZES)
    exact.set_experts_implementation("eager")
    plain = copy.deepcopy(exact).to(BF16)
    plain.set_experts_implementation("grouped_mm")
    ours = copy.deepcopy(plain)
    table = engine.apply(ours)
    row(not [r for r in table.rows if not r.runs], f"Qwen3-Next: all {len(table.rows)} operations on kiln")
    layers = {"exact": exact, "kiln": ours, "transformers": plain}
    return {name: model.model.layers[0] for name, model in layers.items()}, lambda: DynamicCache(config=exact.config)


#: parts of a layer: the mixer, and the layer with its mixture of experts
QWEN_CALLS = {
    "mixer": lambda layer, x, state: layer.linear_attn(x, cache_params=state),
    "layer": lambda layer, x, state: layer(x, position_embeddings=None, past_key_values=state),
}


@torch.no_grad()
def qwen3_next_errors(row, layers, cache):
    x = torch.randn(2, 2052, 2048, device="cuda", dtype=BF16)
    for what, call in QWEN_CALLS.items():
        got = {}
        for name, layer in layers.items():
            state, given = cache(), x.float() if name == "exact" else x
            parts = [given[:, :2048], *given[:, 2048:].split(1, 1)]
            with own_functions() if name == "exact" else contextlib.nullcontext():
                got[name] = [call(layer, part, state) for part in parts]
        for part, at in (("prompt of 2,048", slice(0, 1)), ("4 steps", slice(1, 5))):
            mine, theirs, expected = (torch.cat(got[name][at], 1) for name in ("kiln", "transformers", "exact"))
            compare_errors(row, f"Qwen3-Next {what}, {part}", mine, theirs, expected)
        del got


@torch.no_grad()
def qwen3_next_times(row, guarded, layers, cache):
    """`layers` has "kiln" and "transformers"."""
    for what, call in QWEN_CALLS.items():
        for batch, tokens in PROMPTS:
            x = torch.randn(batch, tokens, 2048, device="cuda", dtype=BF16)
            prompts = {name: lambda layer=layer: call(layer, x, cache()) for name, layer in layers.items()}
            timed(guarded, row, f"Qwen3-Next {what}, prompt {batch} x {tokens}", prompts)
        for batch in STEPS:
            x = torch.randn(batch, 1, 2048, device="cuda", dtype=BF16)
            states = {name: cache() for name in layers}
            for name, state in states.items():
                call(layers[name], x.expand(batch, 16, 2048).contiguous(), state)
            steps = {name: lambda name=name: call(layers[name], x, states[name]) for name in layers}
            timed(guarded, row, f"Qwen3-Next {what}, step of {batch}", steps)


@torch.no_grad()
def qwen3_next(row, guarded):
    layers, cache = qwen3_next_layers(row)
    qwen3_next_errors(row, layers, cache)
    del layers["exact"]
    torch.cuda.empty_cache()
    qwen3_next_times(row, guarded, layers, cache)


def run(row, say, guarded):
    found = importlib.util.find_spec("fla") is not None
    say(f"Flash Linear Attention {'is' if found else 'is not'} there")
    if found:
        try_few_configurations()
    guarded("Qwen3-Next", qwen3_next, row, guarded)
    if not found:
        return row(True, "RWKV7: Flash Linear Attention is not there, and its block and model are not compared")
    import gpu_rwkv7

    torch.cuda.empty_cache()
    guarded("RWKV7", gpu_rwkv7.blocks, row, say, guarded)
    torch.cuda.empty_cache()
    guarded("RWKV7 model", gpu_rwkv7.models, row, say, guarded)
