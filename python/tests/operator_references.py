"""The expected result of each operator, in plain torch and double.

Each function returns (results, a dictionary of the written tensors by argument).
"""

import math

import torch
from kiln.torch import FourBits
from kiln.torch._four_bits import unpacked

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


def mla_append(kv_cache, c_kv, k_pe, slot_mapping, pow2=False):
    out, slots = kv_cache.clone(), slot_mapping.long()
    if kv_cache.dtype != E4M3:
        out.view(-1, kv_cache.shape[-1])[slots] = torch.cat([c_kv, k_pe], 1)
        return (), {"kv_cache": out}
    groups = c_kv.double().view(-1, 4, 128)
    scale = groups.abs().amax(-1) / 448
    scale = (2.0 ** torch.ceil(torch.log2(scale)) if pow2 else scale).float()
    codes = _fp8(groups / scale.double().unsqueeze(-1), E4M3).to(E4M3)
    parts = (codes.flatten(1), scale, k_pe)
    rows = torch.cat([part.contiguous().view(torch.uint8) for part in parts], 1)
    out.view(torch.uint8).view(-1, kv_cache.shape[-1])[slots] = rows
    return (), {"kv_cache": out}


def amax(x, parts=128):
    return None, {}  # the kernel may split rows into parts as it likes: the test compares the largest of all


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

    return (
        ints(places + [tokens * k] * (blocks * block - len(places))),
        ints(experts + [-1] * (blocks - len(experts))),
        ints([len(places)]),
        ints(inverse).view(tokens, k),
    ), {}


def moe_route(
    logits,
    k,
    block,
    score="softmax",
    bias=None,
    renormalize=True,
    groups=1,
    topk_groups=0,
    scale=1.0,
    expert_map=None,
    local_only=False,
):
    (weights, ids), _ = topk_gate(logits, k, score, bias, renormalize, groups, topk_groups, scale)
    aligned, _ = moe_align(ids, logits.shape[-1], block, expert_map, local_only)
    return (weights, ids, *aligned), {}


def moe_route_quant(logits, x, *arguments, **named):
    return (*moe_route(logits, *arguments, **named)[0], *fp8_quant_group(x)[0]), {}


def moe_combine(y, weights=None, inverse=None, shared=None, shared_gate=None, residual=None, out_dtype=None):
    rows = y.double()
    if weights is not None:
        rows = rows * weights.double().unsqueeze(-1)
    if inverse is not None:
        rows = rows.masked_fill((inverse < 0).unsqueeze(-1), 0)
    total = rows.sum(1)
    if shared is not None:
        total = total + shared.double() * (1 if shared_gate is None else shared_gate.double().sigmoid())
    return (total if residual is None else total + residual.double(),), {}


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


# ---- mixtures of experts


def _of_experts(y, bias, weight, act, gated, order, alpha, limit):
    """An expert's product for some rows after bias, activation and gate. `weight` multiplies the product."""
    y = y * weight
    y = y if bias is None else y + bias.double()
    if not gated:
        return ACTIVATIONS[act](y)
    gate, up = y.chunk(2, -1) if order == "gate_first" else y.chunk(2, -1)[::-1]
    if act == "swigluoai":
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    return ACTIVATIONS[act](gate) * up


def moe_gemm(
    a,
    b,
    expert_ids,
    sorted_token_ids,
    num_tokens_post_padded,
    k=1,
    block=64,
    bias=None,
    weights=None,
    act="none",
    gated=False,
    order="gate_first",
    weight="none",
    alpha=1.702,
    limit=7.0,
    early_b=False,
    out_dtype=None,
    pairs=0,
    to_places=False,
):
    """Rows without a place are NaN, as the operator does not write them.

    With `pairs`, a has a row for each place, and with `to_places` the result has one.
    """
    rows, columns = pairs or a.shape[0] * k, b.shape[1] // (2 if gated else 1)
    d = torch.full((rows, columns), math.nan, dtype=torch.float64, device=a.device)
    for place in range(0, int(num_tokens_post_padded), block):
        named, expert = sorted_token_ids[place : place + block].long(), int(expert_ids[place // block])
        named = named[named < rows]
        if expert < 0:
            d[named] = 0
            continue
        factors = 1 if weights is None else weights.double().reshape(-1, 1)[named]
        y = a[place : place + len(named)] if pairs else a[named // k]
        y = y.double() @ b[expert].double().t()
        of_product = factors if weight == "product" else 1
        y = _of_experts(y, None if bias is None else bias[expert], of_product, act, gated, order, alpha, limit)
        d[named] = y * (factors if weight == "result" else 1)
    if to_places:
        places = sorted_token_ids.long().clamp(max=rows)
        places[int(num_tokens_post_padded) :] = rows
        d = torch.cat([d, d.new_full((1, columns), math.nan)])[places]
    return (d,), {}


def _unquantized(codes, scales, of_weight=False):
    """e4m3 times its scales: one for each 128 elements of a row, or for each 128 x 128 of a weight."""
    factors = scales.double().repeat_interleave(128, -1)[..., : codes.shape[-1]]
    return codes.double() * (factors.repeat_interleave(128, -2)[..., : codes.shape[-2], :] if of_weight else factors)


def moe_gemm_fp8(a, b, scale_a, scale_b, *rest, **named):
    return moe_gemm(_unquantized(a, scale_a), _unquantized(b, scale_b, True), *rest, **named)


def moe_gemm_w4a16(a, b, scale_b, expert_ids, places, used, zero_b=None, codes="int4", group=32, *rest, **named):
    wide = unpacked(FourBits(b, scale_b, zero_b), a.shape[1])
    return moe_gemm(a, wide, expert_ids, places, used, *rest, **named)


def moe_gemm_fp8_quant(*arguments, **named):
    return _by_group(moe_gemm_fp8(*arguments, **named, to_places="pairs" in named)[0][0], 128), {}


def moe_place(x, inverse, places):
    """Places of no pair are NaN, as the operator does not write them."""
    out = torch.full((places, x.shape[1]), math.nan, dtype=torch.float64, device=x.device)
    pair = (inverse.flatten() >= 0).nonzero().flatten()
    out[inverse.flatten()[pair].long()] = x.double()[pair // inverse.shape[1]]
    return (out,), {}


def moe_place_quant(x, inverse, places):
    return _by_group(moe_place(x, inverse, places)[0][0], 128), {}


def fused_moe(
    x,
    w13,
    w2,
    logits=None,
    weights=None,
    ids=None,
    k=0,
    score="softmax",
    renormalize=True,
    correction_bias=None,
    groups=1,
    topk_groups=0,
    scale=1.0,
    expert_map=None,
    act="silu",
    gated=True,
    order="gate_first",
    alpha=1.702,
    limit=7.0,
    bias13=None,
    bias2=None,
    w13_scale=None,
    w2_scale=None,
    shared=None,
    shared_gate=None,
    residual=None,
    weight_on_input=False,
    w13_zero=None,
    w2_zero=None,
):
    """A loop over tokens and their experts. With e4m3, x and the activations are quantised as the operator does it."""
    if logits is not None:
        weights, ids = topk_gate(logits, k, score, correction_bias, renormalize, groups, topk_groups, scale)[0]
    experts = len(w13) if expert_map is None else len(expert_map)
    fp8 = w13.dtype == E4M3
    if w13.dtype == torch.int32:
        inner = w13.shape[1] * 16 // (2 if gated else 1)
        w13, w2 = unpacked(FourBits(w13, w13_scale, w13_zero), x.shape[1]), unpacked(FourBits(w2, w2_scale, w2_zero), inner)

    def quantized(v):
        return _unquantized(*_by_group(v.unsqueeze(0), 128))[0]

    w13, w2 = (_unquantized(w, s, True) if fp8 else w.double() for w, s in ((w13, w13_scale), (w2, w2_scale)))
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token, (chosen, factors) in enumerate(zip(ids.tolist(), weights.double())):
        row = quantized(x[token].double()) if fp8 else x[token].double()
        for expert, factor in zip(chosen, factors):
            if not 0 <= expert < experts:
                continue
            expert = expert if expert_map is None else int(expert_map[expert])
            if expert < 0:
                continue
            bias = None if bias13 is None else bias13[expert]
            h = _of_experts(w13[expert] @ row, bias, factor if weight_on_input else 1, act, gated, order, alpha, limit)
            y = w2[expert] @ (quantized(h) if fp8 else h)
            y = y if bias2 is None else y + bias2[expert].double()
            total[token] += y if weight_on_input else y * factor
    if shared is not None:
        total += shared.double() * (1 if shared_gate is None else torch.sigmoid(shared_gate.double()).view(-1, 1))
    return (total if residual is None else total + residual.double(),), {}


# ---- recurrent templates


def _pieces(x, cu_seqlens):
    """(batch, from, to) of each sequence."""
    if cu_seqlens is None:
        return [(b, 0, x.shape[1]) for b in range(x.shape[0])]
    ends = cu_seqlens.tolist()
    return [(0, a, b) for a, b in zip(ends, ends[1:])]


def rwkv7_shift_mix(x, mu, cache=None, cu_seqlens=None):
    v = x.double()
    out, last = torch.zeros(mu.shape[0], *x.shape, dtype=torch.float64, device=x.device), []
    for n, (b, start, end) in enumerate(_pieces(x, cu_seqlens)):
        before = cache[n].double() if cache is not None else torch.zeros_like(v[0, 0])
        previous = torch.cat([before.unsqueeze(0), v[b, start:end]])[:-1] if end > start else v[b, start:end]
        out[:, b, start:end] = v[b, start:end] + (previous - v[b, start:end]) * mu.double().unsqueeze(1)
        last.append(v[b, end - 1] if end > start else before)
    return (out, torch.stack(last)), {}


def rwkv7_kprep(k, a, k_k, k_a, eps=1e-6):
    k, a, k_k, k_a = (t.double() for t in (k, a, k_k, k_a))
    kk = k * k_k
    return (k + k * (a - 1) * k_a, kk * torch.rsqrt(kk.square().sum(-1, keepdim=True) + eps)), {}


def rwkv7_out(o, r, k, v, g, r_k, norm_weight=None, norm_bias=None, eps=0.00064, norm=False):
    o, r, k, v, g, r_k = (t.double() for t in (o, r, k, v, g, r_k))
    if norm:
        o = (o - o.mean(-1, keepdim=True)) * torch.rsqrt(o.var(-1, keepdim=True, unbiased=False) + eps)
        o = o * (1 if norm_weight is None else norm_weight.double()) + (0 if norm_bias is None else norm_bias.double())
    return ((o + (r * k * r_k).sum(-1, keepdim=True) * v) * g,), {}


def wkv7_recurrent(r, w, k, v, a, b=None, kk=None, scale=1.0, initial_state=None, cu_seqlens=None, after=None):
    r, w, k, v, a = (t.double() for t in (r, w, k, v, a))
    a, b = (a, b.double()) if kk is None else (-kk.double(), kk.double() * a)
    out, states = torch.zeros_like(v), []
    for n, (i, start, end) in enumerate(_pieces(r, cu_seqlens)):
        s = (
            initial_state[n].double()
            if initial_state is not None
            else torch.zeros(*k.shape[2:], v.shape[3], dtype=torch.float64, device=v.device)
        )
        for t in range(start, end):
            s = (
                w[i, t].exp().unsqueeze(-1) * s
                + b[i, t].unsqueeze(-1) * (a[i, t].unsqueeze(-1) * s).sum(1, keepdim=True)
                + k[i, t].unsqueeze(-1) * v[i, t].unsqueeze(1)
            )
            out[i, t] = scale * (r[i, t].unsqueeze(-1) * s).sum(1)
            if after is not None:
                after[i, t] = s
        states.append(s)
    return (out, torch.stack(states)), {}


def _gates(beta, g, beta_input, gate_input, a_log, dt_bias):
    """beta and the decay's logarithm in float64, from what a call's beta and g are."""
    if beta is not None:
        beta = beta.double()
        if beta_input != "plain":
            beta = torch.sigmoid(beta) * (2 if beta_input == "twice_sigmoid" else 1)
    if g is not None:
        g = g.double()
        if gate_input == "softplus":
            g = -a_log.double().exp() * torch.nn.functional.softplus(g + (0 if dt_bias is None else dt_bias.double()))
    return beta, g


def delta_recurrent(
    q,
    k,
    v,
    beta=None,
    g=None,
    scale=0.0,
    initial_state=None,
    cu_seqlens=None,
    l2norm=False,
    beta_input="plain",
    gate_input="log_decay",
    a_log=None,
    dt_bias=None,
    after=None,
):
    group = v.shape[2] // q.shape[2]
    beta, g = _gates(beta, g, beta_input, gate_input, a_log, dt_bias)
    q, k = (t.double() for t in (q, k))
    if l2norm:
        q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    q, k, v = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2), v.double()
    out, states = torch.zeros_like(v), []
    for n, (i, start, end) in enumerate(_pieces(q, cu_seqlens)):
        s = (
            initial_state[n].double()
            if initial_state is not None
            else torch.zeros(*k.shape[2:], v.shape[3], dtype=torch.float64, device=v.device)
        )
        for t in range(start, end):
            if g is not None:
                gate = g[i, t].double().exp()
                s = s * (gate.unsqueeze(-1) if gate.dim() == 2 else gate.view(-1, 1, 1))
            u = v[i, t] - (k[i, t].unsqueeze(-1) * s).sum(1)
            if beta is not None:
                u = u * (beta[i, t].double() if beta.dim() == 4 else beta[i, t].double().unsqueeze(-1))
            s = s + k[i, t].unsqueeze(-1) * u.unsqueeze(1)
            out[i, t] = (scale or k.shape[3] ** -0.5) * (q[i, t].unsqueeze(-1) * s).sum(1)
            if after is not None:
                after[i, t] = s
        states.append(s)
    return (out, torch.stack(states)), {}


def _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices):
    """Calls recurrence(initial states, states after the tokens), and puts the states into their slots of a copy of the pool."""
    slots, lives, after = state_indices.long(), state_indices >= 0, {}
    layout = lambda s: s.transpose(-1, -2) if v_first else s
    starts = lives if has_initial_state is None else lives & (has_initial_state != 0)
    initial = torch.where(starts.view(-1, 1, 1, 1), layout(state[slots.clamp(min=0)]).double(), 0.0)
    (out, states), _ = recurrence(initial, after)
    written = state.clone()
    for n, (i, start, end) in enumerate(_pieces(out, cu_seqlens)):
        if not lives[n]:
            out[i, start:end] = 0
        elif state_out_indices is None:
            written[slots[n]] = layout(states[n]).to(state.dtype)
        else:
            for t in range(start, end):
                if state_out_indices[i, t] >= 0:
                    written[state_out_indices[i, t].long()] = layout(after[i, t]).to(state.dtype)
    return (out,), {"state": written}


def wkv7_recurrent_pool(
    r,
    w,
    k,
    v,
    a,
    state,
    state_indices,
    b=None,
    kk=None,
    scale=1.0,
    has_initial_state=None,
    cu_seqlens=None,
    v_first=False,
    state_out_indices=None,
):
    recurrence = lambda initial, after: wkv7_recurrent(r, w, k, v, a, b, kk, scale, initial, cu_seqlens, after)
    return _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices)


def delta_recurrent_pool(
    q,
    k,
    v,
    state,
    state_indices,
    beta=None,
    g=None,
    scale=0.0,
    has_initial_state=None,
    cu_seqlens=None,
    l2norm=False,
    v_first=False,
    state_out_indices=None,
    beta_input="plain",
    gate_input="log_decay",
    a_log=None,
    dt_bias=None,
):
    gates = (beta_input, gate_input, a_log, dt_bias)
    recurrence = lambda initial, after: delta_recurrent(q, k, v, beta, g, scale, initial, cu_seqlens, l2norm, *gates, after)
    return _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices)


def _conv1d(x, weight, bias, initial, cu_seqlens, silu):
    """(out, final states [sequences, taps, D], states after the tokens by place) in float64."""
    x, weight, taps = x.double(), weight.double(), weight.shape[1] - 1
    out, finals, after = torch.zeros_like(x), [], {}
    for n, (i, start, end) in enumerate(_pieces(x, cu_seqlens)):
        before = torch.zeros_like(x[0, :1]).expand(taps, -1) if initial is None else initial[n]
        inputs = torch.cat([before, x[i, start:end]])
        for tap in range(taps + 1):
            out[i, start:end] += weight[:, tap] * inputs[tap : tap + end - start]
        finals.append(inputs[end - start :])
        after |= {(i, start + t): inputs[t + 1 : t + 1 + taps] for t in range(end - start)}
    out = out if bias is None else out + bias.double()
    return (out * torch.sigmoid(out) if silu else out), torch.stack(finals), after


def conv1d(x, weight, bias=None, cu_seqlens=None, silu=False):
    return (_conv1d(x, weight, bias, None, cu_seqlens, silu)[0],), {}


def conv1d_pool(
    x,
    weight,
    conv_state,
    state_indices,
    bias=None,
    has_initial_state=None,
    cu_seqlens=None,
    silu=False,
    taps_first=False,
    state_out_indices=None,
):
    def recurrence(initial, after):
        out, finals, states = _conv1d(x, weight, bias, initial[..., 0], cu_seqlens, silu)
        after.update({place: state[..., None] for place, state in states.items()})
        return (out, finals[..., None]), {}

    # The states as [pool, taps, D, 1], which is what _with_pool() knows.
    pool = conv_state if taps_first else conv_state.transpose(-1, -2)
    results, written = _with_pool(
        recurrence, pool[..., None], state_indices, has_initial_state, False, cu_seqlens, state_out_indices
    )
    states = written["state"][..., 0]
    return results, {"conv_state": states if taps_first else states.transpose(-1, -2)}


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


delta_chunk = delta_chunk_mma = delta_rule = delta_recurrent
delta_chunk_pool = delta_chunk_mma_pool = delta_rule_pool = delta_recurrent_pool
dplr_chunk = wkv7 = wkv7_recurrent
dplr_chunk_pool = wkv7_pool = wkv7_recurrent_pool


def attn_merge(v, s):
    weights = torch.softmax(s.double() * math.log(2), 1)
    return ((v.double() * weights.unsqueeze(-1)).sum(1), torch.logsumexp(s.double() * math.log(2), 1) / math.log(2)), {}


# ---- attention


def attend(q, k, v, causal=True, sm_scale=0.0, soft_cap=0.0, window_left=-1, slopes=None, seen=None, window_right=-1, sinks=None):
    """(o, lse to base 2) of one request: q [qo_len, heads, D], k and v [kv_len, kv_heads, ...].

    The last token of q has the place of the last token of k. ALiBi slopes count from the
    first tokens of q and of k.
    """
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    x = torch.einsum("ihd,jhd->hij", q, k) * (sm_scale or q.shape[2] ** -0.5)
    j = torch.arange(k.shape[0], device=q.device)
    i = torch.arange(q.shape[0], device=q.device).unsqueeze(1)
    own = i + (k.shape[0] - q.shape[0])
    if slopes is not None:
        x = x + slopes.double().view(-1, 1, 1) * (j - i)
    if soft_cap > 0:
        x = soft_cap * torch.tanh(x / soft_cap)
    hidden = ~seen if seen is not None else (j > own) if causal else torch.zeros_like(j > own)
    if window_left >= 0:
        hidden = hidden | (j < own - window_left)
    if window_right >= 0:
        hidden = hidden | (j > own + window_right)
    x = x.masked_fill(hidden, -math.inf)
    sums = torch.logsumexp(x, -1)
    if sinks is not None:
        sums = torch.logaddexp(sums, sinks.double().unsqueeze(1))
    o = torch.einsum("hij,jhd->ihd", torch.exp(x - sums.nan_to_num(neginf=0.0).unsqueeze(-1)), v)
    return o, sums.t() / math.log(2)


def _joined(parts):
    return tuple(torch.cat(results) for results in zip(*parts)), {}


def attn_decode_paged(
    q,
    k_cache,
    v_cache,
    kv_indices,
    plan,
    workers,
    workspace,
    sm_scale=0.0,
    soft_cap=0.0,
    window_left=-1,
    alibi_slopes=None,
    k_scale=None,
    v_scale=None,
):
    import attention_cases as lengths

    parts, begins = [], lengths.indptr(lengths.PAGES)
    for i, length in enumerate(lengths.KV):
        pages = kv_indices[begins[i] : begins[i + 1]].long()
        k, v = (
            c[pages].flatten(0, 1)[:length].double() * (1.0 if s is None else s.double())
            for c, s in ((k_cache, k_scale), (v_cache, v_scale))
        )
        parts.append(attend(q[i : i + 1], k, v, True, sm_scale, soft_cap, window_left, alibi_slopes))
    return _joined(parts)


def mla_decode(q, kv_cache, kv_indices, plan, workers, workspace, sm_scale, causal=True):
    import attention_cases as lengths

    parts, begins = [], lengths.indptr(lengths.PAGES)
    for i, length in enumerate(lengths.KV):
        rows = kv_cache.view(torch.uint8)[kv_indices[begins[i] : begins[i + 1]].long()].flatten(0, 1)[:length].squeeze(1)
        if kv_cache.dtype == E4M3:
            codes, scales, rotated = (x.contiguous() for x in rows.split([512, 16, 128], 1))
            means = codes.view(E4M3).float().view(-1, 4, 128) * scales.view(torch.float32).unsqueeze(-1)
            rows = torch.cat([means.flatten(1).to(q.dtype), rotated.view(q.dtype)], 1)
        rows = rows.view(q.dtype).unsqueeze(1)
        parts.append(attend(q[i : i + 1], rows, rows[..., :512], causal, sm_scale))
    return _joined(parts)


def attn_prefill(
    q,
    k,
    v,
    plan,
    workers,
    workspace,
    causal=True,
    sm_scale=0.0,
    soft_cap=0.0,
    window_left=-1,
    alibi_slopes=None,
    mask=None,
    mask_indptr=None,
    window_right=-1,
    sinks=None,
):
    import attention_cases as lengths

    parts, ends = [], list(zip(lengths.indptr(lengths.QO), lengths.QO, lengths.indptr(lengths.KV), lengths.KV))
    for i, (a, rows, b, columns) in enumerate(ends):
        seen = None
        if mask is not None:
            bits = (mask[int(mask_indptr[i]) :].unsqueeze(1) >> torch.arange(8, device=mask.device)) & 1
            seen = bits.flatten()[: rows * columns].view(rows, columns).bool()
        masks = (causal, sm_scale, soft_cap, window_left, alibi_slopes, seen, window_right, sinks)
        parts.append(attend(q[a : a + rows], k[b : b + columns], v[b : b + columns], *masks))
    return _joined(parts)


def attn_prefill_paged(q, k_cache, v_cache, kv_indices, *more, **named):
    import attention_cases as lengths

    begins = lengths.indptr(lengths.PAGES)
    pages = [kv_indices[a:b].long() for a, b in zip(begins, begins[1:])]
    k, v = (torch.cat([c[p].flatten(0, 1)[:n] for p, n in zip(pages, lengths.KV)]) for c in (k_cache, v_cache))
    return attn_prefill(q, k, v, *more, **named)


attn_sm90, attn_sm90_paged = attn_prefill, attn_prefill_paged


def _dequantised(x, scale):
    """Codes [..., heads, elements] times the scale of the tensor, or of each kv head."""
    return x.double() * scale.double().repeat_interleave(x.shape[-2] // scale.numel()).unsqueeze(-1)


def attn_sm90_e4m3(q, k, v, *more, q_scale, k_scale, v_scale, **named):
    values = (_dequantised(x, scale) for x, scale in ((q, q_scale), (k, k_scale), (v, v_scale)))
    return attn_prefill(*values, *more, **named)


def attn_sm90_e4m3_paged(q, k, v, kv_indices, *more, q_scale, k_scale, v_scale, **named):
    values = (_dequantised(x, scale) for x, scale in ((q, q_scale), (k, k_scale), (v, v_scale)))
    return attn_prefill_paged(*values, kv_indices, *more, **named)


def attn_work_list(plan, kv_indptr, workers, page_size=0, qo_indptr=None, kv_len=None, last_page_len=None):
    """The words of a plan that the host makes."""
    import attention_cases as lengths

    kind = lengths.PagedDecode if page_size else lengths.RaggedPrefill
    host = lengths.device_module(kind, plan.device)
    if page_size:
        host.plan(kv_indptr.tolist(), kv_len=kv_len.tolist())
    else:
        host.plan(qo_indptr.tolist(), kv_indptr.tolist())
    return (), {"plan": lengths.words_of(host, plan)}


def of_reference(name):
    """An operator that computes in float64, and gives its results and what it writes in the operator's types."""
    reference, schema = globals()[name], getattr(torch.ops.kiln, name).default._schema
    names = [argument.name for argument in schema.arguments]

    def call(*arguments, **named):
        results, written = reference(*arguments, **named)
        given = dict(zip(names, arguments)) | named
        for argument, value in written.items():
            given[argument].copy_(value)
        like = [arguments[0].dtype, torch.float32 if name in ("delta_rule", "wkv7") else arguments[0].dtype]
        results = tuple(result.to(dtype) for result, dtype in zip(results, like))
        return results if len(results) > 1 else results[0]

    return call
