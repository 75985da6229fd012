"""The rows of moe_gemm's bench: the products of layers, by themselves. tests/bench/moe_layers.py measures whole layers."""

import torch
from harness import DTYPES, Row, kernel, normal, peers
from moe_align import topk_ids
from moe_products import BLOCKS, routed

MODELS = {  # experts, experts of a token, hidden, inner
    "Qwen3-30B-A3B": (128, 8, 2048, 768),
    "gpt-oss-120b": (128, 4, 2880, 2880),
    "Mixtral-8x7B": (8, 2, 4096, 14336),
}


def block_of(rows, experts):
    """BLOCK with room for the rows of nearly every expert, as the operator fused_moe chooses it."""
    mean = rows / experts
    return next((block for block in BLOCKS if block >= mean + 2 * mean**0.5), 128)


def bench_rows(model, tokens):
    """The two products of a layer. The peer grouped_mm has rows that are sorted already, and no epilogue."""
    experts, k, hidden, inner = MODELS[model]
    block, pairs = block_of(tokens * k, experts), tokens * k
    busy = experts * (1 - (1 - k / experts) ** tokens)  # experts that have rows
    for what, n, kk, rows_a, of_row in (("up", inner, hidden, tokens, k), ("down", hidden, inner, pairs, 1)):
        gated = what == "up"
        count_b = 2 * n if gated else n
        named = dict(GATED=True, ACT="silu") if gated else dict(WEIGHT="result")

        def make(n=n, kk=kk, count_b=count_b, rows_a=rows_a, of_row=of_row):
            rows = routed(topk_ids(tokens, k, experts), experts, block, k=of_row)
            order = rows.expert.sort(stable=True).indices
            ends = torch.bincount(rows.expert, minlength=experts).cumsum(0).int()
            out = torch.empty(pairs, n, dtype=torch.bfloat16, device="cuda")
            weights = torch.rand(pairs, device="cuda")
            a, b = normal(rows_a, kk), torch.empty(experts, count_b, kk, dtype=torch.bfloat16, device="cuda").normal_()
            source = rows.source[order]
            return (out, a, b, *rows.arguments, rows.capacity, weights, source, order, ends, a[source])

        def launch(
            out, a, b, of_block, places, used, capacity, weights, *_, n=n, kk=kk, count_b=count_b, of_row=of_row, named=named
        ):
            kernel("moe_gemm", T="bf16", N=n, K=kk, E=experts, BLOCK=block, **named)(
                *(out, a, b, of_block, places, used, pairs, of_row, capacity, n, kk, kk, count_b * kk),
                *(None, 0, 0, None, None, None if "GATED" in named else weights),
            )

        def grouped(out, a, b, of_block, places, used, capacity, weights, source, order, ends, in_order):
            return torch._grouped_mm(in_order, b.transpose(-2, -1), offs=ends)

        def whole(out, a, b, of_block, places, used, capacity, weights, source, order, ends, in_order, gated=gated):
            y = torch._grouped_mm(a[source], b.transpose(-2, -1), offs=ends)
            if gated:
                gate, up = y.chunk(2, -1)
                y = torch.nn.functional.silu(gate) * up
            else:
                y = y * weights[order, None]
            return out.index_copy_(0, order, y.to(out.dtype))

        yield Row(
            case=f"{model} {what}: tokens {tokens}, BLOCK {block}",
            read=int(2 * (busy * count_b * kk + rows_a * kk)),
            write=2 * pairs * n,
            flops=2 * pairs * count_b * kk,
            make=make,
            launches={"kiln": launch, "torch": whole, "grouped_mm": grouped, **peers.get("moe_gemm")},
            bar=0,
            beats={"kiln": ["torch"]},
        )


def bench_rows_fp8(tokens, block):
    """DeepSeek-V3 on one of eight GPUs: 32 of the 256 experts."""
    experts, hidden, inner = 32, 7168, 2048
    pairs = tokens
    busy = experts * (1 - (1 - 1 / experts) ** pairs)
    for what, n, kk, count_b, named in (
        ("up", inner, hidden, 2 * inner, dict(GATED=True, ACT="silu", OUT="e4m3")),
        ("down", hidden, inner, hidden, {}),
    ):

        def make(n=n, kk=kk, count_b=count_b, named=named):
            rows = routed(topk_ids(pairs, 1, experts), experts, block)
            a = normal(pairs, kk, dtype="e4m3")
            b = torch.empty(experts, count_b, kk, dtype=torch.bfloat16, device="cuda").normal_().to(torch.float8_e4m3fn)
            scale_a, scale_b = (
                torch.rand(pairs, kk // 128, device="cuda"),
                torch.rand(experts, count_b // 128, kk // 128, device="cuda"),
            )
            out = torch.empty(pairs, n, dtype=DTYPES[named.get("OUT", "bf16")], device="cuda")
            scale_d = torch.empty(pairs, n // 128, device="cuda")
            return (out, a, b, *rows.arguments, rows.capacity, scale_a, scale_b, scale_d)

        def launch(
            out, a, b, of_block, places, used, capacity, scale_a, scale_b, scale_d, n=n, kk=kk, count_b=count_b, named=named
        ):
            kernel("moe_gemm", T="e4m3", N=n, K=kk, E=experts, BLOCK=block, **named)(
                *(out, a, b, of_block, places, used, pairs, 1, capacity, n, kk, kk, count_b * kk),
                *(scale_a, kk // 128, 1, scale_b, None, None, 1.702, 7.0, scale_d if "OUT" in named else None, n // 128),
            )

        yield Row(
            case=f"DeepSeek-V3/8 fp8 {what}: rows {pairs}, BLOCK {block}",
            read=int(busy * count_b * kk + pairs * kk),
            write=pairs * n * (1 if "OUT" in named else 2),
            flops=2 * pairs * count_b * kk,
            make=make,
            launches={"kiln": launch, **peers.get("moe_gemm_fp8")},
            bar=0,
        )


def bench():
    for tokens in (1, 4, 16, 64, 256, 1024, 8192):
        yield from bench_rows("Qwen3-30B-A3B", tokens)
    for tokens in (1, 64, 1024):
        yield from bench_rows("gpt-oss-120b", tokens)
        yield from bench_rows("Mixtral-8x7B", tokens)
    for rows in (16, 128, 1024, 8192):
        yield from bench_rows_fp8(rows, block_of(rows, 32))
