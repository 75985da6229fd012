"""The expected results of operators on rows: norms, activations, rotation, quantisation and matrix products.

They have the form of operator_references.
"""

import math

import torch

E4M3 = torch.float8_e4m3fn
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def to_fp8(y, dtype):
    return y.clamp(-LARGEST[dtype], LARGEST[dtype]).float().to(dtype)


# ---- norms


def rms_norm(x, weight, eps=1e-6, gemma=False, out_dtype=None, scale=None):
    v = x.double()
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * (weight.double() + gemma)
    return (to_fp8(y / scale, out_dtype) if out_dtype == E4M3 else y,), {}


def fused_add_rms_norm(x, residual, weight, eps=1e-6):
    total = x.double() + residual.double()
    return rms_norm(total, weight, eps)[0], {"residual": total}


def gated_rms_norm(x, z, weight=None, eps=1e-6, gate="silu"):
    x, z = x.double(), z.double()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 if weight is None else weight.double())
    return (y * torch.sigmoid(z) * (1 if gate == "sigmoid" else z),), {}


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    weight, bias = (None if p is None else p.double() for p in (weight, bias))
    return (torch.nn.functional.layer_norm(x.double(), x.shape[-1:], weight, bias, eps),), {}


def l2norm(x, eps=1e-6):
    x = x.double()
    return (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps),), {}


# ---- activations, softmax, rotation


def _activated(x, act="silu", order="gate_first"):
    v = x.double()
    half = v.shape[-1] // 2
    gate, up = (v[..., ::2], v[..., 1::2]) if order == "interleaved" else (v[..., :half], v[..., half:])
    if act == "swigluoai":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return torch.nn.functional.silu(gate) * up


def act_and_mul(x, act="silu", order="gate_first"):
    return (_activated(x, act, order),), {}


def by_group(y, group, dtype=E4M3, pow2=False):
    parts = y.unflatten(-1, (-1, group))
    scales = parts.abs().amax(-1).clamp(min=1e-10) / LARGEST[dtype]
    if pow2:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    return to_fp8(parts / scales.unsqueeze(-1), dtype).flatten(-2), scales


def act_and_mul_group_fp8(x, group=128):
    return by_group(_activated(x), group), {}


def softmax(x, temperature=1.0, log=False, temperatures=None, any_width=False):
    v = x.double() / (temperature if temperatures is None else temperatures.double().unsqueeze(-1))
    return (torch.log_softmax(v, -1) if log else torch.softmax(v, -1),), {}


def _rotated(x, positions, cos_sin=None, interleaved=False, rotary_dim=0, theta=10000.0, rope_scale=1.0, llama31=None):
    rotary = rotary_dim or (cos_sin.shape[1] if cos_sin is not None else x.shape[2])
    if cos_sin is not None:
        cos, sin = cos_sin[positions.long()].double().chunk(2, -1)
    else:
        frequency = theta ** (-torch.arange(0, rotary, 2, device=x.device).double() / rotary)
        if llama31 is None:
            frequency = frequency / rope_scale
        else:
            low, high, old = llama31
            turns = old * frequency / (2 * math.pi)
            smooth = ((turns - low) / (high - low)).clamp(0, 1)
            frequency = (1 - smooth) * frequency / rope_scale + smooth * frequency
        angle = positions.double().unsqueeze(-1) * frequency
        cos, sin = angle.cos(), angle.sin()
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    v = x.double().clone()
    a, b = (v[..., 0:rotary:2], v[..., 1:rotary:2]) if interleaved else (v[..., : rotary // 2], v[..., rotary // 2 : rotary])
    a, b = a.clone(), b.clone()
    first, second = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        v[..., 0:rotary:2], v[..., 1:rotary:2] = first, second
    else:
        v[..., : rotary // 2], v[..., rotary // 2 : rotary] = first, second
    return v


def rope(q, k, positions, *rest, **named):
    return (_rotated(q, positions, *rest, **named), _rotated(k, positions, *rest, **named)), {}


def rope_(q, k, positions, *rest, **named):
    return (), {"q": _rotated(q, positions, *rest, **named), "k": _rotated(k, positions, *rest, **named)}


# ---- quantisation


def amax(x, parts=128):
    return None, {}  # the kernel may split rows into parts as it likes: the test compares the largest of all


def fp8_quant(x, scale):
    return (to_fp8(x.double() / scale, E4M3),), {}


def fp8_quant_tensor(x, amax):
    scale = amax.double().max().reshape(1) / 448
    return (to_fp8(x.double() / scale, E4M3), scale), {}


def fp8_quant_token(x, dtype=E4M3):
    return by_group(x.double(), x.shape[-1], dtype), {}


def fp8_quant_group(x, group=128, column_major=False, packed=False):
    values, scales = by_group(x.double(), group, pow2=packed)
    if packed:
        exponents = (torch.log2(scales).round() + 127).to(torch.uint8)
        scales = torch.nn.functional.pad(exponents, (0, -exponents.shape[1] % 4)).contiguous().view(torch.int32)
    return (values, scales), {}


# ---- matrix products

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "relu_squared": lambda x: torch.relu(x).square(),
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "log_decay": lambda x: -torch.sigmoid(x) * math.exp(-0.5),
}


def epilogue(y, bias=None, residual=None, act="none", gated=False):
    """Everything that gemm does with its sums."""
    if bias is not None:
        y = y + bias.double()
    if gated:
        gate, up = y.chunk(2, -1)
        y = ACTIVATIONS[act](gate) * up
    else:
        y = ACTIVATIONS[act](y)
    return y if residual is None else y + residual.double()


def gemm(a, b, bias=None, residual=None, act="none", gated=False, early_b=False, out_dtype=None):
    return (epilogue(a.double() @ b.double().t(), bias, residual, act, gated),), {}


def gemm_batched(a, b, out_dtype=None):
    return (a.double() @ b.double().transpose(1, 2),), {}


def gemm_fp8(
    a,
    b,
    scale_a,
    scale_b,
    scales="block",
    bias=None,
    residual=None,
    act="none",
    gated=False,
    early_b=False,
    out_dtype=torch.bfloat16,
):
    factor_a, factor_b = scale_a.double(), scale_b.double()
    if scales == "block":
        factor_a = factor_a.repeat_interleave(128, 1)
        factor_b = factor_b.repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)
    y = (a.double() * factor_a) @ (b.double() * factor_b).t()
    return (epilogue(y, bias, residual, act, gated),), {}
