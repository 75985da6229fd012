"""delta_chunk_mma against a float64 step loop in torch: the tests of delta_chunk, and what its chunks of 16 tokens add. And its
time beside delta_chunk and delta_recurrent.
"""

import functools
import itertools

import delta_chunk as chunk
import torch
from delta_chunk import ChunkData
from harness import expect_refused, expect_same_bits, kernel

TEMPLATE = "delta_chunk_mma"
OPTIONS = (dict(PREPARERS=1), dict(PREPARERS=3))  # parameters that change no result
HOPPER = ("test_clusters_of_all_sizes_give_the_same_bits", "test_refusals_of_stages")  # parameters that this template has not
SANITIZE = [
    "delta_chunk_mma T=bf16 K=128 GATE=head L2NORM=true tokens=150 sequences=4 heads=1 value_heads=2",
    "delta_chunk_mma T=bf16 K=128 GATE=key L2NORM=true tokens=150 sequences=4 heads=1 value_heads=2",
    "delta_chunk_mma T=f16 K=64 V=128 GATE=key GATE_INPUT=softplus G=bf16 BETA_INPUT=sigmoid tokens=201 sequences=2 heads=1",
    "delta_chunk_mma T=bf16 K=128 GATE=head L2NORM=true tokens=1207 sequences=40 heads=1 value_heads=2",
]


def of_this_template(test):
    @functools.wraps(test)
    def run():
        before = chunk.TEMPLATE, chunk.OPTIONS
        chunk.TEMPLATE, chunk.OPTIONS = TEMPLATE, OPTIONS
        try:
            return test()
        finally:
            chunk.TEMPLATE, chunk.OPTIONS = before

    return run


globals().update(
    {name: of_this_template(test) for name, test in vars(chunk).items() if name.startswith("test_") and name not in HOPPER}
)


@of_this_template
def test_every_length_around_a_chunk():
    for gate, length in itertools.product(("none", "head", "key"), (1, 2, 15, 16, 17, 31, 32, 33, 63, 111, 112, 113, 200)):
        ChunkData(3 * length, 3, 64, heads=2, GATE=gate).expect_right(f"T={length}")


@of_this_template
def test_one_strong_gate_in_a_chunk():
    """One key of one token decides how a chunk is prepared. The chunks before it keep their bits."""
    for dtype in ("bf16", "f16"):
        data = ChunkData(160, 1, heads=2, GATE="key", dtype=dtype)
        want, _ = data.run()
        data.g[83, 1, 5] = -200.0
        data.expect_right("one gate")
        got, _ = data.run()
        expect_same_bits(got.view[:80], want.view[:80], "the chunks before")
        expect_same_bits(got.view[:, :1], want.view[:, :1], "the other head")


@of_this_template
def test_gates_of_keys_of_every_size():
    """Differences of sums on both sides of the range in which all pairs of a chunk have one middle."""
    for dtype, value in itertools.product(("bf16", "f16"), (-0.5, -0.69, -0.7, -3.4, -3.5, -4.0)):
        data = ChunkData(300, 1, GATE="key", dtype=dtype)
        data.g.fill_(value)
        data.expect_right(f"g = {value}")
        data.g.mul_(torch.rand_like(data.g) * 2)
        data.expect_right(f"g around {value}")


@of_this_template
def test_gates_of_keys_of_all_types():
    variants = [
        dict(K=64, V=128, heads=2, GATE="key", GATE_INPUT=kind, G=G, dtype=dtype, B="f32")
        for kind, G, dtype in itertools.product(("log_decay", "softplus", "bounded"), ("f32", "bf16", "f16"), ("bf16", "f16"))
    ]
    chunk.prefetch_all(variants)
    for v in variants:
        ChunkData(70, 1, **v).expect_right()


def test_refusals_of_preparers():
    expect_refused(lambda: kernel(TEMPLATE, T="bf16", K=128, GATE="key", PREPARERS=12), "shared memory")


def bench():
    return chunk.rows(TEMPLATE, ("delta_chunk", "delta_recurrent"))
