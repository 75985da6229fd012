"""The section linear of gpu_engines_transformers: a layer of Qwen3-Next, and a block and a model of RWKV7, with and without kiln.

The sizes come from Qwen3-Next-80B-A3B and RWKV7 2.9B, with random weights in bf16. Results are compared with f32 and
float64. Times are medians of interleaved replays of captured graphs. transformers and the RWKV7 block of Flash Linear
Attention run its kernels if the package can be imported; the model in f32 runs transformers' own functions.
"""

import contextlib
import copy
import importlib.util
import inspect
import statistics
import unittest.mock

import kiln.engines.transformers as engine
import kiln.torch
import mixer_checks as checks
import torch
import torch.nn.functional as F
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


def compare(row, what, calls, least=1.0):
    """A row with the times of a call on kiln and without it."""
    times = times_of(calls)
    (mine, theirs), (_, name) = times.values(), times
    row(theirs >= least * mine, f"{what}: kiln {mine:.1f} us, {name} {theirs:.1f} us, ratio {theirs / mine:.2f}")


def timed(guarded, row, what, calls):
    """compare(), whose failure hides no other row."""
    guarded(what, compare, row, what, calls)


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


# ---- RWKV7

HIDDEN, HEAD = 2560, 64


class Block(torch.nn.Module):
    """A block of RWKV7 on kiln, with the weights of Flash Linear Attention's block."""

    def __init__(self, block):
        super().__init__()
        self.norms = torch.nn.ModuleList([block.attn_norm, block.ffn_norm])
        self.mixer, self.ffn = kiln.torch.RWKV7.of(block.attn), kiln.torch.RWKV7ChannelMix.of(block.ffn)

    def states(self, slots):
        return self.mixer.states(slots), self.ffn.states(slots)

    def forward(self, x, states, slots, v_first):
        first, second = ((norm.weight, norm.bias, norm.eps) for norm in self.norms)
        y, _ = self.mixer(kiln.torch.layer_norm(x, *first), states[0], slots, v_first, x)
        return self.ffn(kiln.torch.layer_norm(y, *second), states[1], slots, y)


def in_double(block, x, v_first):
    """The block's result for one sequence in float64, without the channel mix's own check."""
    first, second = block.norms
    normed = F.layer_norm(x.double(), (HIDDEN,), first.weight.double(), first.bias.double(), first.eps)
    y = x.double() + checks.time_mix_in_double(block.mixer, normed, v_first)[0]
    normed = F.layer_norm(y, (HIDDEN,), second.weight.double(), second.bias.double(), second.eps)
    w = checks.to_double(block.ffn)
    mixed = normed + (F.pad(normed, (0, 0, 1, -1)) - normed) * w["mix"]
    return y + F.relu(mixed @ w["key.weight"].T).square() @ w["value.weight"].T


def fla_block():
    """A block of Flash Linear Attention with random weights, the second of 32."""
    from fla.models.rwkv7.configuration_rwkv7 import RWKV7Config
    from fla.models.rwkv7.modeling_rwkv7 import RWKV7Block

    torch.manual_seed(4)
    config = RWKV7Config(hidden_size=HIDDEN, head_dim=HEAD, num_hidden_layers=32, value_dim=[HIDDEN] * 32)
    with torch.device("cuda"):
        block = RWKV7Block(config, layer_idx=1).eval()
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if parameter.dim() == 2 and "r_k" not in name:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    return block.to(BF16)


def fla_call(block):
    return lambda x, v_first, cache: block(x, past_key_values=cache, use_cache=True, v_first=v_first)[0]


@torch.no_grad()
def rwkv7_errors(row, ours, theirs):
    from fla.models.cache_utils import Cache

    x, v_first = (torch.randn(2, 260, HIDDEN, device="cuda", dtype=BF16) for _ in range(2))
    expected = torch.stack([in_double(ours, x[n], v_first[n]) for n in range(2)])
    slots, states, cache = torch.arange(2, dtype=torch.int32, device="cuda"), ours.states(2), Cache()
    parts = [(0, 256), *((i, i + 1) for i in range(256, 260))]
    mine = [ours(x[:, a:b], states, slots, v_first[:, a:b]) for a, b in parts]
    other = [fla_call(theirs)(x[:, a:b], v_first[:, a:b], cache) for a, b in parts]
    for part, at, of in (("prompt of 256", slice(0, 1), slice(0, 256)), ("4 steps", slice(1, 5), slice(256, 260))):
        compare_errors(row, f"RWKV7 block, {part}", torch.cat(mine[at], 1), torch.cat(other[at], 1), expected[:, of])


@torch.no_grad()
def rwkv7_times(row, guarded, ours, theirs):
    from fla.models.cache_utils import Cache

    fla, slots = fla_call(theirs), torch.arange(64, dtype=torch.int32, device="cuda")
    for batch, tokens in PROMPTS:
        x, v_first = (torch.randn(batch, tokens, HIDDEN, device="cuda", dtype=BF16) for _ in range(2))
        states = ours.states(batch)
        prompts = {"kiln": lambda: ours(x, states, slots[:batch], v_first), "FLA": lambda: fla(x, v_first, Cache())}
        timed(guarded, row, f"RWKV7 block, prompt {batch} x {tokens}", prompts)
    for batch in STEPS:
        x, v_first = (torch.randn(batch, 1, HIDDEN, device="cuda", dtype=BF16) for _ in range(2))
        states, cache = ours.states(batch), Cache()
        fla(x.expand(batch, 16, HIDDEN).contiguous(), v_first.expand(batch, 16, HIDDEN).contiguous(), cache)
        steps = {"kiln": lambda: ours(x, states, slots[:batch], v_first), "FLA": lambda: fla(x, v_first, cache)}
        timed(guarded, row, f"RWKV7 block, step of {batch}", steps)


@torch.no_grad()
def rwkv7(row, guarded):
    if importlib.util.find_spec("fla") is None:
        return row(True, "RWKV7: Flash Linear Attention is not there, and its block is not compared")
    theirs = fla_block()
    ours = Block(theirs)
    rwkv7_errors(row, ours, theirs)
    rwkv7_times(row, guarded, ours, theirs)


# ---- a model of RWKV7, by the adapter


def fla_model(layers=4):
    """A model of Flash Linear Attention with random weights in f32."""
    from fla.models.rwkv7.configuration_rwkv7 import RWKV7Config
    from fla.models.rwkv7.modeling_rwkv7 import RWKV7ForCausalLM

    torch.manual_seed(4)
    config = RWKV7Config(hidden_size=HIDDEN, head_dim=HEAD, num_hidden_layers=layers, value_dim=[HIDDEN] * layers, vocab_size=1024)
    with torch.device("cuda"):
        model = RWKV7ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "r_k" not in name:
                parameter.normal_(std=1.0 if "embeddings" in name else parameter.shape[1] ** -0.5)
    return model


def forced(model, ids, prompt):
    """(logits of the prompt, logits of the steps after it)."""
    out = model(ids[:, :prompt], use_cache=True)
    logits, cache = [out.logits], out.past_key_values
    for at in range(prompt, ids.shape[1]):
        logits.append(model(ids[:, at : at + 1], past_key_values=cache, use_cache=True).logits)
    return logits[0].float(), torch.cat(logits[1:], 1).float()


@torch.no_grad()
def rwkv7_model(row, say, guarded):
    if importlib.util.find_spec("fla") is None:
        return row(True, "RWKV7: Flash Linear Attention is not there, and its model is not compared")
    exact = fla_model()
    theirs, ours = copy.deepcopy(exact).to(BF16), copy.deepcopy(exact).to(BF16)
    engine.apply(exact)  # in f32, where it needs no kernels that Triton tunes
    table = engine.apply(ours)
    say(f"\n{table}")
    left = {one.operator for one in table.rows if not one.runs}
    row(
        left <= {"layer_norm"} and table.running(),
        f"RWKV7 model: {len(table.running())} operations on kiln, not {left or 'one'} of them",
    )
    ids = torch.randint(1, 1024, (2, 260), device="cuda")
    expected, mine, other = (forced(model, ids, 256) for model in (exact, ours, theirs))
    for what, *three in zip(("prompt of 256", "4 steps"), mine, other, expected):
        compare_errors(row, f"RWKV7 model, {what}", *three)
        row(checks.error_of(three[1], three[2]) < 0.1, f"RWKV7 model, {what}: the model without kiln has the same logits")
    del exact
    torch.cuda.empty_cache()
    models = {"kiln": ours, "FLA": theirs}
    for batch, tokens in PROMPTS:
        ids = torch.randint(1, 1024, (batch, tokens), device="cuda")
        timed(
            guarded,
            row,
            f"RWKV7 model of 4 layers, prompt {batch} x {tokens}",
            {name: lambda model=model: model(ids, use_cache=True, logits_to_keep=1) for name, model in models.items()},
        )
    for batch in STEPS:
        ids = torch.randint(1, 1024, (batch, 16), device="cuda")
        caches = {name: model(ids, use_cache=True).past_key_values for name, model in models.items()}
        step = lambda name: models[name](ids[:, :1], past_key_values=caches[name], use_cache=True)
        timed(guarded, row, f"RWKV7 model of 4 layers, step of {batch}", {name: lambda name=name: step(name) for name in models})


def run(row, say, guarded):
    found = importlib.util.find_spec("fla") is not None
    say(f"Flash Linear Attention {'is' if found else 'is not'} there")
    guarded("Qwen3-Next", qwen3_next, row, guarded)
    torch.cuda.empty_cache()
    guarded("RWKV7", rwkv7, row, guarded)
    torch.cuda.empty_cache()
    guarded("RWKV7 model", rwkv7_model, row, say, guarded)
