"""The shipped templates as operators. Annotations are the schema; a body has shapes and launch (_registry).

A body passes the template's parameters as a tuple, in the order of `parameters`, then the arguments in the
manifest's order (docs/reference/templates.md). None in the tuple, and a tuple that ends early, mean defaults.

Contracts that all operators share:
- Tensors lie on one CUDA device. Results are new tensors on it, but for inputs that the schema mutates.
- A scale is f32. out_dtype None is the dtype of x.
- A wrong shape, dtype or layout raises kiln.Error (Code.invalid_argument) that names the argument.
"""

import torch
from torch import Tensor

from ._registry import operator
from ._shapes import (
    dense,
    empty,
    heads_of,
    like,
    of_dims,
    of_type,
    one_scale,
    refuse,
    rows_in_place,
    rows_of,
    same_type,
    stride_of_scales,
)

E4M3 = torch.float8_e4m3fn


# ---- normalisation and activation


def _norm(launch, x, residual, weight, eps, gemma, out_dtype, scale):
    dtype, width = x.dtype, weight.shape[0]  # each attribute of a tensor costs about 0.1 us
    if x.shape[-1] != width:
        refuse(f"x has rows of {x.shape[-1]} elements, weight has {width}")
    if weight.dtype != dtype or not weight.is_contiguous():
        same_type(x, weight=weight)
        dense(weight, "weight", width)
    if scale is not None:
        one_scale(scale)
    matrix, rows, stride = rows_of(x)
    out = like(x, out_dtype)
    if residual is None:
        launch((dtype, width, False, gemma, out_dtype), out, matrix, weight, rows, stride, width, eps, None, 0, scale)
    else:
        launch(
            (dtype, width, True, gemma, out_dtype),
            out,
            matrix,
            weight,
            rows,
            stride,
            width,
            eps,
            residual,
            residual.stride(0),
            scale,
        )
    return out


@operator("kiln::rms_norm", "rms_norm", parameters="T H FUSED_ADD GEMMA OUT")
def rms_norm(
    launch,
    x: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    gemma: bool = False,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Returns x * rsqrt(mean(x^2) + eps) * weight over the last dimension of x [..., H], with weight [H].

    `gemma` multiplies by 1 + weight. out_dtype float8_e4m3fn divides the result by `scale` and saturates.
    """
    return _norm(launch, x, None, weight, eps, gemma, out_dtype, scale)


@operator("kiln::fused_add_rms_norm", "rms_norm", parameters="T H FUSED_ADD GEMMA OUT", mutates=["residual"])
def fused_add_rms_norm(
    launch,
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    gemma: bool = False,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Does residual += x in place, and returns rms_norm of the sum. x and residual have one shape and dtype.

    The norm reads the sum in f32, before it is rounded to the residual's dtype (FlashInfer's semantics).
    """
    same_type(x, residual=residual)
    if residual.shape != x.shape:
        refuse(f"residual is {list(residual.shape)}, expected {list(x.shape)} like x")
    return _norm(launch, x, rows_in_place(residual, "residual"), weight, eps, gemma, out_dtype, scale)


def _half(x):
    if x.shape[-1] % 2:
        refuse(f"x has rows of {x.shape[-1]} elements, expected an even number: gate and up are the halves of a row")
    return x.shape[-1] // 2


@operator("kiln::act_and_mul", "act_and_mul", parameters="T D ACT OUT ROUND_GATE ORDER")
def act_and_mul(
    launch,
    x: Tensor,
    act: str = "silu",
    order: str = "gate_first",
    alpha: float = 1.702,
    limit: float = 7.0,
    round_gate: bool = False,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Returns act(gate) * up [..., D] of x [..., 2 * D], whose rows have gate and up in the order of `order`.

    `act` is silu, gelu, gelu_tanh or swigluoai (which takes alpha and limit).
    out_dtype float8_e4m3fn divides the result by `scale`.
    """
    width, (matrix, rows, stride) = _half(x), rows_of(x)
    if scale is not None:
        one_scale(scale)
    out = empty(x, *x.shape[:-1], width, dtype=out_dtype or x.dtype)
    launch((x.dtype, width, act, out.dtype, round_gate, order), out, matrix, rows, stride, width, alpha, limit, scale)
    return out


@operator("kiln::act_and_mul_group_fp8", "act_and_mul", parameters="T D ACT OUT ROUND_GATE ORDER GROUP")
def act_and_mul_group_fp8(
    launch,
    x: Tensor,
    group: int = 128,
    act: str = "silu",
    order: str = "gate_first",
    alpha: float = 1.702,
    limit: float = 7.0,
    round_gate: bool = False,
) -> tuple[Tensor, Tensor]:
    """act_and_mul in float8_e4m3fn, with a scale for each group of 64 or 128 elements of a row.

    Returns (values [..., D], scales [..., D / group] f32).
    """
    width, (matrix, rows, stride) = _half(x), rows_of(x)
    if width % group:
        refuse(f"a row of gate or up has {width} elements, expected a multiple of group = {group}")
    out = empty(x, *x.shape[:-1], width, dtype=E4M3)
    scales = empty(x, *x.shape[:-1], width // group)
    launch(
        (x.dtype, width, act, E4M3, round_gate, order, group),
        out,
        matrix,
        rows,
        stride,
        width,
        alpha,
        limit,
        None,
        scales,
        width // group,
    )
    return out, scales


@operator("kiln::softmax", "softmax", parameters="T H LOG OUT")
def softmax(
    launch,
    x: Tensor,
    temperature: float = 1.0,
    log: bool = False,
    out_dtype: torch.dtype | None = None,
    temperatures: Tensor | None = None,
    any_width: bool = False,
) -> Tensor:
    """Returns softmax (with `log` its logarithm) of x / temperature over the last dimension.

    Sums are accumulated in f32.
    `temperatures`, f32 [rows], is one temperature for each row.
    `any_width` is for widths that change from call to call: the width is then no parameter of the kernel.
    """
    (matrix, rows, stride), width = rows_of(x), x.shape[-1]
    if temperatures is not None:
        of_type(torch.float32, temperatures=temperatures)
        dense(temperatures, "temperatures", rows)
    out = like(x, out_dtype)
    launch((x.dtype, 0 if any_width else width, log, out.dtype), out, matrix, rows, stride, width, temperature, temperatures, width)
    return out


# ---- positions and caches


def _rotate(launch, q, k, q_out, k_out, positions, cos_sin, interleaved, rotary_dim, theta, rope_scale, llama31):
    tokens, q_heads, size = q.shape
    if k.shape[0] != tokens or k.shape[2] != size:
        refuse(f"k is {list(k.shape)}, expected [{tokens}, heads, {size}] like q")
    dense(positions, "positions", tokens)
    same_type(q, k=k)
    angles = "table" if cos_sin is not None else "theta" if llama31 is None else "llama31"
    rotary = rotary_dim if rotary_dim > 0 else cos_sin.shape[1] if cos_sin is not None else size
    if cos_sin is not None and (cos_sin.dim() != 2 or cos_sin.shape[1] != rotary or not cos_sin.is_contiguous()):
        refuse(f"cos_sin is {list(cos_sin.shape)}, expected contiguous rows of rotary_dim = {rotary}")
    low, high, old = llama31 if llama31 is not None else (1.0, 4.0, 8192.0)
    table = cos_sin.dtype if cos_sin is not None else None
    launch(
        (q.dtype, size, rotary, interleaved, positions.dtype, angles, table),
        q_out,
        k_out,
        q,
        k,
        positions,
        tokens,
        q_heads,
        k.shape[1],
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        q_out.stride(0),
        q_out.stride(1),
        k_out.stride(0),
        k_out.stride(1),
        cos_sin,
        theta,
        rope_scale,
        low,
        high,
        old,
    )


@operator("kiln::rope", "rope", parameters="T D ROTARY INTERLEAVE IDTYPE ANGLES TABLE")
def rope(
    launch,
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    cos_sin: Tensor | None = None,
    interleaved: bool = False,
    rotary_dim: int = 0,
    theta: float = 10000.0,
    rope_scale: float = 1.0,
    llama31: list[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns (q, k), each [tokens, heads, D], rotated by positions [tokens].

    Angles come from the table cos_sin [positions, rotary_dim] (cosines, then sines) when it is given, else
    from theta. llama31 = (low_freq_factor, high_freq_factor, old_context_length) is Llama 3.1's scaling of
    theta's angles. rotary_dim 0 means the table's width, or D without a table.
    """
    q, k = heads_of(q, "q"), heads_of(k, "k")
    q_out, k_out = like(q), like(k)
    _rotate(launch, q, k, q_out, k_out, positions, cos_sin, interleaved, rotary_dim, theta, rope_scale, llama31)
    return q_out, k_out


@operator("kiln::rope_", "rope", parameters="T D ROTARY INTERLEAVE IDTYPE ANGLES TABLE", mutates=["q", "k"])
def rope_(
    launch,
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    cos_sin: Tensor | None = None,
    interleaved: bool = False,
    rotary_dim: int = 0,
    theta: float = 10000.0,
    rope_scale: float = 1.0,
    llama31: list[float] | None = None,
) -> None:
    """rope in place: q and k are written to. Their last dimension must be contiguous."""
    for name, x in (("q", q), ("k", k)):
        if x.dim() != 3 or x.stride(2) != 1:
            refuse(f"{name} is rotated in place: it must be [tokens, heads, D] with a contiguous last dimension")
    _rotate(launch, q, k, q, k, positions, cos_sin, interleaved, rotary_dim, theta, rope_scale, llama31)


def _caches(k_cache, v_cache, k, v):
    """Checks the caches [pages, page_size, heads, D], whose last stride must be 1, and the rows k and v."""
    if k_cache.dim() != 4 or k_cache.shape != v_cache.shape or k_cache.stride() != v_cache.stride() or k_cache.stride(3) != 1:
        refuse(
            f"k_cache is {list(k_cache.shape)}, v_cache {list(v_cache.shape)}: expected [pages, page_size, heads, D] twice, with the same strides"
        )
    if k.shape != v.shape or k.shape[1:] != k_cache.shape[2:]:
        refuse(f"k is {list(k.shape)}, v is {list(v.shape)}: expected [tokens, {k_cache.shape[2]}, {k_cache.shape[3]}] twice")
    same_type(k, v=v)
    same_type(k_cache, v_cache=v_cache)


_APPEND = "T KV D IDTYPE PAGING"


@operator("kiln::append_paged_kv", "append_paged_kv", parameters=_APPEND, mutates=["k_cache", "v_cache"])
def append_paged_kv(
    launch,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    slot_mapping: Tensor,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Writes the rows of k and v, [tokens, heads, D], to their slots in the caches.

    The caches are [pages, page_size, heads, D], and slot_mapping is [tokens].
    A slot is page * page_size + entry; a row whose slot is below 0 is skipped.
    Both caches have the same strides, and the last is 1.
    fp8 caches get rows divided by k_scale and v_scale, f32 with one element or one for each head.
    """
    _caches(k_cache, v_cache, k, v)
    k, v = heads_of(k, "k"), heads_of(v, "v")
    dense(slot_mapping, "slot_mapping", k.shape[0])
    launch(
        (k.dtype, k_cache.dtype, k_cache.shape[3], slot_mapping.dtype, "slot_mapping"),
        k_cache,
        v_cache,
        k,
        v,
        k.shape[0],
        k.shape[1],
        k_cache.shape[1],
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        slot_mapping,
        None,
        None,
        None,
        None,
        k_scale,
        v_scale,
        stride_of_scales(k.shape[1], k_scale, v_scale),
    )


@operator("kiln::append_paged_kv_by_table", "append_paged_kv", parameters=_APPEND, mutates=["k_cache", "v_cache"])
def append_paged_kv_by_table(
    launch,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    kv_indices: Tensor,
    kv_indptr: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """append_paged_kv with FlashInfer's page table instead of slots. The four tables have one integer dtype.

    Token i belongs to request batch_indices[i] and has the place positions[i] in it.
    The request r has the pages kv_indices[kv_indptr[r]:kv_indptr[r + 1]].
    """
    _caches(k_cache, v_cache, k, v)
    k, v = heads_of(k, "k"), heads_of(v, "v")
    same_type(kv_indices, kv_indptr=kv_indptr, batch_indices=batch_indices, positions=positions)
    for name, table in (("kv_indices", kv_indices), ("kv_indptr", kv_indptr)):
        of_dims(table, name, "[entries]")
        dense(table, name, table.shape[0])
    dense(batch_indices, "batch_indices", k.shape[0])
    dense(positions, "positions", k.shape[0])
    launch(
        (k.dtype, k_cache.dtype, k_cache.shape[3], kv_indices.dtype, "page_table"),
        k_cache,
        v_cache,
        k,
        v,
        k.shape[0],
        k.shape[1],
        k_cache.shape[1],
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        None,
        kv_indices,
        kv_indptr,
        batch_indices,
        positions,
        k_scale,
        v_scale,
        stride_of_scales(k.shape[1], k_scale, v_scale),
    )


# ---- fp8


@operator("kiln::amax", "amax", parameters="T H")
def amax(launch, x: Tensor, parts: int = 128) -> Tensor:
    """Returns the largest magnitude of each of `parts` parts of x, f32 [parts]; 0 for a part without rows.

    fp8_quant_tensor makes its scale from them.
    """
    matrix, rows, stride = rows_of(x)
    out = empty(x, parts)
    launch((x.dtype, x.shape[-1]), out, matrix, rows, stride, parts)
    return out


_QUANT = "T H GROUP SCALING OUT SCALE POW2"


@operator("kiln::fp8_quant", "fp8_quant", parameters=_QUANT)
def fp8_quant(launch, x: Tensor, scale: Tensor, dtype: torch.dtype = E4M3) -> Tensor:
    """Returns x / scale in fp8, saturating. `scale` has one element, in device memory."""
    (matrix, rows, stride), width = rows_of(x), x.shape[-1]
    one_scale(scale)
    out = like(x, dtype)
    launch((x.dtype, width, 0, "static", dtype), out, matrix, rows, stride, width, scale)
    return out


@operator("kiln::fp8_quant_tensor", "fp8_quant", parameters=_QUANT)
def fp8_quant_tensor(
    launch, x: Tensor, amax: Tensor, dtype: torch.dtype = E4M3, eps: float = 1e-10, pow2: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns (values, scale [1] f32), with one scale for all of x. `amax` is the result of amax(x)."""
    (matrix, rows, stride), width = rows_of(x), x.shape[-1]
    of_type(torch.float32, amax=amax)
    dense(amax, "amax", amax.shape[0])
    out, scale = like(x, dtype), empty(x, 1)
    launch(
        (x.dtype, width, 0, "tensor", dtype, None, pow2),
        out,
        matrix,
        rows,
        stride,
        width,
        None,
        scale,
        1,
        1,
        eps,
        amax,
        amax.shape[0],
    )
    return out, scale


@operator("kiln::fp8_quant_token", "fp8_quant", parameters=_QUANT)
def fp8_quant_token(launch, x: Tensor, dtype: torch.dtype = E4M3, eps: float = 1e-10, pow2: bool = False) -> tuple[Tensor, Tensor]:
    """Returns (values, scales [..., 1] f32), with a scale for each row."""
    (matrix, rows, stride), width = rows_of(x), x.shape[-1]
    out, scales = like(x, dtype), empty(x, *x.shape[:-1], 1)
    launch((x.dtype, width, 0, "token", dtype, None, pow2), out, matrix, rows, stride, width, None, scales, 1, 1, eps)
    return out, scales


@operator("kiln::fp8_quant_group", "fp8_quant", parameters=_QUANT)
def fp8_quant_group(
    launch,
    x: Tensor,
    group: int = 128,
    dtype: torch.dtype = E4M3,
    eps: float = 1e-10,
    pow2: bool = False,
    column_major: bool = False,
    packed: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns (values, scales [rows, groups] f32) of x [rows, H]: a scale for each group of 64 or 128.

    `column_major` lays the scales out as TMA reads them: group after group, with rows rounded up to four.
    `packed` puts the exponents (UE8M0) of four groups into one int32, as DeepGEMM reads them.
    Packed scales are int32 [rows, ceil(groups / 4)] and powers of two.
    """
    if x.dim() != 2 or x.shape[1] % group:
        refuse(f"x is {list(x.shape)}, expected [rows, a multiple of group = {group}]")
    (matrix, rows, stride), width = rows_of(x), x.shape[1]
    columns = width // group
    if packed:
        columns, pow2 = (columns + 3) // 4, True
    out = like(x, dtype)
    kind = torch.int32 if packed else torch.float32
    if column_major:
        between = (rows + 3) // 4 * 4
        scales = empty(x, columns, between, dtype=kind)[:, :rows].t()
        strides = (1, between)
    else:
        scales, strides = empty(x, rows, columns, dtype=kind), (columns, 1)
    launch(
        (x.dtype, width, group, "group", dtype, torch.uint8 if packed else None, pow2),
        out,
        matrix,
        rows,
        stride,
        width,
        None,
        scales,
        *strides,
        eps,
    )
    return out, scales


# ---- mixture of experts


@operator("kiln::topk_gate", "topk_gate", parameters="T E K SCORE BIAS RENORM GROUPS TOPK_GROUPS")
def topk_gate(
    launch,
    logits: Tensor,
    k: int,
    score: str = "softmax",
    bias: Tensor | None = None,
    renormalize: bool = True,
    groups: int = 1,
    topk_groups: int = 0,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Chooses k experts for each token of logits [tokens, experts].

    Returns (weights [tokens, k] f32, ids [tokens, k] int32).
    `score` is softmax or sigmoid. `bias` (f32 [experts]), `groups` and `topk_groups` are DeepSeek's.
    topk_groups 0 means all groups.
    """
    if logits.dim() != 2:
        refuse(f"logits are {list(logits.shape)}, expected [tokens, experts]")
    (matrix, tokens, stride), experts = rows_of(logits), logits.shape[1]
    if bias is not None:
        of_type(torch.float32, bias=bias)
        dense(bias, "bias", experts)
    weights, ids = empty(logits, tokens, k), empty(logits, tokens, k, dtype=torch.int32)
    launch(
        (logits.dtype, experts, k, score, bias is not None, renormalize, groups, topk_groups or groups),
        weights,
        ids,
        matrix,
        tokens,
        stride,
        scale,
        bias,
    )
    return weights, ids


@operator("kiln::moe_align", "moe_align", parameters="ID E BLOCK LOCAL_ONLY")
def moe_align(
    launch, topk_ids: Tensor, num_experts: int, block: int, expert_map: Tensor | None = None, local_only: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sorts the pairs in topk_ids [tokens, k] by expert, and pads each expert to whole blocks.

    Returns (sorted_token_ids, expert_ids [blocks], num_tokens_post_padded [1], inverse [tokens, k]).
    All are int32. Sizes are upper bounds that depend on topk_ids' shape, num_experts and block alone.
    A captured graph can therefore replay the call. expert_map is int32 [num_experts].
    """
    if topk_ids.dim() != 2:
        refuse(f"topk_ids are {list(topk_ids.shape)}, expected [tokens, k]")
    (matrix, tokens, stride), k = rows_of(topk_ids), topk_ids.shape[1]
    if expert_map is not None:
        of_type(torch.int32, expert_map=expert_map)
        dense(expert_map, "expert_map", num_experts)
    blocks = (tokens * k + num_experts * (block - 1) + block - 1) // block
    sorted_ids, expert_ids, padded, inverse = (
        empty(topk_ids, *shape, dtype=torch.int32) for shape in ((blocks * block,), (blocks,), (1,), (tokens, k))
    )
    launch(
        (topk_ids.dtype, num_experts, block, local_only),
        sorted_ids,
        expert_ids,
        padded,
        inverse,
        matrix,
        tokens,
        k,
        stride,
        blocks * block,
        expert_map,
    )
    return sorted_ids, expert_ids, padded, inverse
