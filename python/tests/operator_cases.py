"""Calls of every shipped operator, for tests with fake tensors, the fake driver and a GPU.

Each case is (name, make); make(device) makes the arguments on any device.
"""

import torch
from kiln.torch import quantize_int4, quantize_mxfp4

F32, F16, BF16, I32, I64, E4M3 = torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.float8_e4m3fn


def tensor(device, *shape, dtype=BF16, high=None):
    """A tensor of normal numbers, or of integers from 0 up to but not including `high`."""
    if high is not None:
        return torch.randint(0, high, shape, dtype=dtype, device=device)
    return torch.randn(shape, dtype=F32, device=device).to(dtype)


def _cache(d, dtype=BF16):
    return [tensor(d, 8, 16, 2, 64, dtype=BF16).to(dtype) for _ in range(2)]


def scales(d, *shape, column_major=False):
    """Positive factors of fp8 operands. With column_major they lie as fp8_quant_group(column_major=True) writes them."""
    if not column_major:
        return torch.rand(shape, device=d) + 0.5
    rows, columns = shape
    return (torch.rand(columns, -(-rows // 4) * 4, device=d) + 0.5).t()[:rows]


def _blocks(d):
    """Arguments of moe_gemm: 24 pairs of token and expert in three blocks of 8, and a block that is not in use."""
    experts = torch.tensor([2, 0, 2, -1], dtype=I32, device=d)
    return experts, torch.arange(32, dtype=I32, device=d), torch.full((1,), 24, dtype=I32, device=d)


def _full_blocks(d):
    """_blocks(), of which all are in use and all places have pairs, in another order than that of the places."""
    places = (torch.arange(24, device=d) * 7 % 24).to(I32)
    return torch.tensor([2, 0, 2], dtype=I32, device=d), places, torch.full((1,), 24, dtype=I32, device=d)


def _places_of(d):
    """A place for each pair of 6 tokens and 4 experts."""
    return (torch.arange(24, device=d) * 7 % 24).to(I32).view(6, 4)


_GATED = {"act": "silu", "gated": True}


def four_bits(d, experts, rows, columns, mx=False):
    """Packed codes and scales of random weights."""
    weight = torch.randn(experts, rows, columns, device=d) * columns**-0.5
    return (quantize_mxfp4(weight) if mx else quantize_int4(weight, 32))[:2]


def cases():
    """Pairs (name, make) with make(device) -> (arguments, named), for every operator.
    Some have several cases.
    """
    t, scale = tensor, lambda d: torch.full((1,), 0.02, device=d)
    return [
        ("rms_norm", lambda d: ((t(d, 6, 128), t(d, 128), 1e-6), {})),
        ("rms_norm", lambda d: ((t(d, 2, 3, 128), t(d, 128), 1e-5, True), {})),
        ("rms_norm", lambda d: ((t(d, 6, 128), t(d, 128)), {"out_dtype": E4M3, "scale": scale(d)})),
        ("fused_add_rms_norm", lambda d: ((t(d, 6, 128), t(d, 6, 128), t(d, 128)), {})),
        ("act_and_mul", lambda d: ((t(d, 6, 256),), {})),
        ("act_and_mul", lambda d: ((t(d, 6, 256, dtype=F32), "swigluoai", "interleaved"), {})),
        ("act_and_mul_group_fp8", lambda d: ((t(d, 6, 512),), {})),
        ("softmax", lambda d: ((t(d, 6, 128, dtype=F32), 0.7), {})),
        (
            "softmax",
            lambda d: (
                (t(d, 6, 128, dtype=F32),),
                {"log": True, "any_width": True, "temperatures": torch.full((6,), 0.5, device=d)},
            ),
        ),
        ("rope", lambda d: ((t(d, 6, 4, 64), t(d, 6, 2, 64), t(d, 6, dtype=I64, high=99), t(d, 100, 64, dtype=F32)), {})),
        (
            "rope",
            lambda d: (
                (t(d, 6, 4, 64), t(d, 6, 2, 64), t(d, 6, dtype=I32, high=99)),
                {"llama31": [1.0, 4.0, 8192.0], "rope_scale": 8.0},
            ),
        ),
        (
            "rope_",
            lambda d: ((t(d, 6, 4, 64), t(d, 6, 2, 64), t(d, 6, dtype=I64, high=99)), {"interleaved": True, "rotary_dim": 32}),
        ),
        ("append_paged_kv", lambda d: ((*_cache(d), t(d, 6, 2, 64), t(d, 6, 2, 64), torch.arange(3, 9, device=d)), {})),
        (
            "append_paged_kv",
            lambda d: ((*_cache(d, E4M3), t(d, 6, 2, 64), t(d, 6, 2, 64), torch.arange(6, device=d), scale(d), scale(d)), {}),
        ),
        (
            "append_paged_kv_by_table",
            lambda d: (
                (
                    *_cache(d),
                    t(d, 6, 2, 64),
                    t(d, 6, 2, 64),
                    torch.arange(8, dtype=I32, device=d),
                    torch.tensor([0, 8], dtype=I32, device=d),
                    torch.zeros(6, dtype=I32, device=d),
                    torch.arange(6, dtype=I32, device=d),
                ),
                {},
            ),
        ),
        ("mla_append", lambda d: ((t(d, 3, 16, 1, 576), t(d, 6, 512), t(d, 6, 64), torch.arange(3, 9, device=d)), {})),
        (
            "mla_append",
            lambda d: (
                (
                    t(d, 3, 16, 1, 656).to(E4M3),
                    t(d, 6, 512, dtype=F16),
                    t(d, 6, 64, dtype=F16),
                    torch.arange(6, dtype=I32, device=d),
                ),
                {"pow2": True},
            ),
        ),
        ("amax", lambda d: ((t(d, 6, 128),), {"parts": 4})),
        ("fp8_quant", lambda d: ((t(d, 6, 128), scale(d)), {})),
        ("fp8_quant_tensor", lambda d: ((t(d, 6, 128), torch.full((4,), 3.0, device=d)), {})),
        ("fp8_quant_token", lambda d: ((t(d, 6, 128),), {"dtype": torch.float8_e5m2})),
        ("fp8_quant_group", lambda d: ((t(d, 6, 512),), {})),
        ("fp8_quant_group", lambda d: ((t(d, 6, 512),), {"column_major": True, "packed": True})),
        ("topk_gate", lambda d: ((t(d, 6, 64), 4), {})),
        (
            "topk_gate",
            lambda d: ((t(d, 6, 64), 4, "sigmoid", torch.zeros(64, device=d)), {"groups": 8, "topk_groups": 4, "scale": 2.5}),
        ),
        ("moe_align", lambda d: ((t(d, 6, 4, dtype=I32, high=16), 16, 8), {})),
        ("moe_align", lambda d: ((t(d, 6, 4, dtype=I64, high=16), 16, 8, t(d, 16, dtype=I32, high=4)), {"local_only": True})),
        ("moe_route", lambda d: ((t(d, 6, 64), 4, 16), {})),
        (
            "moe_route",
            lambda d: (
                (t(d, 6, 64, dtype=F32), 4, 8, "sigmoid", torch.zeros(64, device=d)),
                {"groups": 8, "topk_groups": 4, "scale": 2.5, "expert_map": t(d, 64, dtype=I32, high=9) - 1, "local_only": True},
            ),
        ),
        ("moe_route_quant", lambda d: ((t(d, 6, 64), t(d, 6, 512), 4, 16), {})),
        (
            "moe_route_quant",
            lambda d: (
                (t(d, 6, 64, dtype=F32), t(d, 6, 128, dtype=F16), 4, 8, "sigmoid"),
                {"renormalize": False, "expert_map": t(d, 64, dtype=I32, high=9) - 1, "local_only": True},
            ),
        ),
        ("moe_combine", lambda d: ((t(d, 6, 4, 128),), {})),
        (
            "moe_combine",
            lambda d: (
                (t(d, 6, 4, 128), t(d, 6, 4, dtype=F32), t(d, 6, 4, dtype=I32, high=2) - 1, t(d, 6, 128), t(d, 6, 1)),
                {"residual": t(d, 6, 128, dtype=F32), "out_dtype": F32},
            ),
        ),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 64, 128)), {})),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 64, 128), t(d, 64), t(d, 6, 64), "gelu_tanh"), {})),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 128, 128), t(d, 128)), {"act": "silu", "gated": True, "early_b": True})),
        (
            "gemm",
            lambda d: (
                (t(d, 6, 72, dtype=F16), t(d, 40, 72, dtype=F16), None, t(d, 6, 40, dtype=F32)),
                {"act": "relu_squared", "out_dtype": F32},
            ),
        ),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 64, 128), t(d, 64)), {"act": "sigmoid"})),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 64, 128)), {"act": "tanh"})),
        ("gemm", lambda d: ((t(d, 6, 128), t(d, 64, 128), t(d, 64)), {"act": "log_decay"})),
        ("gemm_batched", lambda d: ((t(d, 3, 6, 128), t(d, 3, 64, 128)), {})),
        (
            "gemm_fp8",
            lambda d: ((t(d, 6, 144, dtype=E4M3), t(d, 64, 144, dtype=E4M3), scales(d, 1), scales(d, 1), "tensor", t(d, 64)), {}),
        ),
        (
            "gemm_fp8",
            lambda d: (
                (t(d, 6, 256, dtype=E4M3), t(d, 64, 256, dtype=E4M3), scales(d, 6, 1), scales(d, 64, 1), "row"),
                {"act": "gelu", "residual": t(d, 6, 64)},
            ),
        ),
        (
            "gemm_fp8",
            lambda d: (
                # 8 rows: torch copies scales [6, 2] without their padding
                (t(d, 8, 256, dtype=E4M3), t(d, 256, 256, dtype=E4M3), scales(d, 8, 2, column_major=True), scales(d, 2, 2)),
                {"act": "silu", "gated": True},
            ),
        ),
        ("moe_gemm", lambda d: ((t(d, 6, 128), t(d, 4, 128, 128), *_blocks(d), 4, 8), {"act": "silu", "gated": True})),
        (
            "moe_gemm",
            lambda d: ((t(d, 24, 64), t(d, 4, 128, 64), *_blocks(d), 1, 8, t(d, 4, 128), scales(d, 24, 1)), {"weight": "result"}),
        ),
        ("moe_gemm_w4a16", lambda d: ((t(d, 6, 128), *four_bits(d, 4, 128, 128), *_blocks(d)), {"k": 4, "block": 8, **_GATED})),
        (
            "moe_gemm_w4a16",
            lambda d: (
                (t(d, 24, 72), *four_bits(d, 4, 128, 72, True), *_blocks(d)),
                {"codes": "e2m1", "block": 8, "bias": t(d, 4, 128), "weights": scales(d, 24, 1), "weight": "result"},
            ),
        ),
        (
            "moe_gemm_fp8",
            lambda d: (
                (t(d, 24, 128, dtype=E4M3), t(d, 4, 256, 128, dtype=E4M3), scales(d, 24, 1), scales(d, 4, 2, 1), *_blocks(d), 1, 8),
                {"bias": t(d, 4, 256)},
            ),
        ),
        (
            "moe_gemm_fp8_quant",
            lambda d: (
                (t(d, 6, 256, dtype=E4M3), t(d, 4, 256, 256, dtype=E4M3), scales(d, 6, 2), scales(d, 4, 2, 2), *_blocks(d), 4, 8),
                {"act": "silu", "gated": True},
            ),
        ),
        (
            "moe_gemm_fp8",
            lambda d: (
                (
                    *(t(d, 24, 128, dtype=E4M3), t(d, 4, 256, 128, dtype=E4M3), scales(d, 24, 1, column_major=True)),
                    *(scales(d, 4, 2, 1), *_full_blocks(d), 1, 8),
                ),
                {"weights": scales(d, 24, 1), "weight": "result", "pairs": 24},
            ),
        ),
        (
            "moe_gemm_fp8_quant",
            lambda d: (
                (
                    *(t(d, 24, 256, dtype=E4M3), t(d, 4, 256, 256, dtype=E4M3), scales(d, 24, 2, column_major=True)),
                    *(scales(d, 4, 2, 2), *_full_blocks(d), 1, 8),
                ),
                {"act": "silu", "gated": True, "pairs": 24},
            ),
        ),
        (
            "moe_gemm",
            lambda d: ((t(d, 24, 64), t(d, 4, 128, 64), *_full_blocks(d), 1, 8, t(d, 4, 128)), {"pairs": 24, "to_places": True}),
        ),
        ("moe_place", lambda d: ((t(d, 6, 64), _places_of(d), 24), {})),
        ("moe_place_quant", lambda d: ((t(d, 6, 256), _places_of(d), 24), {})),
    ]


def with_rows(name, arguments, named, times):
    """The arguments of a call with `times` times the rows.

    None when the rows are not an independent size, but follow from pages, a plan, blocks or cu_seqlens.
    """
    by_position = name == "rwkv7_shift_mix" and len(arguments) > 3
    if (
        by_position
        or "cu_seqlens" in named
        or name.startswith(("attn_decode", "attn_prefill", "attn_sm90", "attn_work_list", "mla_decode"))
        or name.startswith(("moe_gemm", "moe_place"))
    ):
        return None
    rows = arguments[2 if "append" in name else 0].shape[0]

    def more(value):
        if not torch.is_tensor(value) or not value.dim() or value.shape[0] != rows:
            return value
        bits = value.view(torch.uint8) if value.dtype == E4M3 else value  # torch joins no fp8 on the CPU
        joined = torch.cat([bits] * times).view(value.dtype)
        if value.dim() == 2 and value.stride(0) == 1 < value.shape[1]:  # scales with the rows side by side
            joined = scales(value.device, *joined.shape, column_major=True).copy_(joined)
        return joined

    return tuple(map(more, arguments)), {n: more(v) for n, v in named.items()}
