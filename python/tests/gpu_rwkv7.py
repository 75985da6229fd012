"""The part of gpu_linear for RWKV7: a block and a model of Flash Linear Attention, with and without kiln.

A block is compared three ways: as Flash Linear Attention has it, by the adapter of kiln.engines.transformers, and as the
modules of kiln.torch with their pools. float64 is the measure of errors.
"""

import copy
import statistics
import time

import kiln.engines.transformers as engine
import kiln.torch
import mixer_checks as checks
import torch
import torch.nn.functional as F
from fla.models.cache_utils import Cache
from fla.models.rwkv7.configuration_rwkv7 import RWKV7Config
from fla.models.rwkv7.modeling_rwkv7 import RWKV7Block, RWKV7ForCausalLM
from gpu_linear import compare_errors, timed

BF16 = torch.bfloat16
HIDDEN, HEAD, LAYERS = 2560, 64, 32
#: sequences and tokens of each
PROMPTS, STEPS = ((1, 2048), (4, 2048), (1, 8192)), (1, 8, 64)


def config_of(layers, **options):
    return RWKV7Config(hidden_size=HIDDEN, head_dim=HEAD, num_hidden_layers=layers, value_dim=[HIDDEN] * layers, **options)


@torch.no_grad()
def randomize(module, embedding=1.0):
    """Gives a module's matrices random values. Flash Linear Attention begins some of them with zeros."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 2 and "r_k" not in name:
            parameter.normal_(std=embedding if "embeddings" in name else parameter.shape[1] ** -0.5)
    return module


# ---- a block


class Block(torch.nn.Module):
    """A block of RWKV7 on kiln.torch, with the weights of Flash Linear Attention's block."""

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


class Called:
    """A block of Flash Linear Attention, called as its model calls it. `states` are caches."""

    def __init__(self, block):
        self.block = block

    def states(self, slots):
        return Cache()

    def __call__(self, x, states, slots, v_first):
        return self.block(x, past_key_values=states, use_cache=True, v_first=v_first)[0]


def in_double(block, x, v_first):
    """The block's result for one sequence in float64, without the channel mix's own check."""
    first, second = block.norms
    normed = F.layer_norm(x.double(), (HIDDEN,), first.weight.double(), first.bias.double(), first.eps)
    y = x.double() + checks.time_mix_in_double(block.mixer, normed, v_first)[0]
    normed = F.layer_norm(y, (HIDDEN,), second.weight.double(), second.bias.double(), second.eps)
    w = checks.to_double(block.ffn)
    mixed = normed + (F.pad(normed, (0, 0, 1, -1)) - normed) * w["mix"]
    return y + F.relu(mixed @ w["key.weight"].T).square() @ w["value.weight"].T


def three_blocks(row, say):
    """The second block of a model three ways, by name. The last one is without kiln."""
    torch.manual_seed(4)
    with torch.device("cuda"):
        block = RWKV7Block(config_of(LAYERS), layer_idx=1).eval()
    theirs = randomize(block).to(BF16)
    adapted = copy.deepcopy(theirs)
    table = engine.apply(adapted)
    say(f"\n{table}")
    row(all(one.runs for one in table.rows), f"RWKV7 block: {len(table.running())} of {len(table.rows)} operations on kiln")
    return {"kiln": Called(adapted), "kiln.torch": Block(copy.deepcopy(theirs)), "FLA": Called(theirs)}


def rewinding(cache):
    """A function that gives a cache the states back that it has now. A captured call reads them in each replay, so they live on."""
    begin = [dict(state) if state else {} for state in cache]

    def rewind():
        for state, first in zip(cache, begin):
            if first:
                state.update(first)

    return rewind


def slots_of(batch):
    return torch.arange(batch, dtype=torch.int32, device="cuda")


def normal(*shape):
    return torch.randn(*shape, HIDDEN, device="cuda", dtype=BF16)


@torch.no_grad()
def block_errors(row, blocks):
    x, v_first = normal(2, 260), normal(2, 260)
    expected = torch.stack([in_double(blocks["kiln.torch"], x[n], v_first[n]) for n in range(2)])
    parts = [(0, 256), *((i, i + 1) for i in range(256, 260))]
    got = {}
    for name, block in blocks.items():
        states = block.states(2)
        got[name] = [block(x[:, a:b].contiguous(), states, slots_of(2), v_first[:, a:b].contiguous()) for a, b in parts]
    for part, at, of in (("prompt of 256", slice(0, 1), slice(0, 256)), ("4 steps", slice(1, 5), slice(256, 260))):
        *ours, (_, theirs) = ((name, torch.cat(each[at], 1)) for name, each in got.items())
        for name, mine in ours:
            compare_errors(row, f"RWKV7 block, {part}, {name}", mine, theirs, expected[:, of])
            apart = checks.error_of(mine, theirs)
            row(apart < 2e-2, f"RWKV7 block, {part}, {name}: {apart:.1e} from Flash Linear Attention's result")


def host_times_of(calls, rounds=7, count=20):
    """Microseconds of calls that are not captured, by name: their launches take the host longer than the device."""
    times = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            torch.cuda.synchronize()
            if turn:
                times[name].append((time.perf_counter() - begin) / count * 1e6)
    return {name: statistics.median(each) for name, each in times.items()}


@torch.no_grad()
def prompt_calls(blocks, batch, tokens):
    x, v_first, slots = normal(batch, tokens), normal(batch, tokens), slots_of(batch)
    pool = blocks["kiln.torch"].states(batch)
    states = lambda name, block: pool if name == "kiln.torch" else block.states(batch)
    return {name: lambda name=name, block=block: block(x, states(name, block), slots, v_first) for name, block in blocks.items()}


@torch.no_grad()
def step_calls(blocks, batch):
    """Steps after a prompt of 16 tokens. A cache gives each call the same states, and a pool gives the last ones."""
    x, v_first, slots = normal(batch, 16), normal(batch, 16), slots_of(batch)
    states = {name: block.states(batch) for name, block in blocks.items()}
    for name, block in blocks.items():
        block(x, states[name], slots, v_first)
    x, v_first = normal(batch, 1), normal(batch, 1)
    rewind = {name: (lambda: None) if name == "kiln.torch" else rewinding(states[name]) for name in blocks}

    def step(name):
        rewind[name]()
        return blocks[name](x, states[name], slots, v_first)

    return {name: lambda name=name: step(name) for name in blocks}


@torch.no_grad()
def block_times(row, guarded, blocks):
    for batch, tokens in PROMPTS:
        timed(guarded, row, f"RWKV7 block, prompt {batch} x {tokens}", prompt_calls(blocks, batch, tokens))
    for batch in STEPS:
        calls = step_calls(blocks, batch)
        timed(guarded, row, f"RWKV7 block, step of {batch}", calls)
        timed(guarded, row, f"RWKV7 block, step of {batch}, not captured", calls, host_times_of)


@torch.no_grad()
def blocks(row, say, guarded):
    three = three_blocks(row, say)
    block_errors(row, three)
    block_times(row, guarded, three)


# ---- a model, by the adapter


def forced(model, ids, prompt):
    """(logits of the prompt, logits of the steps after it)."""
    out = model(ids[:, :prompt], use_cache=True)
    logits, cache = [out.logits], out.past_key_values
    for at in range(prompt, ids.shape[1]):
        logits.append(model(ids[:, at : at + 1], past_key_values=cache, use_cache=True).logits)
    return logits[0].float(), torch.cat(logits[1:], 1).float()


@torch.no_grad()
def model_errors(row, say, layers):
    """Compares logits. Returns the models in bf16 by name; the last one is without kiln."""
    torch.manual_seed(4)
    with torch.device("cuda"):
        exact = randomize(RWKV7ForCausalLM(config_of(layers, vocab_size=1024)).eval())
    theirs, ours = copy.deepcopy(exact).to(BF16), copy.deepcopy(exact).to(BF16)
    engine.apply(exact)  # in f32, where it needs no kernels that Triton tunes
    table = engine.apply(ours)
    say(f"\n{table}")
    row(all(one.runs for one in table.rows), f"RWKV7 model: {len(table.running())} of {len(table.rows)} operations on kiln")
    ids = torch.randint(1, 1024, (2, 260), device="cuda")
    expected, mine, other = (forced(model, ids, 256) for model in (exact, ours, theirs))
    for what, *three in zip(("prompt of 256", "4 steps"), mine, other, expected):
        compare_errors(row, f"RWKV7 model, {what}", *three)
        row(checks.error_of(three[1], three[2]) < 0.1, f"RWKV7 model, {what}: the model without kiln has the same logits")
    return {"kiln": ours, "FLA": theirs}


@torch.no_grad()
def model_times(row, guarded, models, layers):
    for batch, tokens in PROMPTS:
        ids = torch.randint(1, 1024, (batch, tokens), device="cuda")
        timed(
            guarded,
            row,
            f"RWKV7 model of {layers} layers, prompt {batch} x {tokens}",
            {name: lambda model=model: model(ids, use_cache=True, logits_to_keep=1) for name, model in models.items()},
        )
    for batch in STEPS:
        ids = torch.randint(1, 1024, (batch, 16), device="cuda")
        caches = {name: model(ids, use_cache=True).past_key_values for name, model in models.items()}
        rewind = {name: rewinding(cache) for name, cache in caches.items()}

        def step(name):
            rewind[name]()
            return models[name](ids[:, :1], past_key_values=caches[name], use_cache=True).logits

        timed(guarded, row, f"RWKV7 model of {layers} layers, step of {batch}", {n: lambda n=n: step(n) for n in models})


def models(row, say, guarded, layers=4):
    both = model_errors(row, say, layers)
    torch.cuda.empty_cache()
    model_times(row, guarded, both, layers)
