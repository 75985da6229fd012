"""The expected results of the attention operators, in the form of operator_references.

attention_cases has the lengths of all requests.
"""

import math

import torch
from row_references import E4M3, to_fp8

# ---- caches


def append_paged_kv(k_cache, v_cache, k, v, slot_mapping, k_scale=None, v_scale=None):
    written = {}
    for name, cache, x, scale in (("k_cache", k_cache, k, k_scale), ("v_cache", v_cache, v, v_scale)):
        out = cache.clone()
        rows = x if scale is None else to_fp8(x.double() / scale, cache.dtype)
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
    codes = to_fp8(groups / scale.double().unsqueeze(-1), E4M3).to(E4M3)
    parts = (codes.flatten(1), scale, k_pe)
    rows = torch.cat([part.contiguous().view(torch.uint8) for part in parts], 1)
    out.view(torch.uint8).view(-1, kv_cache.shape[-1])[slots] = rows
    return (), {"kv_cache": out}


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


def attn_merge(v, s):
    weights = torch.softmax(s.double() * math.log(2), 1)
    return ((v.double() * weights.unsqueeze(-1)).sum(1), torch.logsumexp(s.double() * math.log(2), 1) / math.log(2)), {}


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
