"""moe_gemm with rows at the places of moe_align (PLACED_A and PLACED_D), against float64 and against its own bits without places."""

import functools
import itertools

import torch
from harness import expect_same_bits, normal
from moe_align import topk_ids
from moe_products import BLOCKS, placed, product, routed, run_all, skewed, some_rows


def placed_cases():
    """Rows of a and d at places: each type, tile and epilogue, pairs of blocks, and experts that are not here."""
    both, first, second = dict(PLACED_A=True, PLACED_D=True), dict(PLACED_D=True), dict(PLACED_A=True, WEIGHT="result")
    up = dict(T="e4m3", OUT="e4m3", GATED=True, ACT="silu")
    some = functools.partial(some_rows, "routed", 12)
    for block, size in itertools.product(BLOCKS, (3, 90)):
        for more in (both, first, dict(**second, EARLY_B=True)):
            yield some(block, size), 520, 584, 12, block, more
        yield some(block, size), 384, 640, 12, block, {**up, **both}
        yield some(block, size), 648, 640, 12, block, dict(T="e4m3", EARLY_B=True, **second)
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for pair, size in itertools.product((1, 2), (60, 400, 1500)):
        yield some(128, size), 520, 584, 12, 128, dict(PAIR=pair, GATED=True, ACT="silu", **both)
        yield some(128, size), 384, 640, 12, 128, dict(PAIR=pair, **up, **both)
        yield some(128, size), 384, 640, 12, 128, dict(PAIR=pair, **up, **first)
        for right in (64, 128, 256):
            yield some(128, size), 896, 1152, 12, 128, dict(T="e4m3", PAIR=pair, RIGHT=right, EARLY_B=True, **second)
        rows = routed(topk_ids(size, 8, 64), 64, 128, local=local)
        yield rows, 384, 640, 16, 128, dict(PAIR=pair, **up, **both)
        yield rows, 648, 640, 16, 128, dict(T="e4m3", PAIR=pair, STAGES=2, EARLY_B=True, **second)
        for _, ids in skewed(16):
            yield routed(ids, 16, 128, spare=3), 264, 256, 16, 128, dict(T="e4m3", PAIR=pair, BIAS=True, pad=1, **both)


def test_rows_at_places():
    run_all(placed_cases())


def test_rows_at_places_have_the_same_bits():
    a, b = normal(200, 1024), normal(32, 512, 1024)
    for block in BLOCKS:
        rows = routed(topk_ids(200, 4, 32), 32, block)
        sorted_rows = placed(rows, a=True)
        at = sorted_rows.source  # the place of each row of d
        sorted_a = torch.full((rows.capacity, 1024), float("nan"), dtype=torch.bfloat16, device="cuda")
        sorted_a[at] = a[rows.source]
        plain, first, second, both = (
            torch.empty(n, 512, dtype=torch.bfloat16, device="cuda") for n in (800, 800) + (rows.capacity,) * 2
        )
        product(plain, a, b, rows, block)
        product(first, sorted_a, b, sorted_rows, block, PLACED_A=True)
        product(second, a, b, rows, block, PLACED_D=True)
        product(both, sorted_a, b, sorted_rows, block, PLACED_A=True, PLACED_D=True)
        for out, what in ((first, "a"), (second[at], "d"), (both[at], "a and d")):
            expect_same_bits(out, plain, f"BLOCK={block}: places of {what}")
