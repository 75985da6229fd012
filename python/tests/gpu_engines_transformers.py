"""transformers' models on kiln, on a GPU:

    python3 python/tests/gpu_engines_transformers.py              # everything; exits 1 when a row fails
    python3 python/tests/gpu_engines_transformers.py accuracy     # one section of these

- accuracy: logits of kiln and of plain transformers in bf16, both against the same model in f32. The error of
  kiln may be 1.1 times the other, for prompts and decode steps, with dynamic and static caches.
- speed: a Llama with the shapes of an 8B model, 8 layers and batch 16, compiled with CUDA graphs.
- mixture: a Qwen3-MoE with the shapes of Qwen3-30B-A3B, 8 layers and batch 16, as in speed; without kiln its experts run on
  torch's grouped_mm.
- prompts: the same Llama with prompts of 2,048 and 8,192 tokens: seconds beside transformers, not compiled and compiled.
- linear: a layer of Qwen3-Next, and a block and a model of RWKV7, prompts and decode steps, with and without kiln
  (gpu_linear).
- generate: greedy tokens of generate() with both caches; with a static cache it compiles the decode steps.
- trace: a process records what it asks for; the next process, with a cache made from the record, compiles nothing.

Tracebacks go to $OUT/engines_transformers.log when OUT is set, else to stderr.
"""

import copy
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import kiln
import kiln.engines.transformers as engine
import kiln.torch
import torch
import torch._dynamo
import transformers
from transformers import DynamicCache, StaticCache
from transformers_support import FAMILIES, keep_frequencies, model_of

START = time.perf_counter()
BF16 = torch.bfloat16
FAILED = []


def say(*words):
    print(f"[{time.perf_counter() - START:5.0f} s]", *words, flush=True)


def row(good, *words):
    say("ok  " if good else "FAIL", *words)
    if not good:
        FAILED.append(words)


def guarded(name, function, *arguments):
    """Runs a part. An exception is a failed row and does not hide the other parts."""
    try:
        return function(*arguments)
    except Exception as error:
        text = f"{name}\n{traceback.format_exc()}\n"
        if os.environ.get("OUT"):
            with open(os.path.join(os.environ["OUT"], "engines_transformers.log"), "a") as log:
                log.write(text)
        else:
            sys.stderr.write(text)
        row(False, name, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
        return None


def error_of(got, expected):
    return ((got.float() - expected).square().mean() / expected.square().mean()).sqrt().item()


MIXTURES = {"qwen3-moe", "mixtral"}


def loop_over_experts(model, family):
    """Makes transformers run one expert after the other, which it can in f32."""
    if family in MIXTURES:
        model.set_experts_implementation("eager")


def copies(family, **options):
    """(the model in f32, in bf16, in bf16 on kiln, the table of what runs), on the GPU."""
    exact = model_of(family, **options).cuda()
    plain = keep_frequencies(copy.deepcopy(exact), BF16)
    ours = keep_frequencies(copy.deepcopy(exact), BF16)
    loop_over_experts(exact, family)
    return exact, plain, ours, engine.apply(ours)


# ---- accuracy

MIDDLE = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
OWN = {
    "gemma": {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256},
    "mistral-window": {"sliding_window": 48},
    "gemma2": {"sliding_window": 48},
    "gemma3": {"sliding_window": 48, "layer_types": ["sliding_attention", "full_attention"] * 2},
}
PROMPT, STEPS = 64, 24


def forced(model, ids, kind, **options):
    """(logits of the prompt, logits of the decode steps) for given tokens."""
    cache = DynamicCache(config=model.config) if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=128)
    prompt = model(ids[:, :PROMPT], past_key_values=cache, use_cache=True, **options).logits.float()
    steps = [
        model(ids[:, i : i + 1], past_key_values=cache, use_cache=True, **options).logits.float()
        for i in range(PROMPT, ids.shape[1])
    ]
    return prompt, torch.cat(steps, 1)


@torch.no_grad()
def family_accuracy(family):
    exact, plain, ours, table = copies(family, **MIDDLE | OWN.get(family, {}))
    left_out = [r for r in table.rows if not r.runs]
    row(not left_out, f"{family}: all {len(table.rows)} operations on kiln", *left_out[:2])
    torch.manual_seed(2)
    for batch in (1, 4):
        ids = torch.randint(1, 1000, (batch, PROMPT + STEPS), device="cuda")
        for kind in ("dynamic", "static"):
            expected, base, got = (forced(model, ids, kind) for model in (exact, plain, ours))
            for part, e, b, g in zip(("prompt", "decode"), expected, base, got):
                theirs, mine = error_of(b, e), error_of(g, e)
                row(
                    mine <= 1.1 * theirs,
                    f"{family:15s} {kind:8s} batch {batch} {part}: kiln {mine:.2e}, plain {theirs:.2e}, ratio {mine / theirs:.2f}",
                )
    row(not ours.model.kiln_attention.refusals, f"{family}: calls that did not run on kiln: {ours.model.kiln_attention.refusals}")
    mask = torch.ones(4, PROMPT, dtype=torch.long, device="cuda")
    mask[0, :10] = mask[2, :3] = 0
    e, b, g = (m(ids[:, :PROMPT], attention_mask=mask).logits.float()[mask.bool()] for m in (exact, plain, ours))
    theirs, mine = error_of(b, e), error_of(g, e)
    row(
        mine <= 1.1 * theirs,
        f"{family:15s} padded   batch 4 prompt: kiln {mine:.2e}, plain {theirs:.2e}, ratio {mine / theirs:.2f}",
    )
    engine.undo(ours)
    same = torch.equal(ours(ids[:, :PROMPT]).logits, plain(ids[:, :PROMPT]).logits)
    row(same, f"{family}: after undo() the same bits as the plain model")


def accuracy():
    for family in FAMILIES:
        guarded(f"accuracy {family}", family_accuracy, family)


# ---- speed

LAYERS, BATCH, LENGTH = 8, 16, int(os.environ.get("LENGTH", "1024"))
FILLED = LENGTH - 128
WIDE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": int(os.environ.get("VOCABULARY", "32000")),
    "max_position_embeddings": 2 * LENGTH,
}


def prompted(model, ids):
    cache = StaticCache(config=model.config, max_cache_len=LENGTH)
    logits = model(ids[:, :FILLED], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    return cache, logits.float()


def stepped(step, ids, cache, steps):
    """Logits of decode steps from FILLED on, and seconds for each step."""
    out = []
    for layer in cache.layers:
        layer.cumulative_length.fill_(FILLED)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(FILLED, FILLED + steps):
        torch.compiler.cudagraph_mark_step_begin()
        logits = step(ids[:, i : i + 1].clone(), past_key_values=cache, use_cache=True).logits
        if steps <= 8:
            out.append(logits.float().clone())
    torch.cuda.synchronize()
    return out, (time.perf_counter() - start) / steps


@torch.no_grad()
def compiled(name, model, ids):
    """(logits of the prompt and of 8 steps, tokens/s) of a model in torch.compile with CUDA graphs."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    cache, prompt = prompted(model, ids)
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    start = time.perf_counter()
    stepped(step, ids, cache, 3)
    seconds = time.perf_counter() - start
    logits, _ = stepped(step, ids, cache, 8)
    times = sorted(stepped(step, ids, cache, 96)[1] for _ in range(5))
    counters = torch._dynamo.utils.counters
    say(
        f"{name:12s} {BATCH / times[2]:9.0f} tokens/s ({times[2] * 1e6:.0f} us a step, {times[0] * 1e6:.0f} to {times[-1] * 1e6:.0f}), "
        f"compiled in {seconds:.0f} s, graphs {counters['stats']['unique_graphs']}, "
        f"cudagraph skips {counters['inductor'].get('cudagraph_skips', 0)}"
    )
    eager = stepped(model, ids, cache, 32)[1]
    say(f"{name:12s} {BATCH / eager:9.0f} tokens/s eager")
    return [prompt, *logits], BATCH / times[2]


@torch.no_grad()
def compared(family, sizes, least):
    """Logits and tokens/s of a compiled model with and without kiln."""
    torch.manual_seed(3)
    with torch.device("cuda"):
        exact = model_of(family, **sizes)
    plain = keep_frequencies(copy.deepcopy(exact), BF16)
    ids = torch.randint(1, 1000, (BATCH, LENGTH), device="cuda")
    loop_over_experts(exact, family)
    if family in MIXTURES:
        plain.set_experts_implementation("grouped_mm")
    cache, prompt = prompted(exact, ids)
    expected = [prompt, *stepped(exact, ids, cache, 8)[0]]
    del exact, cache
    gc.collect()
    torch.cuda.empty_cache()
    say(
        f"{family}: hidden {sizes['hidden_size']}, {LAYERS} layers, batch {BATCH}, {FILLED} to {LENGTH} tokens, "
        f"vocabulary {sizes['vocab_size']}; f32 done"
    )
    base = guarded("compiled transformers", compiled, "transformers", plain, ids)
    torch._dynamo.reset()
    gc.collect()
    print(engine.apply(plain), flush=True)
    ours = guarded("compiled kiln", compiled, "kiln", plain, ids)
    row(not plain.model.kiln_attention.refusals, f"calls that did not run on kiln: {plain.model.kiln_attention.refusals}")
    if base and ours:
        theirs, mine = (error_of(torch.cat(r[0], 1), torch.cat(expected, 1)) for r in (base, ours))
        row(mine <= 1.1 * theirs, f"logits against f32: kiln {mine:.2e}, transformers {theirs:.2e}, ratio {mine / theirs:.2f}")
        say(f"kiln's logits against transformers' in bf16: {error_of(torch.cat(ours[0], 1), torch.cat(base[0], 1)):.2e}")
        row(
            ours[1] >= least * base[1],
            f"kiln has {ours[1] / base[1]:.2f} x the tokens/s of compiled transformers, expected {least} x",
        )


def speed():
    compared("llama", WIDE, 2)


def mixture():
    experts = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "mlp_only_layers": []}
    compared("qwen3-moe", WIDE | {"hidden_size": 2048, "num_key_value_heads": 4} | experts, 1)


# ---- prompts


@torch.no_grad()
def prompt_seconds(model, ids):
    """(logits of the last token, the median of 7 prompts with a new cache each, after three that warm up)."""
    times = []
    for _ in range(10):
        cache = DynamicCache()
        torch.cuda.synchronize()
        start = time.perf_counter()
        logits = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return logits.float(), sorted(times[3:])[3]


@torch.no_grad()
def prompts():
    torch.manual_seed(4)
    with torch.device("cuda"):
        exact = model_of("llama", **WIDE | {"max_position_embeddings": 8192})
    plain = keep_frequencies(copy.deepcopy(exact), BF16)
    kinds = [(4, 2048), (1, 8192)]
    ids = {shape: torch.randint(1, 1000, shape, device="cuda") for shape in kinds}
    expected = {shape: exact(ids[shape], logits_to_keep=1).logits for shape in kinds}
    del exact
    gc.collect()
    torch.cuda.empty_cache()
    base = {shape: prompt_seconds(plain, ids[shape]) for shape in kinds}
    compiled_base = {shape: prompt_seconds(torch.compile(plain, dynamic=False), ids[shape]) for shape in kinds}
    torch._dynamo.reset()
    print(engine.apply(plain), flush=True)
    for shape in kinds:
        logits, seconds = prompt_seconds(plain, ids[shape])
        mine, theirs = error_of(logits, expected[shape]), error_of(base[shape][0], expected[shape])
        row(mine <= 1.1 * theirs, f"{shape[0]} x {shape[1]} tokens: error {mine:.2e}, transformers {theirs:.2e}")
        row(
            seconds <= compiled_base[shape][1],
            f"{shape[0]} x {shape[1]} tokens: kiln {seconds * 1e3:.2f} ms, transformers {base[shape][1] * 1e3:.2f} ms, compiled "
            f"{compiled_base[shape][1] * 1e3:.2f} ms",
        )
    row(not plain.model.kiln_attention.refusals, f"calls that did not run on kiln: {plain.model.kiln_attention.refusals}")


# ---- linear


def linear():
    import gpu_linear

    gpu_linear.run(row, say, guarded)


# ---- generate


@torch.no_grad()
def generate():
    exact, plain, ours, _ = copies("llama", **MIDDLE)
    torch.manual_seed(4)
    ids = torch.randint(1, 1000, (4, PROMPT), device="cuda")
    more = {"max_new_tokens": 32, "min_new_tokens": 32, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    reference = exact.generate(ids, **more)[:, PROMPT:]

    def share(model, **options):
        tokens = model.generate(ids, **more, **options)[:, PROMPT:]
        return (tokens == reference).float().mean().item()

    for kind, options in (("dynamic", {}), ("static, compiled", {"cache_implementation": "static"})):
        torch._dynamo.reset()
        theirs = guarded(f"generate plain {kind}", lambda: share(plain, **options))
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        mine = guarded(f"generate kiln {kind}", lambda: share(ours, **options))
        if theirs is not None and mine is not None:
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            row(
                mine >= theirs - 0.15,
                f"generate, {kind}: {mine:.0%} of kiln's tokens are those of f32, {theirs:.0%} of plain; {graphs} graphs",
            )
    row(not ours.model.kiln_attention.refusals, f"calls that did not run on kiln: {ours.model.kiln_attention.refusals}")


# ---- trace


@torch.no_grad()
def once():
    """Runs a prompt and some steps with both caches, as an engine does at its start. Prints the service's counters."""
    _, _, ours, _ = copies("qwen3", **MIDDLE)
    ids = torch.randint(1, 1000, (2, PROMPT + 4), device="cuda")
    for kind in ("dynamic", "static"):
        forced(ours, ids, kind)
    torch.cuda.synchronize()
    print(json.dumps(kiln.torch.service().stats()))


def prewarm(record):
    with kiln.Service() as service:
        done = service.prewarm(pathlib.Path(record))
        print(json.dumps({"total": done.total, "compiled": done.compiled}))


def trace():
    def run(*words, **environment):
        out = subprocess.run(
            [sys.executable, os.path.abspath(__file__), *words], env=os.environ | environment, capture_output=True, text=True
        )
        if out.returncode != 0:
            raise RuntimeError(f"{words}: {out.stderr[-3000:]}")
        return json.loads(out.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as directory:
        record, one, two = (os.path.join(directory, name) for name in ("asked.toml", "one", "two"))
        cold = run("once", KILN_CACHE_DIR=one, KILN_RECORD=record)
        row(cold["compiles"] > 0, f"first start: {cold['compiles']} compiles")
        done = run("prewarm", record, KILN_CACHE_DIR=two, CUDA_VISIBLE_DEVICES="")
        row(
            done["compiled"] == done["total"] > 0,
            f"prewarm from the record, without a GPU: {done['compiled']} of {done['total']} compiled",
        )
        warm = run("once", KILN_CACHE_DIR=two, KILN_MODE="sealed")
        row(warm["compiles"] == 0, f"second start, sealed: {warm['compiles']} compiles, {warm['loads']} loads")


SECTIONS = {
    "accuracy": accuracy,
    "speed": speed,
    "mixture": mixture,
    "prompts": prompts,
    "linear": linear,
    "generate": generate,
    "trace": trace,
}

if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if sys.argv[1:2] == ["once"]:
        sys.exit(once())
    if sys.argv[1:2] == ["prewarm"]:
        sys.exit(prewarm(sys.argv[2]))
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}")
    for name in sys.argv[1:] or SECTIONS:
        guarded(name, SECTIONS[name])
        gc.collect()
        torch.cuda.empty_cache()
    say(f"{len(FAILED)} failed" if FAILED else "all ok")
    sys.exit(1 if FAILED else 0)
