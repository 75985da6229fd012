"""FusedMoE: a mixture of experts for inference on the operator fused_moe, and the same in plain torch.

Where the operator cannot run, plain torch computes the call. refusal() says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _four_bits, _linear
from ._four_bits import FourBits
from ._fused_moe import E4M3, GROUP, Call, check, fused_moe
from ._linear import DTYPES, OF_EXPERTS, _parameter
from ._shapes import refuse

#: the least compute capability that multiplies e4m3
LEAST_CAPABILITY_OF_E4M3 = (8, 9)
MOST_EXPERTS, MOST_PER_TOKEN, MOST_GROUPS = 512, 32, 32
LARGEST_E4M3 = 448.0
#: names of the linear layers of one expert: gate, up and down
EXPERT_LAYERS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))


# ---- whether the operator can run


def misfit(w13: Tensor, w2: Tensor) -> str:
    """Why the operator cannot multiply by these weights, whatever a call is; empty when it can."""
    if w13.dtype == torch.int32:
        return _unfit_codes(w13=w13, w2=w2)
    if w13.dtype not in (*DTYPES, E4M3):
        return f"the weights are {w13.dtype}, expected torch.float16, torch.bfloat16 or {E4M3}"
    multiple = GROUP if w13.dtype == E4M3 else 8
    hidden, inner = w2.shape[1:]
    if hidden % multiple or inner % multiple:
        return f"the experts have {hidden} inputs and {inner} inner elements, expected multiples of {multiple}"
    for name, weight in (("w13", w13), ("w2", w2)):
        if weight.stride(2) != 1 or any(stride % multiple for stride in weight.stride()[:2]):
            return f"{name} has strides {list(weight.stride())}, expected contiguous rows at multiples of {multiple} elements"
        if not torch.compiler.is_compiling() and weight.data_ptr() % 16:  # torch.compile cannot trace an address
            return f"{name} begins at an address that is no multiple of 16 bytes"
    return ""


def _unfit_codes(**weights: Tensor) -> str:
    """Why the operator cannot multiply by packed codes; empty when it can."""
    for name, codes in weights.items():
        if not codes.is_contiguous():
            return f"{name} has strides {list(codes.stride())}, expected contiguous codes"
        if not torch.compiler.is_compiling() and codes.data_ptr() % 16:
            return f"{name} begins at an address that is no multiple of 16 bytes"
    return ""


def refusal(m: Call) -> str:
    """Why a call runs in plain torch; empty when the operator runs it."""
    reason = misfit(m.w13, m.w2)
    if reason:
        return reason
    if m.x.dtype not in DTYPES:
        return f"x is {m.x.dtype}, expected torch.float16 or torch.bfloat16"
    experts = (m.expert_map if m.expert_map is not None else m.w13).shape[0]
    chosen = m.k if m.ids is None else m.ids.shape[-1]
    if experts > MOST_EXPERTS or chosen > MOST_PER_TOKEN:
        return f"a token has {chosen} of {experts} experts, expected at most {MOST_PER_TOKEN} of {MOST_EXPERTS}"
    if m.logits is not None and m.logits.dtype not in (torch.float32, *DTYPES):
        return f"logits is {m.logits.dtype}, expected torch.float32, torch.float16 or torch.bfloat16"
    if m.logits is not None and m.groups > MOST_GROUPS:
        return f"groups = {m.groups}, expected at most {MOST_GROUPS}"
    if m.w13.device.type != _linear.DEVICE:
        return f"the weights are on {m.w13.device.type}, expected {_linear.DEVICE}"
    if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in m):
        return "gradients are enabled and required: call the layer under torch.no_grad or torch.inference_mode"
    return too_old(m.w13)


def too_old(w13: Tensor) -> str:
    """Why the operator cannot multiply by a weight on its device; empty when it can."""
    least = LEAST_CAPABILITY_OF_E4M3 if w13.dtype == E4M3 else _linear.LEAST_CAPABILITY
    return _linear.too_old(w13.device, least)


# ---- plain torch


def route(m: Call) -> tuple[Tensor, Tensor]:
    """The routing weights and the experts [T, k], as the operator topk_gate chooses them."""
    if m.logits is None:
        return m.weights, m.ids  # type: ignore[return-value]
    logits = m.logits.to(torch.promote_types(m.logits.dtype, torch.float32))
    scores = torch.sigmoid(logits) if m.score == "sigmoid" else torch.softmax(logits, -1)
    chosen = scores if m.correction_bias is None else scores + m.correction_bias
    if 0 < m.topk_groups < m.groups:
        parts = chosen.unflatten(-1, (m.groups, -1))
        worth = parts.amax(-1) if m.correction_bias is None else parts.topk(2, -1).values.sum(-1)
        best = worth.sort(dim=-1, descending=True, stable=True).indices[:, : m.topk_groups]
        kept = torch.zeros_like(worth, dtype=torch.bool).scatter_(-1, best, True)
        chosen = parts.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(-2)
    ids = chosen.sort(dim=-1, descending=True, stable=True).indices[:, : m.k]  # the lower expert wins a tie
    weights = scores.gather(-1, ids)
    if m.renormalize:
        total = weights.sum(-1, keepdim=True)
        weights = torch.where(total >= torch.finfo(torch.float32).tiny, weights / total, 1 / m.k)
    return weights * m.scale, ids


def _local(m: Call, ids: Tensor) -> Tensor:
    """The local numbers of experts, -1 for none."""
    if m.expert_map is None:
        return ids
    experts = m.expert_map.shape[0]
    return m.expert_map[ids.clamp(0, experts - 1).long()].masked_fill((ids < 0) | (ids >= experts), -1)


def _activated(m: Call, y: Tensor) -> Tensor:
    if not m.gated:
        return OF_EXPERTS[m.act](y)
    gate, up = y.chunk(2, -1) if m.order == "gate_first" else y.chunk(2, -1)[::-1]
    if m.act != "swigluoai":
        return OF_EXPERTS[m.act](gate) * up
    gate, up = gate.clamp(max=m.limit), up.clamp(-m.limit, m.limit)
    return gate * torch.sigmoid(m.alpha * gate) * (up + 1)


def _expert(m: Call, expert: int, x: Tensor, weight: Tensor) -> Tensor:
    """The result of one expert for rows of x, times their routing weights."""
    y = F.linear(x, _weight(m.w13, m.w13_scale, m.w13_zero, expert, x))
    if m.weight_on_input:
        y = (y * weight).to(x.dtype)
    h = _activated(m, y if m.bias13 is None else y + m.bias13[expert])
    y = F.linear(h, _weight(m.w2, m.w2_scale, m.w2_zero, expert, h), None if m.bias2 is None else m.bias2[expert])
    return y.to(weight.dtype) if m.weight_on_input else y * weight


def plain(m: Call) -> Tensor:
    """The result of fused_moe in plain torch, which rounds after each step and sums over experts in f32.

    Weights in e4m3 and of 4 bits are multiplied in x's type, and neither x nor the activations are quantised.

    A compiled call computes every expert for every token: the number of rows of an expert is not known while tracing.
    """
    check(m)
    weights, ids = route(m)
    local = _local(m, ids)
    weights = weights.to(torch.promote_types(m.x.dtype, torch.float32))
    total = torch.zeros(m.x.shape, dtype=weights.dtype, device=m.x.device)
    for expert in range(m.w13.shape[0]):
        mine = local == expert
        weight, chosen = weights.masked_fill(~mine, 0).sum(1, keepdim=True), mine.any(1)
        if torch.compiler.is_compiling():
            total = torch.where(chosen.unsqueeze(1), total + _expert(m, expert, m.x, weight), total)
            continue
        rows = chosen.nonzero().squeeze(1)
        if rows.numel():
            total = total.index_add(0, rows, _expert(m, expert, m.x[rows], weight[rows]))
    if m.shared is not None:
        total = total + (m.shared if m.shared_gate is None else m.shared * torch.sigmoid(m.shared_gate.to(total.dtype)).view(-1, 1))
    return (total if m.residual is None else total + m.residual).to(m.x.dtype)


# ---- weights in e4m3


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [E, rows, K] in e4m3, and their scales f32 [E, ceil(rows / 128), ceil(K / 128)]: one for each 128 x 128 elements."""
    codes, scales = torch.empty_like(weight, dtype=E4M3, memory_format=torch.contiguous_format), []
    rows, columns = weight.shape[1:]
    for expert, out in zip(weight, codes):
        padded = F.pad(expert.float(), (0, -columns % GROUP, 0, -rows % GROUP))
        blocks = padded.unflatten(0, (-1, GROUP)).unflatten(2, (-1, GROUP))
        scale = blocks.abs().amax((1, 3)).clamp(min=1e-10) / LARGEST_E4M3
        out.copy_((blocks / scale[:, None, :, None]).flatten(2).flatten(0, 1)[:rows, :columns])
        scales.append(scale)
    return codes, torch.stack(scales)


def _weight(weights: Tensor, scales: Tensor | None, zeros: Tensor | None, expert: int, x: Tensor) -> Tensor:
    """The weight of one expert, in x's type."""
    if scales is None:
        return weights[expert]
    if weights.dtype == torch.int32:
        one = FourBits(weights[expert, None], scales[expert, None], None if zeros is None else zeros[expert, None])
        return _four_bits.unpacked(one, x.shape[-1])[0].to(x.dtype)
    weight, factors = weights[expert], scales[expert].repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)
    return (weight.float() * factors[: weight.shape[0], : weight.shape[1]]).to(x.dtype)


# ---- the module


class FusedMoE(nn.Module):
    """A mixture of experts for inference: gate, two products, activation and sum in four launches.

        moe = kiln.torch.FusedMoE(w13, w2, k=8)                       # w13 [E, 2 I, H]: gate rows, then up rows; w2 [E, H, I]
        moe = kiln.torch.FusedMoE.of(block.experts, k=8, fp8=True)    # packs weights of modules
        y = moe(x, router(x), residual)                               # x [..., H], logits [..., experts]

    A token takes the `k` experts with the largest `score` (softmax or sigmoid) of its logits. The scores are their weights:
    divided by their sum with `renormalize`, and times `scale`. `correction_bias`, `groups` and `topk_groups` are DeepSeek's.
    A call may give weights and ids instead of logits.

    `act` is silu, gelu, gelu_tanh, relu, relu_squared, none, or swigluoai (gpt-oss's, with `alpha` and `limit`). With `gated`
    an expert computes act(gate) * up; `order` says which half of the rows of w13 is the gate: gate_first or up_first.
    `bias13` and `bias2` are added to the products. `weight_on_input` applies routing weights to the first product (Llama 4).

    `shared` is a module for the expert that every token has. The sigmoid of the module `shared_gate` multiplies its result.

    With `local=range(a, b)` and `experts=N` the layer has the weights of experts a to b - 1 of N, and gives their part of
    the sum. `expert_map` (i32 [N]) describes any placement: it has the local number of each expert, or -1.

    `fp8` stores weights in e4m3, with a scale for each 128 x 128 elements; x and the activations are then quantised
    for each 128 elements of a row.

    w13 and w2 may be packed weights of 4 bits: FourBits of quantize_mxfp4() or quantize_int4(), or of pack_mxfp4() or
    pack_int4() for the codes of a checkpoint. x and the activations stay in 16 bits.

    The operator runs in f16 and bf16, on a GPU of compute capability 8.0 or later (8.9 with fp8), and differentiates nothing.
    H and I must be multiples of 8, of 128 with fp8, and of 16 with 4 bits. Every other call gives the same in plain torch, and
    explain() says why.
    """

    def __init__(
        self,
        w13: Tensor | FourBits,
        w2: Tensor | FourBits,
        k: int,
        *,
        bias13: Tensor | None = None,
        bias2: Tensor | None = None,
        score: str = "softmax",
        renormalize: bool = True,
        correction_bias: Tensor | None = None,
        groups: int = 1,
        topk_groups: int = 0,
        scale: float = 1.0,
        act: str = "silu",
        gated: bool = True,
        order: str = "gate_first",
        alpha: float = 1.702,
        limit: float = 7.0,
        weight_on_input: bool = False,
        expert_map: Tensor | None = None,
        local: range | None = None,
        experts: int = 0,
        shared: nn.Module | None = None,
        shared_gate: nn.Module | None = None,
        fp8: bool = False,
    ) -> None:
        super().__init__()
        extra: dict[str, Tensor | None] = {"w13_scale": None, "w2_scale": None, "w13_zero": None, "w2_zero": None}
        if isinstance(w13, FourBits) and isinstance(w2, FourBits) and not fp8:
            (w13, extra["w13_scale"], extra["w13_zero"]), (w2, extra["w2_scale"], extra["w2_zero"]) = w13, w2
        if isinstance(w13, FourBits) or isinstance(w2, FourBits):
            refuse("w13 or w2 is FourBits, expected both or none, and without fp8")
        if local is not None:
            expert_map = _map_of(local, experts, expert_map, w13)
        if fp8:
            (w13, extra["w13_scale"]), (w2, extra["w2_scale"]) = quantize(w13.detach()), quantize(w2.detach())
        self.k = k
        #: the options of fused_moe that are no tensors
        self.options: dict[str, Any] = {
            "score": score,
            "renormalize": renormalize,
            "groups": groups,
            "topk_groups": topk_groups,
            "scale": scale,
            "act": act,
            "gated": gated,
            "order": order,
            "alpha": alpha,
            "limit": limit,
            "weight_on_input": weight_on_input,
        }
        self.w13, self.w2 = _parameter(w13), _parameter(w2)
        self.register_parameter("bias13", _parameter(bias13))
        self.register_parameter("bias2", _parameter(bias2))
        self.register_buffer("correction_bias", None if correction_bias is None else correction_bias.detach().float())
        for name, tensor in extra.items():
            self.register_buffer(name, tensor)
        self.register_buffer("expert_map", expert_map, persistent=False)
        self.shared, self.shared_gate = shared, shared_gate
        check(
            self._call(
                w13.new_empty(0, self.in_features, dtype=self._given_type()), w13.new_empty(0, self._experts(), dtype=torch.float32)
            )
        )
        too_old(w13)

    @classmethod
    def of(
        cls,
        experts: nn.Module | Iterable[nn.Module],
        k: int,
        *,
        transposed: bool | None = None,
        interleaved: bool | None = None,
        **options: Any,
    ) -> FusedMoE:
        """A layer with the weights of expert modules.

        A list of modules has gate_proj, up_proj and down_proj each, or w1, w3 and w2: linear layers, which are packed.
        One module has gate_up_proj [E, 2 I, H] and down_proj [E, H, I], as transformers 5 has them, and perhaps
        gate_up_proj_bias and down_proj_bias. The layer shares them, unless their layout differs. `transposed` says that they
        are [E, H, 2 I] and [E, I, H], and `interleaved` that gate and up rows alternate, as in gpt-oss. The defaults are the
        module's attributes is_transposed and is_concatenated. FusedMoE describes `options`.
        """
        if isinstance(experts, nn.Module) and hasattr(experts, "gate_up_proj"):
            if transposed is None:
                transposed = getattr(experts, "is_transposed", False)
            if interleaved is None:
                interleaved = not getattr(experts, "is_concatenated", True)
            return cls(*_laid_out(experts, transposed, interleaved, options), k, **options)
        return cls(*_packed(list(experts), options), k, **options)  # type: ignore[call-overload]

    def _given_type(self) -> torch.dtype:
        """A type that x may have."""
        if self.w13.dtype not in (E4M3, torch.int32):
            return self.w13.dtype
        if self.w13_scale is not None and self.w13_scale.dtype == torch.float16:
            return torch.float16
        return torch.bfloat16 if self.bias13 is None else self.bias13.dtype

    def _experts(self) -> int:
        """The experts that tokens choose from."""
        return (self.w13 if self.expert_map is None else self.expert_map).shape[0]

    def _apply(self, fn: Any, recurse: bool = True) -> FusedMoE:
        """Moves the layer. Codes, scales and the gate's bias keep their types: .to(torch.float16) is for the others."""
        kept = {name: getattr(self, name) for name in ("w13_scale", "w2_scale", "correction_bias")}
        kept |= {name: getattr(self, name) for name in ("w13", "w2") if getattr(self, name).dtype == E4M3}
        kept = {name: tensor.detach() for name, tensor in kept.items() if tensor is not None}
        super()._apply(fn, recurse)
        for name, tensor in kept.items():
            moved = getattr(self, name)
            if moved.dtype != tensor.dtype:
                same = tensor.to(moved.device)
                setattr(self, name, nn.Parameter(same, requires_grad=False) if isinstance(moved, nn.Parameter) else same)
        too_old(self.w13)
        return self

    @property
    def in_features(self) -> int:
        return self.w2.shape[1] * (_four_bits.ROWS if self.w2.dtype == torch.int32 else 1)

    def _call(self, x: Tensor, logits: Tensor | None, residual: Tensor | None = None, weights: Any = None, ids: Any = None) -> Call:
        """The call of fused_moe for rows. The shared expert is not run."""
        return Call(
            x,
            self.w13,
            self.w2,
            logits,
            weights,
            ids,
            self.k,
            correction_bias=self.correction_bias,
            expert_map=self.expert_map,
            bias13=self.bias13,
            bias2=self.bias2,
            w13_scale=self.w13_scale,
            w2_scale=self.w2_scale,
            residual=residual,
            w13_zero=self.w13_zero,
            w2_zero=self.w2_zero,
            **self.options,
        )

    def explain(self, x: Tensor | None = None, logits: Tensor | None = None, residual: Tensor | None = None) -> str:
        """Why a call with these tensors runs in plain torch; empty when it runs on kiln.

        Without x it looks at the layer alone. The answer depends on torch.is_grad_enabled().
        """
        given = self.w13.new_empty(0, self.in_features, dtype=self._given_type()) if x is None else x
        return refusal(self._call(given, logits, residual))

    def forward(
        self,
        x: Tensor,
        logits: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        weights: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> Tensor:
        """The result [..., H] for x [..., H] and logits [..., experts], plus a residual of x's shape.

        weights f32 [..., k] and ids [..., k] replace logits. Raises Error for other shapes and types.
        """
        flat = [None if t is None else t.reshape(-1, t.shape[-1]) for t in (x, logits, residual, weights, ids)]
        call = self._call(*flat)  # type: ignore[arg-type]
        if self.shared is not None:
            call = call._replace(shared=self.shared(call.x))
            if self.shared_gate is not None:
                call = call._replace(shared_gate=self.shared_gate(call.x))
        return (plain(call) if refusal(call) else fused_moe(*call)).view(x.shape)

    def extra_repr(self) -> str:
        rows = self.w13.shape[1] * (_four_bits.ROWS if self.w13.dtype == torch.int32 else 1)
        inner = rows // 2 if self.options["gated"] else rows
        dtype = _four_bits.codes_of(self.w13_scale) if self.w13.dtype == torch.int32 else self.w13.dtype
        return (
            f"experts={len(self.w2)} of {self._experts()}, k={self.k}, hidden={self.in_features}, inner={inner}, dtype={dtype}, "
            + ", ".join(f"{name}={value}" for name, value in self.options.items())
        )


# ---- packing


def _map_of(local: range, experts: int, expert_map: Tensor | None, w13: Tensor) -> Tensor:
    """The map of a range of experts."""
    if expert_map is not None:
        refuse("expert_map and local are given, expected one of them")
    if local.step != 1 or len(local) != w13.shape[0] or not 0 <= local.start < local.stop <= experts:
        refuse(f"local = {local} and experts = {experts}, expected a range of {w13.shape[0]} of the experts")
    out = torch.full((experts,), -1, dtype=torch.int32, device=w13.device)
    out[local.start : local.stop] = torch.arange(len(local), dtype=torch.int32, device=w13.device)
    return out


def _laid_out(experts: Any, transposed: bool, interleaved: bool, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """w13 and w2 of a module that holds all experts. Its biases become options."""
    w13, w2 = experts.gate_up_proj, experts.down_proj
    bias13, bias2 = (getattr(experts, f"{name}_bias", None) for name in ("gate_up_proj", "down_proj"))
    with torch.no_grad():
        if transposed:
            w13, w2 = w13.transpose(1, 2).contiguous(), w2.transpose(1, 2).contiguous()
        if interleaved:
            w13 = torch.cat([w13[:, ::2], w13[:, 1::2]], 1)
            bias13 = None if bias13 is None else torch.cat([bias13[:, ::2], bias13[:, 1::2]], 1)
    options.setdefault("bias13", bias13)
    options.setdefault("bias2", bias2)
    return w13, w2


def _packed(experts: list[nn.Module], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """w13 and w2 of a list of experts. Their biases become options."""
    if not experts:
        refuse("no expert is given, expected a module for each expert")
    names = next((names for names in EXPERT_LAYERS if all(hasattr(experts[0], name) for name in names)), None)
    if names is None:
        refuse(
            f"an expert is {type(experts[0]).__name__}, expected a module with gate_proj, up_proj and down_proj, or w1, w3 and w2"
        )
    layers = [[getattr(expert, name, None) for name in names] for expert in experts]  # type: ignore[union-attr]
    for expert, three in enumerate(layers):
        for name, layer in zip(names, three):  # type: ignore[arg-type]
            if type(layer) is not nn.Linear:
                refuse(f"{name} of expert {expert} is {type(layer).__name__}, expected torch.nn.Linear")
            if layer.weight.shape != layers[0][names.index(name)].weight.shape:  # type: ignore[union-attr]
                refuse(f"{name} of expert {expert} is {list(layer.weight.shape)}, expected the shape that expert 0 has")
    with torch.no_grad():
        w13 = torch.stack([torch.cat([gate.weight, up.weight]) for gate, up, _ in layers])
        w2 = torch.stack([down.weight for _, _, down in layers])
        if all(layer.bias is not None for three in layers for layer in three):
            options.setdefault("bias13", torch.stack([torch.cat([gate.bias, up.bias]) for gate, up, _ in layers]))
            options.setdefault("bias2", torch.stack([down.bias for _, _, down in layers]))
        elif any(layer.bias is not None for three in layers for layer in three):
            refuse("some layers of the experts have a bias and some have none, expected all or none")
    return w13, w2
