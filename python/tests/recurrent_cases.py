"""Calls of the recurrent operators, in the form of operator_cases."""

import torch
from operator_cases import I64
from operator_cases import tensor as t


def cases():
    def heads(d, n=2, h=4, k=64, count=1, scale=0.3, tokens=12):
        return [t(d, n, tokens, h, k) * scale for _ in range(count)]

    def step(d):
        """One token of each sequence, as a decode step has."""
        return heads(d, 3, tokens=1)[0]

    def ends(d):
        return torch.tensor([0, 5, 5, 12], dtype=I64, device=d)

    return [
        ("rwkv7_shift_mix", lambda d: ((t(d, 2, 12, 256), t(d, 6, 256)), {})),
        ("rwkv7_shift_mix", lambda d: ((t(d, 1, 12, 256), t(d, 1, 256), t(d, 3, 256), ends(d)), {})),
        ("rwkv7_kprep", lambda d: ((*heads(d, count=2), t(d, 4, 64), t(d, 4, 64)), {})),
        ("rwkv7_out", lambda d: ((*heads(d, count=5), t(d, 4, 64)), {})),
        ("rwkv7_out", lambda d: ((*heads(d, count=5), t(d, 4, 64), t(d, 4, 64), t(d, 4, 64)), {"norm": True})),
        ("wkv7_recurrent", lambda d: ((heads(d)[0], -heads(d)[0].abs(), *heads(d, count=3), heads(d)[0]), {})),
        (
            "wkv7_recurrent",
            lambda d: (
                (heads(d, 1)[0], -heads(d, 1)[0].abs(), *heads(d, 1, count=3)),
                {"kk": heads(d, 1)[0], "initial_state": t(d, 3, 4, 64, 64, dtype=torch.float32), "cu_seqlens": ends(d)},
            ),
        ),
        ("delta_recurrent", lambda d: ((*heads(d, count=3), torch.rand(2, 12, 4, device=d).bfloat16()), {"l2norm": True})),
        (
            "delta_recurrent",
            lambda d: (
                (
                    *heads(d, 1, count=2),
                    heads(d, 1, 8)[0],
                    torch.rand(1, 12, 8, device=d).bfloat16(),
                    -torch.rand(1, 12, 8, device=d),
                ),
                {"cu_seqlens": ends(d), "l2norm": True},
            ),
        ),
        (
            "wkv7_recurrent",
            lambda d: (
                (step(d), -step(d).abs(), step(d), step(d), step(d)),
                {"kk": step(d), "initial_state": t(d, 3, 4, 64, 64, dtype=torch.float32)},
            ),
        ),
        (
            "delta_recurrent",
            lambda d: (
                (step(d), step(d), step(d), torch.rand(3, 1, 4, device=d).bfloat16()),
                {"initial_state": t(d, 3, 4, 64, 64, dtype=torch.float32), "l2norm": True},
            ),
        ),
        ("attn_merge", lambda d: ((t(d, 6, 3, 4, 64), t(d, 6, 3, 4, dtype=torch.float32)), {})),
    ]
