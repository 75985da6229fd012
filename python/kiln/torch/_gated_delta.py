"""GatedDeltaNet: the mixer of Qwen3-Next for inference, with states in the slots of pools.

A call is six launches: one product for q, k, v, z, b and a, the convolution, a copy of b and a, the delta rule,
the gated norm, and the output's product.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import _by_length
from ._generated import operators
from ._linear import Linear, _parameter
from ._shapes import of_shape, refuse

_conv1d_pool, _gated_rms_norm = operators["conv1d_pool"], operators["gated_rms_norm"]
_delta_rule_pool = _by_length.choosing["delta_rule_pool"]


class Sizes(NamedTuple):
    """Sizes of a mixer. Value head i belongs to head i / (value_heads / heads)."""

    heads: int  #: of q and k
    value_heads: int
    key: int  #: elements of a head of q and k
    value: int  #: elements of a head of v

    @property
    def channels(self) -> int:
        """Columns of q, k and v, which go through the convolution."""
        return 2 * self.heads * self.key + self.value_heads * self.value

    @property
    def rows(self) -> int:
        """Rows of the first product's weight: q, k, v, z, b and a, one after the other."""
        return self.channels + self.value_heads * self.value + 2 * self.value_heads


def projected(y: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k and v [..., channels], z [..., value_heads, value], b and a [..., value_heads] of the first product's result."""
    z = y[..., sizes.channels : -2 * sizes.value_heads].unflatten(-1, (sizes.value_heads, sizes.value))
    both = y[..., -2 * sizes.value_heads :].unflatten(-1, (2, sizes.value_heads)).movedim(-2, 0).contiguous()
    return y[..., : sizes.channels], z, both[0], both[1]


def by_heads(mixed: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of the convolution's result, by heads. They are views."""
    columns = sizes.heads * sizes.key
    q, k, v = mixed.split((columns, columns, sizes.value_heads * sizes.value), -1)
    return (
        q.unflatten(-1, (sizes.heads, sizes.key)),
        k.unflatten(-1, (sizes.heads, sizes.key)),
        v.unflatten(-1, (sizes.value_heads, sizes.value)),
    )


class GatedDeltaStates(NamedTuple):
    """The pools of a mixer. Slot i of both belongs to one sequence."""

    conv: Tensor  #: [slots, channels, W - 1], or [slots, W - 1, channels] with taps_first
    recurrent: Tensor  #: [slots, value_heads, K, V], or [.., V, K] with v_first; f32, bf16 or f16


class GatedDeltaNet(nn.Module):
    """The gated delta rule with its projections, convolution, gates and norm, as Qwen3-Next has it, for inference.

        mixer = kiln.torch.GatedDeltaNet.of(model.model.layers[0].linear_attn)
        states = mixer.states(slots=256)                         # pools that all calls share
        y = mixer(x, states, state_indices)                      # x [N, S, hidden], state_indices i32 [N]: slots
        y = mixer(x, states, state_indices, cu_seqlens=ends)     # x [1, tokens, hidden]: sequences one after another

    Sequence n starts from the states in slot state_indices[n], which the call replaces by those after its last token. Below 0
    the sequence has no states, and its result has no meaning. No two sequences may have the same slot. A sequence whose
    `has_initial_state` (u8 [N]) is 0 starts from zeros, whatever its slot holds. `state_out_indices` (i32 [N, S]) gives the
    slot for the states after each token instead, or -1 for none, so that rejected tokens can be undone.

    `in_proj` [rows, hidden] has the rows of q, k, v, z, b and a, and `conv` is [channels, W]. `beta` says what b is: sigmoid,
    or twice_sigmoid for negative eigenvalues. The decay's logarithm is -exp(a_log) * softplus(a + dt_bias).

    A call runs a template with chunks for prompts, and delta_recurrent otherwise (torch.ops.kiln.delta_rule_pool). It may be
    compiled with fullgraph=True, and captured. It needs a GPU, and differentiates nothing.
    """

    def __init__(
        self,
        in_proj: Tensor,
        conv: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        norm: Tensor,
        out_proj: Tensor,
        *,
        heads: int,
        conv_bias: Tensor | None = None,
        eps: float = 1e-6,
        beta: str = "sigmoid",
        v_first: bool = False,
        taps_first: bool = False,
        early: bool = True,
    ) -> None:
        super().__init__()
        value_heads, value = a_log.shape[0], norm.shape[0]
        if heads < 1 or value_heads % heads:
            refuse(f"a_log has {value_heads} value heads, expected a multiple of heads = {heads}")
        columns = in_proj.shape[0] - 2 * value_heads * (value + 1)
        if columns < 2 * heads or columns % (2 * heads):
            refuse(
                f"in_proj has {in_proj.shape[0]} rows, expected those of q, k, v, z, b and a for {heads} and {value_heads} heads"
            )
        self.sizes = sizes = Sizes(heads, value_heads, columns // (2 * heads), value)
        of_shape(conv, "conv", sizes.channels, conv.shape[-1])
        of_shape(conv_bias, "conv_bias", sizes.channels)
        of_shape(dt_bias, "dt_bias", value_heads)
        of_shape(out_proj, "out_proj", out_proj.shape[0], value_heads * value)
        self.eps, self.beta, self.v_first, self.taps_first = eps, beta, v_first, taps_first
        self.in_proj, self.out_proj = Linear(in_proj, early=early), Linear(out_proj, early=early)
        self.conv, self.norm = _parameter(conv.contiguous()), _parameter(norm)
        self.register_parameter("conv_bias", _parameter(conv_bias))
        self.register_buffer("a_log", a_log.detach().float())
        self.register_buffer("dt_bias", dt_bias.detach().float())

    @classmethod
    def of(cls, module: nn.Module, **options: Any) -> GatedDeltaNet:
        """A mixer with the weights of another library's module, which are copied where their rows change places.

        The module is Qwen3NextGatedDeltaNet or Qwen3_5GatedDeltaNet of transformers, or GatedDeltaNet of Flash Linear
        Attention with its gate and short convolutions. `options` go to the constructor.
        """
        name = type(module).__name__
        if hasattr(module, "in_proj_qkvz"):
            return cls(**_of_qwen3_next(module), **options)
        if hasattr(module, "in_proj_qkv"):
            return cls(**_of_qwen3_5(module), **options)
        if hasattr(module, "q_conv1d") and hasattr(module, "g_proj"):
            return cls(**_of_fla(module), **options)
        refuse(f"the module is {name}, expected Qwen3NextGatedDeltaNet, Qwen3_5GatedDeltaNet, or FLA's GatedDeltaNet with its gate")
        raise AssertionError

    def states(self, slots: int, dtype: torch.dtype = torch.float32) -> GatedDeltaStates:
        """Pools of zeros. `dtype` is that of the recurrent states; f32 is exact, and bf16 halves the bytes of a decode step."""
        s, taps = self.sizes, self.conv.shape[1] - 1
        conv = (taps, s.channels) if self.taps_first else (s.channels, taps)
        recurrent = (s.value, s.key) if self.v_first else (s.key, s.value)
        return GatedDeltaStates(
            self.conv.new_zeros(slots, *conv), self.conv.new_zeros(slots, s.value_heads, *recurrent, dtype=dtype)
        )

    def _apply(self, fn: Any, recurse: bool = True) -> GatedDeltaNet:
        """Moves the mixer. The gate's vectors stay f32: .to(torch.bfloat16) is for the others."""
        kept = {name: getattr(self, name) for name in ("a_log", "dt_bias")}
        super()._apply(fn, recurse)
        for name, vector in kept.items():
            moved = getattr(self, name)
            if moved.dtype != vector.dtype:
                setattr(self, name, vector.to(moved.device))
        return self

    def forward(
        self,
        x: Tensor,
        states: GatedDeltaStates,
        state_indices: Tensor,
        residual: Tensor | None = None,
        *,
        has_initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state_out_indices: Tensor | None = None,
    ) -> Tensor:
        """The result [N, S, hidden], plus a residual of that shape."""
        if x.dim() != 3:
            refuse(f"x is {list(x.shape)}, expected [sequences, tokens, hidden], or [1, tokens, hidden] with cu_seqlens")
        qkv, z, b, a = projected(self.in_proj(x), self.sizes)
        mixed = _conv1d_pool(
            qkv,
            self.conv,
            states.conv,
            state_indices,
            self.conv_bias,
            has_initial_state,
            cu_seqlens,
            True,
            self.taps_first,
            state_out_indices,
        )
        q, k, v = by_heads(mixed, self.sizes)
        o = _delta_rule_pool(
            q,
            k,
            v,
            states.recurrent,
            state_indices,
            b,
            a,
            has_initial_state=has_initial_state,
            cu_seqlens=cu_seqlens,
            l2norm=True,
            v_first=self.v_first,
            state_out_indices=state_out_indices,
            beta_input=self.beta,
            gate_input="softplus",
            a_log=self.a_log,
            dt_bias=self.dt_bias,
        )
        return self.out_proj(_gated_rms_norm(o, z, self.norm, self.eps).flatten(2), residual)

    def extra_repr(self) -> str:
        s = self.sizes
        return f"heads={s.heads}, value_heads={s.value_heads}, key={s.key}, value={s.value}, taps={self.conv.shape[1]}"


# ---- weights of other libraries


def rows_of_qwen3_next(sizes: Sizes, device: torch.device) -> tuple[Tensor, Tensor]:
    """For the rows of in_proj: their places in in_proj_qkvz, and in in_proj_ba, whose rows go by head of q and k."""
    group = sizes.value_heads // sizes.heads
    widths = (sizes.key, sizes.key, group * sizes.value, group * sizes.value)
    places = torch.arange(sizes.heads * sum(widths), device=device).view(sizes.heads, -1).split(widths, 1)
    both = torch.arange(2 * sizes.value_heads, device=device).view(sizes.heads, 2, group)
    return torch.cat([part.reshape(-1) for part in places]), both.transpose(0, 1).reshape(-1)


def sizes_of(module: Any) -> Sizes:
    """The sizes of a module of transformers."""
    return Sizes(module.num_k_heads, module.num_v_heads, module.head_k_dim, module.head_v_dim)


def _rest(module: Any) -> dict[str, Any]:
    """The weights that both modules of transformers have."""
    return {
        "conv": module.conv1d.weight.detach().squeeze(1),
        "conv_bias": module.conv1d.bias,
        "a_log": module.A_log,
        "dt_bias": module.dt_bias,
        "norm": module.norm.weight,
        "eps": module.norm.variance_epsilon,
        "out_proj": module.out_proj.weight,
        "heads": module.num_k_heads,
    }


def packed_of_qwen3_next(module: Any) -> Tensor:
    """The weight of the first product, from in_proj_qkvz and in_proj_ba."""
    places, both = rows_of_qwen3_next(sizes_of(module), module.in_proj_qkvz.weight.device)
    with torch.no_grad():
        return torch.cat([module.in_proj_qkvz.weight[places], module.in_proj_ba.weight[both]])


def _of_qwen3_next(module: Any) -> dict[str, Any]:
    return {"in_proj": packed_of_qwen3_next(module), **_rest(module)}


def _of_qwen3_5(module: Any) -> dict[str, Any]:
    parts = (module.in_proj_qkv, module.in_proj_z, module.in_proj_b, module.in_proj_a)
    return {"in_proj": torch.cat([part.weight.detach() for part in parts]), **_rest(module)}


def _of_fla(module: Any) -> dict[str, Any]:
    parts = (module.q_proj, module.k_proj, module.v_proj, module.g_proj, module.b_proj, module.a_proj)
    convolutions = (module.q_conv1d, module.k_conv1d, module.v_conv1d)
    biases = [conv.bias for conv in convolutions if conv.bias is not None]
    if len(biases) not in (0, len(convolutions)):
        refuse("some convolutions of the module have a bias, expected all or none")
    return {
        "in_proj": torch.cat([part.weight.detach() for part in parts]),
        "conv": torch.cat([conv.weight.detach().flatten(1) for conv in convolutions]),
        "conv_bias": torch.cat([bias.detach() for bias in biases]) if biases else None,
        "a_log": module.A_log,
        "dt_bias": module.dt_bias,
        "norm": module.o_norm.weight,
        "eps": module.o_norm.eps,
        "out_proj": module.o_proj.weight,
        "heads": module.num_heads,
        "beta": "twice_sigmoid" if getattr(module, "allow_neg_eigval", False) else "sigmoid",
    }
