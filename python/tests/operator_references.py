"""What each operator should give, in plain torch and double: (results, what was written to by the names of arguments)."""

import math

import torch

E4M3 = torch.float8_e4m3fn
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def _fp8(y, dtype):
    return y.clamp(-LARGEST[dtype], LARGEST[dtype]).float().to(dtype)


def rms_norm(x, weight, eps=1e-6, gemma=False, out_dtype=None, scale=None):
    v = x.double()
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * (weight.double() + gemma)
    return (_fp8(y / scale, out_dtype) if out_dtype == E4M3 else y,), {}


def fused_add_rms_norm(x, residual, weight, eps=1e-6):
    total = x.double() + residual.double()
    return rms_norm(total, weight, eps)[0], {"residual": total}


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


def _by_group(y, group, dtype=E4M3, pow2=False):
    parts = y.unflatten(-1, (-1, group))
    scales = parts.abs().amax(-1).clamp(min=1e-10) / LARGEST[dtype]
    if pow2:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    return _fp8(parts / scales.unsqueeze(-1), dtype).flatten(-2), scales


def act_and_mul_group_fp8(x, group=128):
    return _by_group(_activated(x), group), {}


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
    a, b = (v[..., 0:rotary:2], v[..., 1:rotary:2]) if interleaved else (v[..., :rotary // 2], v[..., rotary // 2:rotary])
    a, b = a.clone(), b.clone()
    first, second = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        v[..., 0:rotary:2], v[..., 1:rotary:2] = first, second
    else:
        v[..., :rotary // 2], v[..., rotary // 2:rotary] = first, second
    return v


def rope(q, k, positions, *rest, **named):
    return (_rotated(q, positions, *rest, **named), _rotated(k, positions, *rest, **named)), {}


def rope_(q, k, positions, *rest, **named):
    return (), {"q": _rotated(q, positions, *rest, **named), "k": _rotated(k, positions, *rest, **named)}


def append_paged_kv(k_cache, v_cache, k, v, slot_mapping, k_scale=None, v_scale=None):
    written = {}
    for name, cache, x, scale in (("k_cache", k_cache, k, k_scale), ("v_cache", v_cache, v, v_scale)):
        out = cache.clone()
        rows = x if scale is None else _fp8(x.double() / scale, cache.dtype)
        bits = torch.uint8 if cache.dtype == E4M3 else cache.dtype  # torch has no scatter of fp8
        out.view(bits).flatten(0, 1)[slot_mapping] = rows.to(cache.dtype).view(bits)
        written[name] = out
    return (), written


def append_paged_kv_by_table(k_cache, v_cache, k, v, kv_indices, kv_indptr, batch_indices, positions):
    size = k_cache.shape[1]
    pages = kv_indices[kv_indptr[batch_indices.long()].long() + positions.long() // size].long()
    return append_paged_kv(k_cache, v_cache, k, v, pages * size + positions.long() % size)


def amax(x, parts=128):
    return None, {}  # which rows are in which part is the kernel's affair: the test compares the largest of all


def fp8_quant(x, scale):
    return (_fp8(x.double() / scale, E4M3),), {}


def fp8_quant_tensor(x, amax):
    scale = amax.double().max().reshape(1) / 448
    return (_fp8(x.double() / scale, E4M3), scale), {}


def fp8_quant_token(x, dtype=E4M3):
    return _by_group(x.double(), x.shape[-1], dtype), {}


def fp8_quant_group(x, group=128, column_major=False, packed=False):
    values, scales = _by_group(x.double(), group, pow2=packed)
    if packed:
        exponents = (torch.log2(scales).round() + 127).to(torch.uint8)
        scales = torch.nn.functional.pad(exponents, (0, -exponents.shape[1] % 4)).contiguous().view(torch.int32)
    return (values, scales), {}


def topk_gate(logits, k, score="softmax", bias=None, renormalize=True, groups=1, topk_groups=0, scale=1.0):
    scores = torch.sigmoid(logits.double()) if score == "sigmoid" else torch.softmax(logits.double(), -1)
    chosen = scores if bias is None else scores + bias.double()
    if topk_groups and topk_groups < groups:
        parts = chosen.unflatten(-1, (groups, -1))
        worth = parts.topk(2, -1).values.sum(-1) if bias is not None else parts.amax(-1)
        keep = torch.zeros_like(worth, dtype=torch.bool).scatter_(-1, worth.topk(topk_groups, -1).indices, True)
        chosen = parts.masked_fill(~keep.unsqueeze(-1), -math.inf).flatten(-2)
    ids = chosen.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(-1, ids)
    return (weights / (weights.sum(-1, keepdim=True) if renormalize else 1) * scale, ids.int()), {}


def moe_align(topk_ids, num_experts, block, expert_map=None, local_only=False):
    tokens, k = topk_ids.shape
    places, experts, flat = [], [], topk_ids.flatten().tolist()
    inverse = [-1] * len(flat)
    local = expert_map.tolist() if expert_map is not None else list(range(num_experts))
    for expert in range(num_experts):
        pairs = [i for i, e in enumerate(flat) if e == expert and not (local_only and local[expert] < 0)]
        for i in pairs:
            inverse[i] = len(places)
            places.append(i)
        padded = -len(pairs) % block
        places += [tokens * k] * padded
        experts += [local[expert]] * ((len(pairs) + padded) // block)
    blocks = (tokens * k + num_experts * (block - 1) + block - 1) // block

    def ints(values):
        return torch.tensor(values, dtype=torch.int32, device=topk_ids.device)

    return (ints(places + [tokens * k] * (blocks * block - len(places))), ints(experts + [-1] * (blocks - len(experts))), ints([len(places)]),
            ints(inverse).view(tokens, k)), {}
