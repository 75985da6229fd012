"""The operator fused_moe: a whole mixture of experts, made of the operators of templates/moe and templates/moe_four_bits.

    route          moe_route, or topk_gate and moe_align; for few tokens and weights in e4m3, moe_route quantises x, too
    first product  moe_gemm: x times w13 of each chosen expert, with bias, activation and gate
    second product moe_gemm: times w2, with bias and routing weight
                   moe_gemm_w4a16 for both, where the weights have 4 bits
                   With many rows for each expert, rows between the products lie in the order of their places. Where a copy
                   costs less than it saves, moe_place or moe_place_quant brings x into this order, too.
    sum            moe_combine: over the experts of a token, with the shared expert and the residual

All sizes that follow from the routing stay on the device, so a captured graph replays any routing.
"""

import inspect
import types
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _four_bits, _registry
from ._generated import operators
from ._linear import OF_EXPERTS
from ._shapes import of_shape, of_type, refuse

E4M3 = torch.float8_e4m3fn
#: the elements of a row, or the side of a square of a weight, that share a scale in e4m3
GROUP = 128
SCORES = ("softmax", "sigmoid")
ORDERS = ("gate_first", "up_first")
#: the most tokens that moe_route takes, and the largest experts * k whose shared memory every GPU has
MOST_TOKENS_OF_ROUTE, MOST_CHOICES_OF_ROUTE = 512, 8192
#: Launches of the operators that fused_moe is made of, by name. A call of torch.ops would take twice the host's time.
#: Tests replace them.
_kernels: dict[str, Any] = {name: _registry.real(f"kiln::{name}") for name in operators}


class Call(NamedTuple):
    """The arguments of fused_moe. T tokens choose k of the experts; E experts are local, with weights here."""

    x: Tensor  #: [T, H], in f16 or bf16
    w13: Tensor  #: [E, 2 I, H]: gate rows, then up rows (`order`); [E, I, H] without a gate; or packed codes of 4 bits
    w2: Tensor  #: [E, H, I]; or packed codes
    logits: Tensor | None = None  #: [T, experts]: the router's; or weights and ids instead
    weights: Tensor | None = None  #: f32 [T, k]: routing weights
    ids: Tensor | None = None  #: i32 or i64 [T, k]: the experts of a token, all different; any other number is no expert
    k: int = 0  #: experts of a token; with ids their number
    score: str = "softmax"
    renormalize: bool = True
    correction_bias: Tensor | None = None  #: f32 [experts]: added to the scores for choosing alone
    groups: int = 1
    topk_groups: int = 0
    scale: float = 1.0  #: multiplies the routing weights
    expert_map: Tensor | None = None  #: i32 [experts]: the local number of each expert, -1 for none
    act: str = "silu"
    gated: bool = True
    order: str = "gate_first"
    alpha: float = 1.702
    limit: float = 7.0
    bias13: Tensor | None = None  #: [E, 2 I]
    bias2: Tensor | None = None  #: [E, H]
    w13_scale: Tensor | None = None  #: f32 [E, ceil(2 I / 128), ceil(H / 128)]: with weights in e4m3; or FourBits.scales
    w2_scale: Tensor | None = None  #: f32 [E, ceil(H / 128), ceil(I / 128)]; or FourBits.scales
    shared: Tensor | None = None  #: [T, H]: the result of a shared expert
    shared_gate: Tensor | None = None  #: [T] or [T, 1]: its sigmoid multiplies shared
    residual: Tensor | None = None  #: [T, H]
    weight_on_input: bool = False  #: the routing weight multiplies the first product (Llama 4), not the result
    w13_zero: Tensor | None = None  #: FourBits.zeros
    w2_zero: Tensor | None = None


def experts_of(m: Call) -> int:
    """The experts that tokens choose from."""
    one = m.expert_map if m.expert_map is not None else m.logits
    return m.w13.shape[0] if one is None else one.shape[-1]


def count_of(m: Call) -> int:
    """The experts of a token."""
    return m.k if m.ids is None else m.ids.shape[1]


def four_bits(m: Call) -> bool:
    """True for packed weights of 4 bits."""
    return m.w13.dtype == torch.int32


def fp8(m: Call) -> bool:
    return m.w13.dtype == E4M3


def block_of(pairs: int, experts: int, dtype: torch.dtype = torch.bfloat16) -> int:
    """Rows of a block of the products, 8 to 128: the rows of nearly every expert where tokens choose evenly.

    A second block of an expert reads its weight once more, and an emptier block costs little. The rows of an expert are
    nearly Poisson distributed, and 2 standard deviations above the mean are enough for 97 of 100. With weights of 4 bits no
    block has more than 64 rows. `dtype` is the type of the weights.
    """
    mean, block, largest = pairs / experts, 8, 64 if dtype == torch.int32 else 128
    while block < largest and block < mean + 2 * mean**0.5:
        block *= 2
    return block


# ---- checks


def check(m: Call) -> None:
    """Raises Error for a call that the operator does not describe, whatever the device."""
    if m.x.dim() != 2:
        refuse(f"x is {list(m.x.shape)}, expected [tokens, H]")
    if m.w13.dim() != (4 if four_bits(m) else 3) or m.w13.shape[0] < 1:
        wanted = "packed codes [experts, rows / 16, ceil(H / 64), 128]" if four_bits(m) else "[experts, rows, H]"
        refuse(f"w13 is {list(m.w13.shape)}, expected {wanted}")
    for name, value, allowed in (
        ("score", m.score, SCORES),
        ("order", m.order, ORDERS),
        ("act", m.act, (*OF_EXPERTS, "swigluoai")),
    ):
        if value not in allowed:
            refuse(f"{name} = {value!r}, expected one of {', '.join(allowed)}")
    if m.act == "swigluoai" and not m.gated:
        refuse("act = 'swigluoai' and gated = False, expected gated = True")
    (tokens, hidden), experts = m.x.shape, m.w13.shape[0]
    rows = m.w13.shape[1] * (_four_bits.ROWS if four_bits(m) else 1)
    if m.gated and rows % 2:
        refuse(f"w13 has {rows} rows and gated = True, expected an even number: gate rows, then as many up rows")
    inner = rows // 2 if m.gated else rows
    for name, weight, high, wide in (("w13", m.w13, rows, hidden), ("w2", m.w2, hidden, inner)):
        of_shape(weight, name, *(_packed_shape(experts, high, wide) if four_bits(m) else (experts, high, wide)))
    of_shape(m.bias13, "bias13", experts, rows)
    of_shape(m.bias2, "bias2", experts, hidden)
    of_shape(m.shared, "shared", tokens, hidden)
    of_shape(m.residual, "residual", tokens, hidden)
    if m.shared_gate is not None:
        if m.shared is None:
            refuse("shared_gate is given without shared")
        of_shape(m.shared_gate, "shared_gate", *((tokens,) if m.shared_gate.dim() == 1 else (tokens, 1)))
    of_type(m.x.dtype, bias13=m.bias13, bias2=m.bias2, shared=m.shared, shared_gate=m.shared_gate, residual=m.residual)
    _check_weights(m, rows, hidden, inner)
    _check_routing(m, tokens, experts)


def _packed_shape(experts: int, rows: int, columns: int) -> tuple[int, int, int, int]:
    if rows % _four_bits.ROWS:
        refuse(f"a packed weight has {rows} rows, expected a multiple of {_four_bits.ROWS}")
    return experts, rows // _four_bits.ROWS, -(-columns // _four_bits.COLUMNS), _four_bits.WORDS


def _check_four_bits(m: Call, rows: int, hidden: int, inner: int) -> None:
    for name, codes, scales, zeros, high, wide in (
        ("w13", m.w13, m.w13_scale, m.w13_zero, rows, hidden),
        ("w2", m.w2, m.w2_scale, m.w2_zero, hidden, inner),
    ):
        of_type(torch.int32, **{name: codes})
        if scales is None or scales.dtype not in (torch.bfloat16, torch.float16, _four_bits.E8M0):
            given = "not given" if scales is None else scales.dtype
            refuse(f"{name}_scale is {given}, expected torch.bfloat16, torch.float16 or {_four_bits.E8M0} for packed codes")
        group = 32 if scales.dtype == _four_bits.E8M0 or scales.dim() != 4 else _four_bits.group_of(codes, scales)
        shape = (len(codes), high // _four_bits.ROWS, _four_bits.groups_of(wide, group), _four_bits.ROWS)
        of_shape(scales, f"{name}_scale", *shape)
        if zeros is not None and scales.dtype == _four_bits.E8M0:
            refuse(f"{name}_zero is given with scales in {scales.dtype}, expected zeros with int4 alone")
        of_type(torch.uint8, **{f"{name}_zero": zeros})
        of_shape(zeros, f"{name}_zero", *shape)


def _check_weights(m: Call, rows: int, hidden: int, inner: int) -> None:
    if four_bits(m):
        return _check_four_bits(m, rows, hidden, inner)
    if m.w13_zero is not None or m.w2_zero is not None:
        refuse(f"w13_zero or w2_zero is given and w13 is {m.w13.dtype}, expected zeros with packed codes of int4 alone")
    of_type(E4M3 if m.w13.dtype == E4M3 else m.x.dtype, w13=m.w13, w2=m.w2)
    if (m.w13_scale is None) != (m.w13.dtype != E4M3) or (m.w2_scale is None) != (m.w13_scale is None):
        given = [name for name in ("w13_scale", "w2_scale") if getattr(m, name) is not None]
        refuse(f"w13 is {m.w13.dtype} with {' and '.join(given) or 'no scales'}, expected both scales for {E4M3}, and else none")
    of_type(torch.float32, w13_scale=m.w13_scale, w2_scale=m.w2_scale)
    experts, parts = m.w13.shape[0], lambda n: (n + GROUP - 1) // GROUP
    of_shape(m.w13_scale, "w13_scale", experts, parts(rows), parts(hidden))
    of_shape(m.w2_scale, "w2_scale", experts, parts(hidden), parts(inner))


def _check_routing(m: Call, tokens: int, experts: int) -> None:
    if (m.logits is None) == (m.ids is None) or (m.weights is None) != (m.ids is None):
        given = [name for name in ("logits", "weights", "ids") if getattr(m, name) is not None]
        refuse(f"the routing is given by {', '.join(given) or 'nothing'}, expected logits, or weights and ids")
    if m.expert_map is not None and m.expert_map.dim() != 1:
        refuse(f"expert_map is {list(m.expert_map.shape)}, expected [experts]")
    of_type(torch.int32, expert_map=m.expert_map)
    of_type(torch.float32, weights=m.weights, correction_bias=m.correction_bias)
    chosen = experts if m.expert_map is None else m.expert_map.shape[0]
    of_shape(m.logits, "logits", tokens, chosen)
    of_shape(m.correction_bias, "correction_bias", chosen)
    if m.groups < 1 or chosen % m.groups or not 0 <= m.topk_groups <= m.groups:
        refuse(
            f"groups = {m.groups} and topk_groups = {m.topk_groups}, expected groups that divide {chosen} experts, "
            "and topk_groups from 0 (all) to groups"
        )
    if m.ids is not None:
        if m.ids.dim() != 2 or m.ids.shape[1] < 1 or m.k not in (0, m.ids.shape[1]):
            refuse(f"ids is {list(m.ids.shape)} and k = {m.k}, expected [{tokens}, k]")
        if m.ids.dtype not in (torch.int32, torch.int64):
            refuse(f"ids is {m.ids.dtype}, expected torch.int32 or torch.int64")
        of_shape(m.ids, "ids", tokens, m.ids.shape[1])
        of_shape(m.weights, "weights", tokens, m.ids.shape[1])
        return
    most = chosen // m.groups * (m.topk_groups or m.groups)
    if not 1 <= m.k <= most:
        refuse(f"k = {m.k}, expected 1 to {most}, the number of experts that a token may choose from")


# ---- the operator


class _Rows(NamedTuple):
    """The pairs of token and expert in blocks, as moe_align writes them."""

    sorted_token_ids: Tensor
    expert_ids: Tensor
    num_tokens_post_padded: Tensor
    inverse: Tensor

    def blocks(self) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of moe_gemm, in its order."""
        return self.expert_ids, self.sorted_token_ids, self.num_tokens_post_padded


def _aligned(rows: Tensor | None) -> Tensor | None:
    """Rows that begin at multiples of 16 bytes, or that are packed. Other rows are copied."""
    if rows is None:
        return None
    packed = rows.is_contiguous() or (rows.stride(1) == 1 and rows.stride(0) * rows.element_size() % 16 == 0)
    return rows if packed and rows.data_ptr() % 16 == 0 else rows.clone(memory_format=torch.contiguous_format)


def _route(m: Call, k: int, block: int) -> tuple[Tensor, _Rows, tuple[Tensor, Tensor] | None]:
    """The routing weights f32 [T, k], the rows of the products, and x in e4m3 with its scales if the launch made them."""
    weights, ids, local_only = m.weights, m.ids, m.expert_map is not None
    if m.logits is not None:
        gate = (m.score, m.correction_bias, m.renormalize, m.groups, m.topk_groups, m.scale)
        if m.logits.shape[0] <= MOST_TOKENS_OF_ROUTE and experts_of(m) * k <= MOST_CHOICES_OF_ROUTE:
            options = (k, block, *gate, m.expert_map, local_only)
            if not fp8(m):
                weights, _, *rows = _kernels["moe_route"](m.logits, *options)
                return weights, _Rows(*rows), None
            weights, _, *rows, codes, scales = _kernels["moe_route_quant"](m.logits, m.x, *options)
            return weights, _Rows(*rows), (codes, scales)
        weights, ids = _kernels["topk_gate"](m.logits, k, *gate)
    return weights, _Rows(*_kernels["moe_align"](ids, experts_of(m), block, m.expert_map, local_only)), None


def _packed(codes: Tensor, scales: Any, rows: _Rows, zeros: Tensor | None) -> tuple[Any, ...]:
    """Arguments of moe_gemm_w4a16 after its first, up to `group`."""
    return codes, scales, *rows.blocks(), zeros, _four_bits.codes_of(scales), _four_bits.group_of(codes, scales)


#: The least size of a row between the products for which x in bf16 or f16 is copied to the places of its experts. On an
#: H200 a copy of x took 0.6 % of the time of both products with 14336, and its product took 0.9 of the time.
LEAST_INNER_OF_COPY = 1024


def _in_places(m: Call, quantised: tuple[Tensor, Tensor] | None, k: int, block: int) -> tuple[bool, bool]:
    """True for the rows of x, and for those between the products, that lie in the order of the places.

    Whole blocks of such rows are loaded at once.
    """
    many = block == 128 and m.x.shape[0] * k >= 128 * experts_of(m)
    if not many or quantised is not None or m.weight_on_input or four_bits(m):
        return False, False
    return fp8(m) or m.w2.shape[2] >= LEAST_INNER_OF_COPY, True


def _up(
    m: Call, quantised: tuple[Tensor, Tensor] | None, weights: Tensor, rows: _Rows, k: int, block: int, in_places: tuple[bool, bool]
) -> tuple[Tensor, Tensor | None]:
    """The first product [T * k, I], or [places, I], with its scales in e4m3.

    `quantised` is x in e4m3 with its scales, if they are made, and `in_places` what _in_places() said.
    """
    weighted = (weights, "product") if m.weight_on_input else (None, "none")
    epilogue = (*rows.blocks(), k, block, m.bias13, weighted[0], m.act, m.gated, m.order, weighted[1], m.alpha, m.limit)
    if four_bits(m):
        return _kernels["moe_gemm_w4a16"](m.x, *_packed(m.w13, m.w13_scale, rows, m.w13_zero), *epilogue[3:]), None
    x_in_places, h_in_places = in_places
    named: dict[str, Any] = {}
    if x_in_places:
        epilogue = (*rows.blocks(), 1, *epilogue[4:])
        named["pairs"] = rows.inverse.numel()
    if not fp8(m):
        if h_in_places:
            named["to_places"] = True
        x = _kernels["moe_place"](m.x, rows.inverse, len(rows.sorted_token_ids)) if x_in_places else m.x
        return _kernels["moe_gemm"](x, m.w13, *epilogue, **named), None
    if x_in_places:
        codes, scales = _kernels["moe_place_quant"](m.x, rows.inverse, len(rows.sorted_token_ids))
        return _kernels["moe_gemm_fp8_quant"](codes, m.w13, scales, m.w13_scale, *epilogue, **named)
    codes, scales = quantised or _kernels["fp8_quant_group"](m.x, GROUP)
    return _kernels["moe_gemm_fp8_quant"](codes, m.w13, scales, m.w13_scale, *epilogue)


def _down(m: Call, h: Tensor, scales: Tensor | None, weights: Tensor, rows: _Rows, block: int, in_places: bool) -> Tensor:
    """The second product [T * k, H]. It loads w2 early, because the launch before is the first product."""
    weighted = (None, "none") if m.weight_on_input else (weights.reshape(-1, 1), "result")
    epilogue = (*rows.blocks(), 1, block, m.bias2, weighted[0], "none", False, "gate_first", weighted[1])
    if four_bits(m):
        return _kernels["moe_gemm_w4a16"](h, *_packed(m.w2, m.w2_scale, rows, m.w2_zero), *epilogue[3:], early_b=True)
    named: dict[str, Any] = {"pairs": rows.inverse.numel()} if in_places else {}
    if scales is None:
        return _kernels["moe_gemm"](h, m.w2, *epilogue, early_b=True, **named)
    return _kernels["moe_gemm_fp8"](h, m.w2, scales, m.w2_scale, *epilogue, early_b=True, out_dtype=m.x.dtype, **named)


def _launch(*arguments: Any, **named: Any) -> Tensor:
    m = Call(*arguments, **named)
    check(m)
    m = m._replace(**{name: _aligned(getattr(m, name)) for name in ("x", "logits", "shared", "residual", "bias13", "bias2")})
    (tokens, hidden), k = m.x.shape, count_of(m)
    if not tokens:
        return _shape(*m)
    block = block_of(tokens * k, experts_of(m), m.w13.dtype)
    weights, rows, quantised = _route(m, k, block)
    in_places = _in_places(m, quantised, k, block)
    h, scales = _up(m, quantised, weights, rows, k, block, in_places)
    y = _down(m, h, scales, weights, rows, block, in_places[1])
    # Without a map, experts that the gate chose are all here. Otherwise a pair may have no row in y.
    inverse = rows.inverse if m.logits is None or m.expert_map is not None else None
    gate = None if m.shared_gate is None else m.shared_gate.reshape(tokens, 1)
    return _kernels["moe_combine"](y.view(tokens, k, hidden), None, inverse, m.shared, gate, m.residual)


def _shape(*arguments: Any, **named: Any) -> Tensor:
    m = Call(*arguments, **named)
    check(m)
    return torch.empty_like(m.x, memory_format=torch.contiguous_format)


def _described() -> None:
    """Runs a mixture of experts: each row of x goes through k experts, which logits choose, or weights and ids name.

    The result [T, H] has x's type. It is the sum over the experts of a token, in the order of their scores, of
    weight * (act(gate) * up) w2^T, plus the shared expert and the residual. kiln.torch.FusedMoE describes the options.
    """


def _register() -> Any:
    body = types.FunctionType(_described.__code__, globals(), "fused_moe")
    arguments = inspect.signature(Call)
    body.__signature__ = arguments.replace(return_annotation=Tensor)  # type: ignore[attr-defined]
    body.__annotations__ = {p.name: p.annotation for p in arguments.parameters.values()} | {"return": Tensor}
    body.__doc__ = _described.__doc__
    schema = torch.library.infer_schema(body, mutates_args=())
    return _registry.install("kiln::fused_moe", schema, body, _launch, _shape, "CUDA")


fused_moe = _register()
