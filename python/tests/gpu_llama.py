"""A small Llama-like decoder (random weights, 4 layers) that decodes with kiln's operators, beside the same model in plain torch.compile:

    python python/tests/gpu_llama.py            # table; exits 1 when results differ or something was compiled after the seal
    python python/tests/gpu_llama.py first      # one process's first token, as the parent asks for it

Norms, rope, cache append and activation are kiln's; attention over the cache and matrix products are torch's. Both models are compiled with
mode="reduce-overhead" (CUDA graphs). The service is sealed after the warm-up. First token: cold (empty cache), warm (its kernels on disk) and
prewarmed (a record of another process, compiled ahead by Service.prewarm).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

import kiln
import kiln.torch

LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, INNER, VOCABULARY, PAGE, LENGTH, BATCH = 4, 2048, 16, 4, 128, 5632, 32000, 16, 512, 8
DTYPE = torch.bfloat16


class Decoder(torch.nn.Module):
    """One step for BATCH sequences, each with LENGTH / PAGE pages of its own; caches are buffers, so that graphs may write to them."""

    def __init__(self, kiln_operators):
        super().__init__()
        self.kiln = kiln_operators

        def weight(*shape):
            return torch.nn.Parameter(torch.randn(*shape, device="cuda", dtype=DTYPE) * shape[-1] ** -0.5, requires_grad=False)

        torch.manual_seed(3)
        self.embedding, self.head = weight(VOCABULARY, HIDDEN), weight(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ParameterList()
        for _ in range(LAYERS):
            self.layers.append(torch.nn.ParameterDict({
                "qkv": weight((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN), "o": weight(HIDDEN, HEADS * SIZE), "up": weight(2 * INNER, HIDDEN),
                "down": weight(HIDDEN, INNER),
                "norm1": torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False),
                "norm2": torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False)}))
        self.norm = torch.nn.Parameter(torch.rand(HIDDEN, device="cuda", dtype=DTYPE) + 0.5, requires_grad=False)
        angles = torch.outer(torch.arange(LENGTH).float(), 10000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE))
        self.register_buffer("cos_sin", torch.cat([angles.cos(), angles.sin()], -1).cuda())
        for i in range(LAYERS):
            for name in ("k", "v"):
                self.register_buffer(f"{name}{i}", torch.zeros(BATCH * LENGTH // PAGE, PAGE, KV_HEADS, SIZE, device="cuda", dtype=DTYPE))

    def add_norm(self, x, residual, weight):
        """Both take the sum in f32 and store it rounded."""
        if self.kiln:
            return torch.ops.kiln.fused_add_rms_norm(x, residual, weight), residual
        total = x.float() + residual.float()
        y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * weight.float()
        return y.to(DTYPE), total.to(DTYPE)

    def rotate(self, x, positions):
        cos, sin = self.cos_sin[positions].unsqueeze(1).chunk(2, -1)
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(DTYPE)

    def attend(self, q, k_cache, v_cache, positions):
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


def decode(step_of, steps):
    """(logits of the last step, seconds per step, microseconds of the host per step)."""
    prepared = [inputs(s) for s in range(steps)]
    torch.cuda.synchronize()
    host, start = [], time.perf_counter()
    for arguments in prepared:
        torch.compiler.cudagraph_mark_step_begin()
        before = time.perf_counter()
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
        step_of(*inputs(step))
    torch.cuda.synchronize()
    return model, step_of, time.perf_counter() - start


def first_token():
    """Eager, in a fresh process: what kernels cost, without torch.compile's own time."""
    model = Decoder(True)
    arguments = inputs(0)
    torch.mm(torch.ones(8, 8, device="cuda", dtype=DTYPE), torch.ones(8, 8, device="cuda", dtype=DTYPE))
    torch.cuda.synchronize()
    start = time.perf_counter()
    model(*arguments)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    start = time.perf_counter()
    model(*arguments)
    torch.cuda.synchronize()
    print(json.dumps({"first_ms": first * 1e3, "second_ms": (time.perf_counter() - start) * 1e3, **kiln.torch.service().stats()}))


def first_tokens():
    def run(**environment):
        out = subprocess.run([sys.executable, os.path.abspath(__file__), "first"], env=os.environ | environment, capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(out.stderr)
        return json.loads(out.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as directory:
        record, one, two = (os.path.join(directory, name) for name in ("asked.toml", "one", "two"))
        results = {"cold": run(KILN_CACHE_DIR=one, KILN_RECORD=record), "warm": run(KILN_CACHE_DIR=one)}
        import pathlib

        with kiln.Service(cache_dir=two) as service:  # needs no GPU
            start = time.perf_counter()
            done = service.prewarm(pathlib.Path(record))
            print(f"prewarm: {done.total} kernels, {done.compiled} compiled in {time.perf_counter() - start:.2f} s")
        results["prewarmed"] = run(KILN_CACHE_DIR=two, KILN_MODE="sealed")
    for name, r in results.items():
        print(f"first token {name:10s} {r['first_ms']:8.1f} ms, second {r['second_ms']:6.1f} ms; {r['compiles']} compiles, {r['loads']} loads")
    return results["warm"]["compiles"] == results["prewarmed"]["compiles"] == 0


def main():
    good = first_tokens()
    kiln.torch.use_service(kiln.Service(mode="warn"))
    service = kiln.torch.service()
    rows = {}
    for name, operators in (("plain torch", False), ("kiln", True)):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model, step_of, warm = compiled(operators)
        if operators:
            service.seal()
        before = service.stats()
        rows[name] = decode(step_of, 256)
        rates = [decode(step_of, 256)[1:] for _ in range(5)]
        after = service.stats()
        counters = torch._dynamo.utils.counters
        print(f"{name:12s} {BATCH / statistics.median(r[0] for r in rates):9.0f} tokens/s, host {statistics.median(r[1] for r in rates):7.1f} us a step, "
              f"warm-up {warm:5.1f} s, graph breaks {sum(counters['graph_break'].values())}, graphs {counters['stats']['unique_graphs']}, "
              f"cudagraph skips {counters['inductor'].get('cudagraph_skips', 0)}; after the seal: {after['compiles'] - before['compiles']} compiles, "
              f"{after['loads'] - before['loads']} loads, {after['sealed_misses'] - before['sealed_misses']} misses")
        if operators:
            good &= after["compiles"] == before["compiles"] and after["loads"] == before["loads"]
    a, b = rows["plain torch"][0], rows["kiln"][0]
    error = ((a - b).square().mean() / a.square().mean()).sqrt().item()
    same = (a.argmax(-1) == b.argmax(-1)).float().mean().item()
    print(f"logits after 256 steps: relative RMS {error:.2e}, same best token in {same:.0%}")
    return 0 if good and error < 3e-2 else 1


if __name__ == "__main__":
    sys.exit(first_token() if sys.argv[1:] == ["first"] else main())
