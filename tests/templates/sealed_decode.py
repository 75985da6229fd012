"""Decoding in a sealed process: 200 tokens of recurrent layers in one CUDA graph,
without a compile or a load.

The test has its own module, as a seal is final.
"""

import rwkv7_block
import torch
from delta_recurrent import Data
from harness import Guarded, Kernel, expect_refused, expect_same_bits, kernel, normal, seal, stats

STEPS = 200


def captured(steps):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for t in range(STEPS):
            steps(t)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def test_nothing_compiles_and_nothing_loads():
    p, x = rwkv7_block.weights(), normal(STEPS, 4, 1, rwkv7_block.WIDTH)
    before = rwkv7_block.Kiln(4, p)
    plain = [before(step) for step in x]
    delta = Data(STEPS, 1, 128, GATE="head", L2NORM=True, heads=4, value_heads=8)
    want, end = delta.run()

    seal()
    made = stats()
    assert made.compiles + made.disk_hits + made.memory_hits > 0 and made.loads > 0, "the kernels were made before"
    for name, parameters in (
        ("wkv7_recurrent", dict(T="bf16", K=64, V=64, FORM="kk_a", VARLEN=False)),
        ("rwkv7_out", dict(T="bf16", D=64, NORM=True)),
    ):
        Kernel(name, parameters)  # asks kiln again, past the cache in Python
    block, out = rwkv7_block.Kiln(4, p), []
    graphs = [captured(lambda t: out.append(block(x[t])))]
    o, state = Guarded(STEPS, delta.value_heads, delta.V), delta.initial.clone()
    graphs.append(captured(lambda t: delta.run(t, t + 1, initial=state, final=state, out=o)))
    for t in range(STEPS):
        expect_same_bits(out[t], plain[t], f"RWKV7, token {t}")
    expect_same_bits(block.state, before.state, "RWKV7: state")
    expect_same_bits(o.view, want.view, "DeltaNet")
    expect_same_bits(state, end.view, "DeltaNet: state")

    now = stats()
    assert (now.compiles, now.loads, now.disk_hits, now.sealed_misses) == (made.compiles, made.loads, made.disk_hits, 0), (
        "something was made after the seal"
    )
    expect_refused(lambda: kernel("rwkv7_out", T="bf16", D=72, NORM=True), "rwkv7_out", "72")
    assert stats().sealed_misses == 1
    return f"{len(graphs)} graphs, {made.loads} kernels loaded before the seal"
