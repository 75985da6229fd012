"""The expected results of the operators of mixtures of experts, in the form of operator_references."""

import math

import torch
from kiln.torch import FourBits
from kiln.torch._four_bits import unpacked
from row_references import ACTIVATIONS, E4M3, by_group, fp8_quant_group

# ---- routing


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


# ---- products


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
    return by_group(moe_gemm_fp8(*arguments, **named, to_places="pairs" in named)[0][0], 128), {}


def moe_place(x, inverse, places):
    """Places of no pair are NaN, as the operator does not write them."""
    out = torch.full((places, x.shape[1]), math.nan, dtype=torch.float64, device=x.device)
    pair = (inverse.flatten() >= 0).nonzero().flatten()
    out[inverse.flatten()[pair].long()] = x.double()[pair // inverse.shape[1]]
    return (out,), {}


def moe_place_quant(x, inverse, places):
    return by_group(moe_place(x, inverse, places)[0][0], 128), {}


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
        return _unquantized(*by_group(v.unsqueeze(0), 128))[0]

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
