"""FlashMLA's dense decode behind the call shape of tests/templates/mla/mla_decode.py.

Use it with BENCH_PEERS=tests/bench/mla_peers.py and the package `flash_mla` on PYTHONPATH. The wheel sgl-flash-mla 1.0.0 has the kernels of
sm_90 as `use_legacy`; packages before it have them without that argument.
"""

import functools
import inspect

import torch


@functools.cache
def schedule(requests, length, shape):
    """The lengths of the requests, and a schedule that the first call fills in."""
    import flash_mla

    return torch.full((requests,), length, device="cuda", dtype=torch.int32), flash_mla.get_mla_metadata()[0]


def decode(out, q, kv_cache, kv_indices, requests, length):
    import flash_mla

    lengths, plan = schedule(requests, length, q.shape)
    legacy = {"use_legacy": True} if "use_legacy" in inspect.signature(flash_mla.flash_mla_with_kvcache).parameters else {}
    return flash_mla.flash_mla_with_kvcache(
        q.view(requests, -1, *q.shape[1:]),
        kv_cache,
        kv_indices.view(requests, -1),
        lengths,
        512,
        plan,
        softmax_scale=192**-0.5,
        causal=True,
        **legacy,
    )


def get(name):
    return {"FlashMLA": decode} if name == "mla_decode" else {}
