"""A small Llama-like decoder (random weights, 4 layers) with kiln's operators, and the same model in plain
torch.compile:

    python python/tests/gpu_llama.py            # both tables; exits 1 when results differ or something was compiled after the seal
    python python/tests/gpu_llama.py tokens     # first tokens alone
    python python/tests/gpu_llama.py rates      # tokens per second alone

Norms, rope, cache append, activation and attention over the cache are kiln's; matrix products are torch's.
Both models are compiled with mode="reduce-overhead" (CUDA graphs). The process is sealed after the warm-up.
The first token is measured in eager mode in three states of the cache:
- cold: empty
- warm: the kernels are on disk
- prewarmed: a process without a GPU compiled the cold process's record; the process is sealed
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import kiln
import kiln.torch
import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, INNER, VOCABULARY, PAGE, LENGTH, BATCH = 4, 2048, 16, 4, 128, 5632, 32000, 16, 512, 8
DTYPE = torch.bfloat16


class Decoder(torch.nn.Module):
    """One step for BATCH sequences, each with LENGTH / PAGE pages. Caches are buffers, so that graphs may
    write to them.
    """

    def __init__(self, kiln_operators):
        super().__init__()
        self.kiln = kiln_operators
        self.seconds = 0.0  # spent on making the attention's plan, and with it the attention's kernel
        if kiln_operators:
            start = time.perf_counter()
            self.attention = kiln.torch.PagedDecode(
                heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=BATCH, dtype=DTYPE, device="cuda"
            )
            self.seconds = time.perf_counter() - start
            self.register_buffer("pages", torch.arange(BATCH * LENGTH // PAGE, device="cuda", dtype=torch.int32))
            self.begins = list(range(0, BATCH * LENGTH // PAGE + 1, LENGTH // PAGE))

        def weight(*shape):
            return torch.nn.Parameter(torch.randn(*shape, device="cuda", dtype=DTYPE) * shape[-1] ** -0.5, requires_grad=False)

        torch.manual_seed(3)
        self.embedding, self.head = weight(VOCABULARY, HIDDEN), weight(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ParameterList()
        for _ in range(LAYERS):
            self.layers.append(
                torch.nn.ParameterDict(
                    {
                        "qkv": weight((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN),
                        "o": weight(HIDDEN, HEADS * SIZE),
                        "up": weight(2 * INNER, HIDDEN),
                        "down": weight(HIDDEN, INNER),
                        "norm1": torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False),
                        "norm2": torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False),
                    }
                )
            )
        self.norm = torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False)
        angles = torch.outer(torch.arange(LENGTH).float(), 10000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE))
        self.register_buffer("cos_sin", torch.cat([angles.cos(), angles.sin()], -1).cuda())
        for i in range(LAYERS):
            for name in ("k", "v"):
                self.register_buffer(
                    f"{name}{i}", torch.zeros(BATCH * LENGTH // PAGE, PAGE, KV_HEADS, SIZE, device="cuda", dtype=DTYPE)
                )

    def add_norm(self, x, residual, weight):
        """Both variants take the sum in f32 and store it rounded."""
        if self.kiln:
            return torch.ops.kiln.fused_add_rms_norm(x, residual, weight), residual
        total = x.float() + residual.float()
        y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * weight.float()
        return y.to(DTYPE), total.to(DTYPE)

    def rotate(self, x, positions):
        cos, sin = self.cos_sin[positions].unsqueeze(1).chunk(2, -1)
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(DTYPE)

    def plan(self, step):
        """Plans the attention on the host, before each step."""
        if self.kiln:
            self.attention.plan(self.begins, kv_len=[step + 1] * BATCH)

    def attend(self, q, k_cache, v_cache, positions):
        if self.kiln:
            return self.attention(q, k_cache, v_cache, self.pages)[0].flatten(1)
        k, v = (c.view(BATCH, LENGTH, KV_HEADS, SIZE).transpose(1, 2) for c in (k_cache, v_cache))
        mask = (torch.arange(LENGTH, device="cuda") <= positions.unsqueeze(1)).view(BATCH, 1, 1, LENGTH)
        return F.scaled_dot_product_attention(q.unsqueeze(2), k, v, attn_mask=mask, enable_gqa=True).reshape(BATCH, HEADS * SIZE)

    def forward(self, tokens, positions, slots):
        residual = torch.zeros(BATCH, HIDDEN, device="cuda", dtype=DTYPE)
        x = self.embedding[tokens]
        for i, layer in enumerate(self.layers):
            k_cache, v_cache = getattr(self, f"k{i}"), getattr(self, f"v{i}")
            y, residual = self.add_norm(x, residual, layer["norm1"])
            q, k, v = (y @ layer["qkv"].t()).view(BATCH, -1, SIZE).split([HEADS, KV_HEADS, KV_HEADS], 1)
            if self.kiln:
                q, k = torch.ops.kiln.rope(q, k, positions, self.cos_sin)
                torch.ops.kiln.append_paged_kv(k_cache, v_cache, k, v, slots)
            else:
                q, k = self.rotate(q, positions), self.rotate(k, positions)
                k_cache.view(-1, KV_HEADS, SIZE).index_copy_(0, slots, k)
                v_cache.view(-1, KV_HEADS, SIZE).index_copy_(0, slots, v)
            y = self.attend(q, k_cache, v_cache, positions) @ layer["o"].t()
            y, residual = self.add_norm(y, residual, layer["norm2"])
            y = y @ layer["up"].t()
            if self.kiln:
                y = torch.ops.kiln.act_and_mul(y)
            else:
                gate, up = y.float().chunk(2, -1)
                y = (F.silu(gate) * up).to(DTYPE)
            x = y @ layer["down"].t()
        y, _ = self.add_norm(x, residual, self.norm)
        return y @ self.head.t()


def inputs(step):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, VOCABULARY, (BATCH,), generator=generator).cuda()
    positions = torch.full((BATCH,), step, device="cuda")
    return tokens, positions, torch.arange(BATCH, device="cuda") * LENGTH + step


def decode(model, step_of, steps):
    """(logits of the last step, seconds per step, microseconds of the host per step, with the plan)."""
    prepared = [inputs(s) for s in range(steps)]
    torch.cuda.synchronize()
    host, start = [], time.perf_counter()
    for step, arguments in enumerate(prepared):
        torch.compiler.cudagraph_mark_step_begin()
        before = time.perf_counter()
        model.plan(step)
        logits = step_of(*arguments)
        host.append(time.perf_counter() - before)
    torch.cuda.synchronize()
    return logits.float().clone(), (time.perf_counter() - start) / steps, statistics.median(host) * 1e6


def compiled(kiln_operators):
    model = Decoder(kiln_operators)
    step_of = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    start = time.perf_counter()
    for step in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        model.plan(step)
        step_of(*inputs(step))
    torch.cuda.synchronize()
    return model, step_of, time.perf_counter() - start


def first_token():
    """The first token in eager mode, in a fresh process: the cost of kernels without
    torch.compile's own time.

    The plain model runs first, so that kiln's time does not include modules that torch loads at first use.
    The time for making the attention's kernel counts as part of the first token.
    """
    times = {}
    for name in ("torch", "kiln"):
        model = Decoder(name == "kiln")
        arguments = inputs(0)
        torch.cuda.synchronize()
        for turn in ("first", "second"):
            start = time.perf_counter()
            model.plan(0)
            model(*arguments)
            torch.cuda.synchronize()
            times[f"{name}_{turn}"] = (time.perf_counter() - start + (model.seconds if turn == "first" else 0)) * 1e3
    print(json.dumps(times | kiln.torch.service().stats()))


def prewarm(record):
    """Compiles the specialisations of a record into KILN_CACHE_DIR. Needs no GPU."""
    with kiln.Service() as service:
        start = time.perf_counter()
        done = service.prewarm(pathlib.Path(record))
        print(json.dumps({"total": done.total, "compiled": done.compiled, "seconds": time.perf_counter() - start}))


def first_tokens():
    """Runs each state of the cache in a new process. True when warm and prewarmed processes compiled nothing."""

    def run(*words, **environment):
        out = subprocess.run(
            [sys.executable, os.path.abspath(__file__), *words], env=os.environ | environment, capture_output=True, text=True
        )
        if out.returncode != 0:
            sys.exit(out.stderr)
        return json.loads(out.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as directory:
        record, one, two = (os.path.join(directory, name) for name in ("asked.toml", "one", "two"))
        results = {"cold": run("first", KILN_CACHE_DIR=one, KILN_RECORD=record), "warm": run("first", KILN_CACHE_DIR=one)}
        done = run("prewarm", record, KILN_CACHE_DIR=two, CUDA_VISIBLE_DEVICES="")
        print(f"prewarm of the record: {done['total']} kernels, {done['compiled']} compiled in {done['seconds']:.2f} s", flush=True)
        results["prewarmed"] = run("first", KILN_CACHE_DIR=two, KILN_MODE="sealed")
    for name, r in results.items():
        print(
            f"first token {name:10s} {r['kiln_first']:8.1f} ms, second {r['kiln_second']:6.1f} ms; {r['compiles']} compiles, {r['loads']} loads "
            f"(plain torch before it: {r['torch_first']:.0f}, then {r['torch_second']:.1f} ms)",
            flush=True,
        )
    return results["warm"]["compiles"] == results["prewarmed"]["compiles"] == 0


def rates():
    """Prints both models' tokens per second.

    True when nothing was compiled or loaded after the seal, and both models give the same result.
    """
    kiln.torch.use_service(kiln.Service())
    service, good, rows = kiln.torch.service(), True, {}
    for name, operators in (("plain torch", False), ("kiln", True)):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model, step_of, warm = compiled(operators)
        if operators:
            kiln.process_seal()  # no service of this process compiles, reads or loads from here on
        before = service.stats()
        rows[name] = decode(model, step_of, 256)
        timed = [decode(model, step_of, 256)[1:] for _ in range(5)]
        after = service.stats()
        counters = torch._dynamo.utils.counters
        print(
            f"{name:12s} {BATCH / statistics.median(r[0] for r in timed):9.0f} tokens/s, host {statistics.median(r[1] for r in timed):7.1f} us a step, "
            f"warm-up {warm:5.1f} s, graph breaks {sum(counters['graph_break'].values())}, graphs {counters['stats']['unique_graphs']}, "
            f"cudagraph skips {counters['inductor'].get('cudagraph_skips', 0)}; after the seal: {after['compiles'] - before['compiles']} compiles, "
            f"{after['loads'] - before['loads']} loads, {after['sealed_misses'] - before['sealed_misses']} misses",
            flush=True,
        )
        if operators:
            good &= after["compiles"] == before["compiles"] and after["loads"] == before["loads"]
    a, b = rows["plain torch"][0], rows["kiln"][0]
    error = ((a - b).square().mean() / a.square().mean()).sqrt().item()
    same = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
    print(f"logits after 256 steps: relative RMS {error:.2e}, same best token in {same:.0%}")
    return good and error < 3e-2


if __name__ == "__main__":
    if sys.argv[1:2] == ["first"]:
        sys.exit(first_token())
    if sys.argv[1:2] == ["prewarm"]:
        sys.exit(prewarm(sys.argv[2]))
    parts = {"tokens": first_tokens, "rates": rates}
    sys.exit(0 if all(parts[part]() for part in sys.argv[1:] or parts) else 1)
