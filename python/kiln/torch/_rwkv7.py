"""RWKV7: the time mix of an RWKV7 block for inference, with states in the slots of pools, and its channel mix."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import _by_length, _linear
from ._generated import operators
from ._linear import Linear, _parameter
from ._shapes import of_shape, refuse

_conv1d_pool, _gemm_batched = operators["conv1d_pool"], operators["gemm_batched"]
_shift_mix, _kprep, _kvprep, _out = (operators[f"rwkv7_{name}"] for name in ("shift_mix", "kprep", "kvprep", "out"))
#: The recurrence of all calls: dplr_chunk for prompts, wkv7_recurrent otherwise.
_wkv7_pool = _by_length.choosing["wkv7_pool"]
#: added to the sum of squares of a key, as torch's normalize has 1e-12 as its least norm
EPS_OF_KEYS = 1e-24


class Shift(nn.Module):
    """The token before each sequence's first token, from the slots of a pool, which then get the sequence's last token.

    A causal convolution of two taps does both: its taps are the token before, and nothing of the token itself.
    """

    taps: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("taps", like.new_tensor([1, 0]).repeat(like.shape[-1], 1), persistent=False)

    def forward(
        self,
        x: Tensor,
        pool: Tensor,
        state_indices: Tensor,
        has_initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state_out_indices: Tensor | None = None,
    ) -> Tensor:
        """The tokens before [sequences, hidden] for x [N, S, hidden]; the pool is [slots, hidden, 1]."""
        if state_out_indices is not None:
            before = _conv1d_pool(
                x.contiguous(),
                self.taps,
                pool,
                state_indices,
                None,
                has_initial_state,
                cu_seqlens,
                state_out_indices=state_out_indices,
            )
            return before[:, 0] if cu_seqlens is None else before[0].index_select(0, cu_seqlens[:-1].clamp(max=x.shape[1] - 1))
        if cu_seqlens is None:
            last = x[:, -1:]
        else:
            last = x[0].index_select(0, (cu_seqlens[1:] - 1).clamp(min=0)).unsqueeze(1)
            state_indices = torch.where(cu_seqlens[1:] > cu_seqlens[:-1], state_indices, -1)  # an empty sequence keeps its token
        return _conv1d_pool(last.contiguous(), self.taps, pool, state_indices, None, has_initial_state).squeeze(1)


class RWKV7States(NamedTuple):
    """The pools of a time mix. Slot i of both belongs to one sequence."""

    shift: Tensor  #: [slots, hidden, 1]: the last token
    recurrent: Tensor  #: [slots, heads, K, V], or [.., V, K] with v_first; f32, bf16 or f16


class LowRank(nn.Module):
    """act(up(inner(down x)) + bias), of two products."""

    def __init__(self, down: Tensor, up: Tensor, bias: Tensor | None, inner: str, act: str) -> None:
        super().__init__()
        self.down, self.up = Linear(down, act=inner), Linear(up, bias, act=act)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))  # type: ignore[no-any-return]


class RWKV7(nn.Module):
    """The time mix of an RWKV7 block, for inference.

        mixer = kiln.torch.RWKV7.of(block.attn)                            # RWKV7Attention of Flash Linear Attention
        states = mixer.states(slots=256)                                   # pools that all calls share
        y, v_first = mixer(x, states, state_indices)                       # layer 0; x [N, S, hidden]
        y, _ = mixer(x, states, state_indices, v_first, residual)          # the other layers

    kiln.torch.GatedDeltaNet describes slots, `has_initial_state`, `cu_seqlens` and `state_out_indices`. `v_first` is
    the value of layer 0, which the other layers mix into their own.

    `mix` [6, hidden] has the shares of the token before in the inputs of r, k, v, decay, rate and gate. `rkv`
    [3, hidden, hidden] are the weights of r, k and v. `w`, `a`, `g` and `v` are pairs of low rank (down, up, bias); `v` is None
    in layer 0. k_k, k_a, r_k, norm_weight and norm_bias are [heads, size].

    A call may be compiled with fullgraph=True, and captured. It needs a GPU, and differentiates nothing.
    """

    def __init__(
        self,
        mix: Tensor,
        rkv: Tensor,
        w: tuple[Tensor, Tensor, Tensor | None],
        a: tuple[Tensor, Tensor, Tensor | None],
        g: tuple[Tensor, Tensor, Tensor | None],
        v: tuple[Tensor, Tensor, Tensor | None] | None,
        k_k: Tensor,
        k_a: Tensor,
        r_k: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        out_proj: Tensor,
        *,
        eps: float = 64e-5,
        v_first: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.size = r_k.shape
        hidden = self.heads * self.size
        of_shape(mix, "mix", 6, hidden)
        of_shape(rkv, "rkv", 3, hidden, hidden)
        of_shape(out_proj, "out_proj", hidden, hidden)
        of_shape(k_k, "k_k", self.heads, self.size)
        of_shape(k_a, "k_a", self.heads, self.size)
        of_shape(norm_weight, "norm_weight", self.heads, self.size)
        of_shape(norm_bias, "norm_bias", self.heads, self.size)
        self.eps, self.v_first = eps, v_first
        self.mix, self.rkv = _parameter(mix), _parameter(rkv)
        self.k_k, self.k_a, self.r_k = _parameter(k_k), _parameter(k_a), _parameter(r_k)
        self.register_parameter("norm_weight", _parameter(norm_weight))
        self.register_parameter("norm_bias", _parameter(norm_bias))
        self.w, self.a = LowRank(*w, "tanh", "log_decay"), LowRank(*a, "none", "sigmoid")
        self.g = LowRank(*g, "sigmoid", "none")
        self.v = None if v is None else LowRank(*v, "none", "sigmoid")
        self.out_proj, self.shift = Linear(out_proj), Shift(mix)
        _linear.too_old(rkv.device)

    @classmethod
    def of(cls, module: Any, **options: Any) -> RWKV7:
        """A time mix with the weights of RWKV7Attention of Flash Linear Attention. `options` go to the constructor."""
        if not hasattr(module, "w_lora") or not hasattr(module, "r_k"):
            refuse(f"the module is {type(module).__name__}, expected RWKV7Attention of Flash Linear Attention")
        if module.value_dim != module.key_dim or module.key_dim != module.hidden_size:
            refuse(
                f"the module has {module.key_dim} key and {module.value_dim} value elements, expected {module.hidden_size} of both"
            )
        heads, lora = module.r_k.shape, {name: getattr(module, f"{name}_lora", None) for name in "wagv"}
        by_head = lambda vector: None if vector is None else vector.detach().reshape(heads)
        pair = lambda one: None if one is None else (one.lora[0].weight, one.lora[2].weight, one.lora[2].bias)
        norm = module.g_norm
        return cls(
            torch.cat([getattr(module, f"x_{name}").detach().view(1, -1) for name in "rkvwag"]),
            torch.stack([getattr(module, f"{name}_proj").weight.detach() for name in "rkv"]),
            pair(lora["w"]),  # type: ignore[arg-type]
            pair(lora["a"]),  # type: ignore[arg-type]
            pair(lora["g"]),  # type: ignore[arg-type]
            pair(lora["v"]),
            by_head(module.k_k),
            by_head(module.k_a),
            by_head(module.r_k),
            by_head(norm.weight),
            by_head(norm.bias),
            module.o_proj.weight,
            eps=norm.eps,
            **options,
        )

    def states(self, slots: int, dtype: torch.dtype = torch.float32) -> RWKV7States:
        """Pools of zeros. `dtype` is that of the recurrent states."""
        return RWKV7States(
            self.mix.new_zeros(slots, self.mix.shape[1], 1),
            self.mix.new_zeros(slots, self.heads, self.size, self.size, dtype=dtype),
        )

    def _receptance_key_value(self, mixed: Tensor) -> Tensor:
        """r, k and v [3, N, S, hidden] of their inputs, by one launch where gemm fits."""
        if _linear.refusal(self.rkv[0], False, mixed):
            return torch.matmul(mixed, self.rkv.unsqueeze(1).transpose(-1, -2))
        return _gemm_batched(mixed.flatten(1, 2), self.rkv).view(mixed.shape)

    def forward(
        self,
        x: Tensor,
        states: RWKV7States,
        state_indices: Tensor,
        v_first: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        has_initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state_out_indices: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(the result [N, S, hidden] plus the residual, the value of layer 0 [N, S, hidden])."""
        if x.dim() != 3 or x.shape[2] != self.mix.shape[1]:
            refuse(f"x is {list(x.shape)}, expected [sequences, tokens, {self.mix.shape[1]}], or [1, tokens, ...] with cu_seqlens")
        if (v_first is None) != (self.v is None):
            refuse("v_first must be given in all layers but the first, whose `v` is None")
        slots = {"has_initial_state": has_initial_state, "cu_seqlens": cu_seqlens, "state_out_indices": state_out_indices}
        before = self.shift(x, states.shift, state_indices, **slots)
        mixed, _ = _shift_mix(x, self.mix, before, cu_seqlens)
        r, k, v = self._receptance_key_value(mixed[:3])
        w, a, g = self.w(mixed[3]), self.a(mixed[4]), self.g(mixed[5])
        by_head = lambda one: one.unflatten(-1, (self.heads, self.size))
        r, w, k, v, a, g = map(by_head, (r, w, k, v, a, g))
        if v_first is None or self.v is None:
            v_first = v.flatten(2)
            k, kk = _kprep(k, a, self.k_k, self.k_a, EPS_OF_KEYS)
        else:
            of_value = (v, by_head(v_first), by_head(self.v(mixed[2])))
            k, kk, v = _kvprep(k, a, self.k_k, self.k_a, *of_value, EPS_OF_KEYS)
        o = _wkv7_pool(r, w, k, v, a, states.recurrent, state_indices, kk=kk, v_first=self.v_first, **slots)
        y = _out(o, r, k, v, g, self.r_k, self.norm_weight, self.norm_bias, self.eps, True)
        return self.out_proj(y.flatten(2), residual), v_first

    def extra_repr(self) -> str:
        return f"heads={self.heads}, size={self.size}"


class RWKV7ChannelMix(nn.Module):
    """The channel mix of an RWKV7 block, for inference: relu(mixed key^T)^2 value^T, and the residual.

        ffn = kiln.torch.RWKV7ChannelMix.of(block.ffn)                     # RWKV7FeedForward of Flash Linear Attention
        y = ffn(x, ffn.states(slots=256), state_indices, residual)

    Its pool has the last token of each sequence: [slots, hidden, 1].
    """

    def __init__(self, mix: Tensor, key: Tensor, value: Tensor) -> None:
        super().__init__()
        of_shape(mix, "mix", key.shape[1])
        self.mix, self.shift = _parameter(mix), Shift(mix)
        self.key, self.value = Linear(key, act="relu_squared"), Linear(value)

    @classmethod
    def of(cls, module: Any) -> RWKV7ChannelMix:
        """A channel mix with the weights of RWKV7FeedForward of Flash Linear Attention."""
        return cls(module.x_k.detach().flatten(), module.key.weight, module.value.weight)

    def states(self, slots: int) -> Tensor:
        """A pool of zeros."""
        return self.mix.new_zeros(slots, self.mix.shape[0], 1)

    def forward(
        self,
        x: Tensor,
        pool: Tensor,
        state_indices: Tensor,
        residual: Tensor | None = None,
        *,
        has_initial_state: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        state_out_indices: Tensor | None = None,
    ) -> Tensor:
        """The result [N, S, hidden]. kiln.torch.GatedDeltaNet describes the arguments for slots."""
        before = self.shift(x, pool, state_indices, has_initial_state, cu_seqlens, state_out_indices)
        mixed, _ = _shift_mix(x, self.mix.unsqueeze(0), before, cu_seqlens)
        return self.value(self.key(mixed[0]), residual)
