"""The attention templates as operators (see _operators).

A plan in device memory says what each block of the grid does. _plans makes plans and calls these operators.
"""

import torch
from torch import Tensor

from ._registry import operator
from ._shapes import dense, empty, heads_of, of_dims, of_shape, of_type, refuse, same_type, stride_of_scales


def _group(q, kv_heads):
    heads = q.shape[1]
    if kv_heads == 0 or heads % kv_heads:
        refuse(f"q has {heads} heads, expected a multiple of the {kv_heads} of k and v")
    return heads // kv_heads


def _results(q, values, plan, workspace):
    """(o, lse, workspace). Each call allocates its own workspace, so that graph pools account for it."""
    of_type(torch.int32, plan=plan)
    tokens, heads, _ = q.shape
    return empty(q, tokens, heads, values, dtype=q.dtype), empty(q, tokens, heads), empty(q, workspace, dtype=torch.uint8)


def _slopes(q, alibi_slopes):
    of_type(torch.float32, alibi_slopes=alibi_slopes)
    if alibi_slopes is not None:
        dense(alibi_slopes, "alibi_slopes", q.shape[1])


@operator("kiln::attn_decode_paged", "attn_decode_paged", parameters="T D GROUP KV DV SOFT_CAP ALIBI", mutates=["plan"])
def attn_decode_paged(
    launch,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    kv_indices: Tensor,
    plan: Tensor,
    workers: int,
    workspace: int,
    sm_scale: float = 0.0,
    soft_cap: float = 0.0,
    window_left: int = -1,
    alibi_slopes: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over paged caches. Returns (o [tokens, heads, DV] of q's dtype, lse [tokens, heads]).

    q is [tokens, heads, D]. k_cache is [pages, page_size, kv_heads, D].
    v_cache is [pages, page_size, kv_heads, DV]. The caches' last stride must be 1; other strides are free.
    kv_indices (int32) lists the pages of the requests. lse is f32, to base 2.
    `plan`, `workers` and `workspace` (bytes) come from a PagedDecode for the same kernel.
    sm_scale 0 means D^-1/2. soft_cap 0 means no cap. window_left -1 means no window.
    alibi_slopes is f32 [heads].
    fp8 caches are multiplied by k_scale and v_scale, f32 with one element or one for each kv head.
    """
    q = heads_of(q, "q")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        of_dims(cache, name, "[pages, page_size, kv_heads, size of a head]")
        if cache.stride(3) != 1:
            refuse(f"{name} has stride {cache.stride(3)} in its last dimension, expected 1")
    pages, page_size, kv_heads, size = k_cache.shape
    values = v_cache.shape[3]
    of_shape(v_cache, "v_cache", pages, page_size, kv_heads, values)
    of_shape(q, "q", q.shape[0], q.shape[1], size)
    same_type(k_cache, v_cache=v_cache)
    of_type(torch.int32, kv_indices=kv_indices)
    of_dims(kv_indices, "kv_indices", "[entries]")
    dense(kv_indices, "kv_indices", kv_indices.shape[0])
    _slopes(q, alibi_slopes)
    o, lse, scratch = _results(q, values, plan, workspace)
    launch(
        (q.dtype, size, _group(q, kv_heads), k_cache.dtype, values, soft_cap > 0, alibi_slopes is not None),
        o,
        q,
        k_cache,
        v_cache,
        kv_indices,
        plan,
        scratch,
        workers,
        kv_heads,
        page_size,
        o.stride(0),
        o.stride(1),
        q.stride(0),
        q.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        v_cache.stride(0),
        v_cache.stride(1),
        v_cache.stride(2),
        sm_scale,
        lse,
        soft_cap,
        window_left,
        alibi_slopes,
        k_scale,
        v_scale,
        stride_of_scales(kv_heads, k_scale, v_scale),
    )
    return o, lse


@operator("kiln::attn_prefill", "attn_prefill", parameters="T D DV GROUP CAUSAL WINDOW SOFT_CAP ALIBI MASK", mutates=["plan"])
def attn_prefill(
    launch,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    plan: Tensor,
    workers: int,
    workspace: int,
    causal: bool = True,
    sm_scale: float = 0.0,
    soft_cap: float = 0.0,
    window_left: int = -1,
    alibi_slopes: Tensor | None = None,
    mask: Tensor | None = None,
    mask_indptr: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of a batch of prompts. Returns (o [tokens, heads, DV] of q's dtype, lse [tokens, heads]).

    q is [tokens, heads, D], k [kv tokens, kv_heads, D] and v [kv tokens, kv_heads, DV].
    The plan has the requests' lengths. lse is f32, to base 2.
    `plan`, `workers` and `workspace` (bytes) come from a RaggedPrefill for the same kernel.
    sm_scale 0 means D^-1/2. soft_cap 0 means no cap. window_left -1 means no window.
    alibi_slopes is f32 [heads].
    `mask` (uint8) has bits `[qo_len][kv_len]` for each request, from byte mask_indptr[request] (int32) on.
    A mask overrides `causal`.
    """
    q, k, v = heads_of(q, "q"), heads_of(k, "k"), heads_of(v, "v")
    kv_tokens, kv_heads, size = k.shape
    values = v.shape[2]
    of_shape(v, "v", kv_tokens, kv_heads, values)
    of_shape(q, "q", q.shape[0], q.shape[1], size)
    same_type(q, k=k, v=v)
    _slopes(q, alibi_slopes)
    if (mask is None) != (mask_indptr is None):
        refuse("mask and mask_indptr: one of them is given, expected both or neither")
    if mask is not None and mask_indptr is not None:
        of_type(torch.uint8, mask=mask)
        of_type(torch.int32, mask_indptr=mask_indptr)
        dense(mask, "mask", *mask.shape)
        dense(mask_indptr, "mask_indptr", *mask_indptr.shape)
    o, lse, scratch = _results(q, values, plan, workspace)
    launch(
        (
            q.dtype,
            size,
            values,
            _group(q, kv_heads),
            causal,
            window_left >= 0,
            soft_cap > 0,
            alibi_slopes is not None,
            mask is not None,
        ),
        o,
        q,
        k,
        v,
        plan,
        scratch,
        workers,
        kv_heads,
        o.stride(0),
        o.stride(1),
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        sm_scale,
        lse,
        soft_cap,
        window_left,
        alibi_slopes,
        mask,
        mask_indptr,
    )
    return o, lse
