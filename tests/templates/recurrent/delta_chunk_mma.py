"""delta_chunk_mma against a float64 step loop in torch: the tests of delta_chunk, and what its chunks of 16 tokens add. And its
time beside delta_chunk and delta_recurrent.
"""

import functools
import itertools

import delta_chunk as chunk
from delta_chunk import ChunkData
from harness import expect_refused, expect_same_bits, kernel, prefetch

TEMPLATE = "delta_chunk_mma"
GATES = ("none", "head", "key")
OPTIONS = (dict(PREPARERS=1), dict(PREPARERS=3), dict(COLUMNS=128))  # parameters that change no result
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
    for gate, length in itertools.product(GATES, (1, 2, 15, 16, 17, 31, 32, 33, 63, 111, 112, 113, 200)):
        ChunkData(3 * length, 3, 64, heads=2, GATE=gate).expect_right(f"T={length}")


@of_this_template
def test_columns_of_a_block_change_no_bit():
    """A block has 64 or 128 columns. Some calls have more items than the GPU has blocks, and sequences of different lengths."""
    lengths = [37 * i * i % 83 for i in range(90)]
    lengths[5], lengths[40] = 700, 0
    variants = [dict(K=128, GATE=g) for g in GATES] + [dict(K=64, V=256, dtype="f16", GATE=g) for g in GATES[:2]]
    for v, columns in itertools.product(variants, (64, 128)):
        prefetch(TEMPLATE, **ChunkData(1, 1, **v).own(), COLUMNS=columns)
    for v, (sequences, cu) in itertools.product(variants, ((3, None), (90, lengths), (600, None))):
        data = ChunkData(sum(cu) if cu else 37 * sequences, sequences, heads=3, cu_seqlens=cu, **v)
        want, end = data.run(COLUMNS=64)
        for options in (dict(COLUMNS=128), dict(COLUMNS=128, PREPARERS=2)):
            out, state = data.run(**options)
            expect_same_bits(out.view, want.view, f"{v} {sequences} {options}")
            expect_same_bits(state.view, end.view, f"{v} {sequences} {options}: state")


def test_pools_with_128_columns_in_a_block():
    chunk.PARAMETERS = dict(COLUMNS=128)
    try:
        for test in (chunk.test_states_in_a_pool, chunk.test_states_after_chunks, chunk.test_head_groups):
            of_this_template(test)()
    finally:
        chunk.PARAMETERS = {}


def test_refusals_of_preparers_and_columns():
    expect_refused(lambda: kernel(TEMPLATE, T="bf16", K=128, GATE="key", PREPARERS=12), "shared memory")
    expect_refused(lambda: kernel(TEMPLATE, T="bf16", K=128, V=192, COLUMNS=128), "V = 192")
    expect_refused(lambda: kernel(TEMPLATE, T="bf16", K=64, V=128, GATE="key", COLUMNS=128), "K = 128")


def bench():
    return chunk.rows(TEMPLATE, ("delta_chunk", "delta_recurrent"))
