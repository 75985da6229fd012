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

    def slots(d):
        """The slots of three sequences in a pool of five states; the second sequence has none."""
        return torch.tensor([4, -1, 2], dtype=torch.int32, device=d)

    def out_slots(d):
        """Slots for the states after twelve tokens in a pool of 16; no sequence of slots() starts from one."""
        return torch.tensor([0, 1, -1, 3, 5, 6, 7, 8, 9, -1, 11, 12], dtype=torch.int32, device=d)

    def last_slots(d):
        """Slots for the states after the last tokens of the sequences of ends()."""
        return torch.tensor([-1] * 4 + [3] + [-1] * 6 + [12], dtype=torch.int32, device=d)

    def ends(d):
        return torch.tensor([0, 5, 5, 12], dtype=I64, device=d)

    def gated(d, tokens=12, size=128):
        """q, k, v and inputs of gates, as Qwen3-Next has them: two heads, four value heads."""
        q, k = (t(d, 1, tokens, 2, size) for _ in range(2))
        b, a = (t(d, 1, tokens, 4) for _ in range(2))
        named = {"l2norm": True, "beta_input": "sigmoid", "gate_input": "softplus"}
        named |= {"a_log": t(d, 4, dtype=torch.float32), "dt_bias": t(d, 4, dtype=torch.float32)}
        return q, k, t(d, 1, tokens, 4, size), b, a, named

    def gated_call(d):
        *tensors, named = gated(d)
        return tuple(tensors), named

    def gated_pool(d, tokens=12):
        """Three sequences, of which the second has no tokens. With 90 tokens they are long enough for chunks."""
        q, k, v, b, a, named = gated(d, tokens)
        named |= {"cu_seqlens": torch.tensor([0, tokens // 2, tokens // 2, tokens], dtype=I64, device=d)}
        return (q, k, v, t(d, 5, 4, 128, 128), torch.tensor([4, 0, 2], dtype=torch.int32, device=d), b, a), named

    out = [
        *((name, gated_call) for name in ("delta_recurrent", "delta_chunk", "delta_rule")),
        *((name, gated_pool) for name in ("delta_recurrent_pool", "delta_chunk_pool", "delta_rule_pool")),
        ("delta_rule_pool", lambda d: gated_pool(d, 90)),
        ("delta_rule", lambda d: ((*heads(d, tokens=40, count=3), torch.rand(2, 40, 4, device=d).bfloat16()), {"l2norm": True})),
        ("wkv7", lambda d: ((heads(d)[0], -heads(d)[0].abs(), *heads(d, count=3), heads(d)[0]), {})),
        (
            "wkv7_pool",
            lambda d: ((step(d), -step(d).abs(), step(d), step(d), step(d), t(d, 5, 4, 64, 64), slots(d)), {"kk": step(d)}),
        ),
        ("rwkv7_shift_mix", lambda d: ((t(d, 2, 12, 256), t(d, 6, 256)), {})),
        ("rwkv7_shift_mix", lambda d: ((t(d, 1, 12, 256), t(d, 1, 256), t(d, 3, 256), ends(d)), {})),
        ("rwkv7_kprep", lambda d: ((*heads(d, count=2), t(d, 4, 64), t(d, 4, 64)), {})),
        ("rwkv7_kvprep", lambda d: ((*heads(d, count=2), t(d, 4, 64), t(d, 4, 64), *heads(d, count=3)), {})),
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
        ("delta_chunk", lambda d: ((*heads(d, count=3), torch.rand(2, 12, 4, device=d).bfloat16()), {"l2norm": True})),
        (
            "delta_chunk",
            lambda d: (
                (
                    *heads(d, 1, count=2),
                    heads(d, 1, 8)[0],
                    torch.rand(1, 12, 8, device=d).bfloat16(),
                    -torch.rand(1, 12, 8, device=d),
                ),
                {"initial_state": t(d, 3, 8, 64, 64, dtype=torch.float32), "cu_seqlens": ends(d), "l2norm": True},
            ),
        ),
        (
            "delta_chunk",
            lambda d: (
                (*heads(d, 1, count=3), torch.rand(1, 12, 4, device=d).bfloat16(), -torch.rand(1, 12, 4, 64, device=d)),
                {"cu_seqlens": ends(d), "l2norm": True},
            ),
        ),
        (
            "delta_chunk_pool",
            lambda d: (
                (
                    *heads(d, 1, count=3),
                    t(d, 5, 4, 64, 64, dtype=torch.float32),
                    torch.tensor([4, -1, 2], dtype=torch.int32, device=d),
                    torch.rand(1, 12, 4, device=d).bfloat16(),
                ),
                {
                    "has_initial_state": torch.tensor([1, 1, 0], dtype=torch.uint8, device=d),
                    "cu_seqlens": ends(d),
                    "l2norm": True,
                    "v_first": True,
                },
            ),
        ),
        (
            "delta_chunk_pool",
            lambda d: (
                (*heads(d, 1, count=3), t(d, 16, 4, 64, 64, dtype=torch.float32), slots(d)),
                {"cu_seqlens": ends(d), "l2norm": True, "state_out_indices": last_slots(d).view(1, 12)},
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
        (
            "delta_recurrent_pool",
            lambda d: (
                (step(d), step(d), step(d), t(d, 5, 4, 64, 64), slots(d), torch.rand(3, 1, 4, device=d).bfloat16()),
                {"l2norm": True},
            ),
        ),
        (
            "delta_recurrent_pool",
            lambda d: (
                (*heads(d, 1, count=3, scale=0.1), t(d, 5, 4, 64, 64, dtype=torch.float32), slots(d)),
                {"has_initial_state": torch.tensor([1, 0, 1], device=d, dtype=torch.uint8), "cu_seqlens": ends(d), "v_first": True},
            ),
        ),
        (
            "delta_recurrent_pool",
            lambda d: (
                (*heads(d, 1, count=3, scale=0.1), t(d, 16, 4, 64, 64, dtype=torch.float32), slots(d)),
                {"cu_seqlens": ends(d), "state_out_indices": out_slots(d).view(1, 12)},
            ),
        ),
        (
            "wkv7_recurrent_pool",
            lambda d: (
                (
                    heads(d, 3, tokens=4)[0],
                    -heads(d, 3, tokens=4)[0].abs(),
                    *heads(d, 3, tokens=4, count=3),
                    t(d, 16, 4, 64, 64),
                    slots(d),
                ),
                {"kk": heads(d, 3, tokens=4)[0], "state_out_indices": out_slots(d).view(3, 4)},
            ),
        ),
        (
            "wkv7_recurrent_pool",
            lambda d: (
                (step(d), -step(d).abs(), step(d), step(d), step(d), t(d, 5, 4, 64, 64), slots(d)),
                {"kk": step(d), "v_first": True},
            ),
        ),
        ("dplr_chunk", lambda d: ((heads(d)[0], -heads(d)[0].abs(), *heads(d, count=3)), {"kk": heads(d, scale=0.1)[0]})),
        (
            "dplr_chunk",
            lambda d: (
                (heads(d, 1)[0], -heads(d, 1)[0].abs(), *heads(d, 1, count=2), *heads(d, 1, count=2, scale=0.1)),
                {"scale": 0.125, "initial_state": t(d, 3, 4, 64, 64, dtype=torch.float32), "cu_seqlens": ends(d)},
            ),
        ),
        (
            "dplr_chunk_pool",
            lambda d: (
                (heads(d, 1)[0], -heads(d, 1)[0].abs(), *heads(d, 1, count=3), t(d, 5, 4, 64, 64), slots(d)),
                {
                    "kk": heads(d, 1, scale=0.1)[0],
                    "has_initial_state": torch.tensor([1, 1, 0], dtype=torch.uint8, device=d),
                    "cu_seqlens": ends(d),
                    "v_first": True,
                },
            ),
        ),
        ("conv1d", lambda d: ((t(d, 2, 12, 96), t(d, 96, 4), t(d, 96)), {"silu": True})),
        ("conv1d", lambda d: ((t(d, 1, 12, 96), t(d, 96, 3)), {"cu_seqlens": ends(d)})),
        ("conv1d_pool", lambda d: ((t(d, 3, 1, 64), t(d, 64, 4), t(d, 5, 64, 3), slots(d), t(d, 64)), {"silu": True})),
        (
            "conv1d_pool",
            lambda d: (
                (t(d, 1, 12, 64), t(d, 64, 4), t(d, 16, 3, 64), slots(d)),
                {
                    "has_initial_state": torch.tensor([1, 0, 0], device=d, dtype=torch.uint8),
                    "cu_seqlens": ends(d),
                    "taps_first": True,
                    "state_out_indices": out_slots(d).view(1, 12),
                },
            ),
        ),
        ("gated_rms_norm", lambda d: ((t(d, 12, 4, 64), t(d, 12, 4, 64), t(d, 64)), {})),
        (
            "gated_rms_norm",
            lambda d: ((t(d, 12, 4, 64), t(d, 12, 4, 64), t(d, 4, 64, dtype=torch.float32)), {"gate": "sigmoid", "eps": 1e-5}),
        ),
        ("layer_norm", lambda d: ((t(d, 12, 256), t(d, 256), t(d, 256)), {})),
        ("l2norm", lambda d: ((t(d, 12, 4, 64),), {})),
        ("attn_merge", lambda d: ((t(d, 6, 3, 4, 64), t(d, 6, 3, 4, dtype=torch.float32)), {})),
    ]
    chunks = [(name.replace("delta_chunk", "delta_chunk_mma"), make) for name, make in out if name.startswith("delta_chunk")]
    return out + chunks
