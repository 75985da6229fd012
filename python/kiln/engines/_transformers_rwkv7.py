"""RWKV7 of Flash Linear Attention on kiln: forwards of its time mix, its channel mix and its layer norms.

A forward goes through the steps of Flash Linear Attention's own one. Each step runs on kiln's operator, or on the function
that the module calls for it, so that operators are switched one by one. States lie in Flash Linear Attention's cache.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..torch import _linear as linear
from ..torch import gemm_batched, layer_norm, rwkv7_kprep, rwkv7_out, rwkv7_shift_mix, wkv7
from ..torch._rwkv7 import EPS_OF_KEYS, LEAST_LOG_DECAY
from . import _transformers_modules as modules

#: the release whose forwards the replacements stand for
RELEASE = "0.6"
FAMILIES = {"fla.layers.rwkv7", "fla.models.rwkv7.modeling_rwkv7"}
#: classes of layer norms that the blocks and the model have
NORMS = {("fla.modules.norm.layernorm", "LayerNorm"), ("torch.nn.modules.normalization", "LayerNorm")}
#: operators of the time mix, besides the products
OPERATORS = ("rwkv7_shift_mix", "rwkv7_kprep", "wkv7", "rwkv7_out")
PROJECTIONS = ("r_proj", "k_proj", "v_proj")
#: Flash Linear Attention's layer norm adds it to the sum of squares of a key; torch's has a least norm instead
EPS_OF_FUSED_NORM = 1e-6


def wrong_release() -> str:
    """Why Flash Linear Attention's modules are not known; empty when they are."""
    version = getattr(sys.modules.get("fla"), "__version__", "unknown")
    return "" if version.startswith(RELEASE + ".") else f"flash-linear-attention is {version}, expected {RELEASE}"


def is_layer_norm(module: nn.Module) -> bool:
    return (type(module).__module__, type(module).__name__) in NORMS


def unlike_time_mix(mixer: Any) -> str:
    """Why kiln's operators cannot stand for steps of a time mix; empty when they can."""
    if modules.is_changed(mixer):
        return "its time mix has hooks, or a forward of its own"
    if mixer.value_dim != mixer.key_dim:
        return f"it has {mixer.key_dim} key and {mixer.value_dim} value elements, expected as many of both"
    if mixer.head_dim % 8 or mixer.head_dim > 256:
        return f"heads have {mixer.head_dim} elements, expected a multiple of 8 up to 256"
    if modules.is_changed(mixer.g_norm):
        return "its norm has hooks, or a forward of its own"
    return _without_memory(mixer.x_r)


def unlike_channel_mix(mixer: Any) -> str:
    """Why kiln's operators cannot stand for steps of a channel mix; empty when they can."""
    if modules.is_changed(mixer):
        return "its channel mix has hooks, or a forward of its own"
    return _without_memory(mixer.x_k)


def unlike_activation(mixer: Any) -> str:
    """Why a product's epilogue cannot stand for the activation of a channel mix; empty when it can."""
    known = sys.modules[type(mixer).__module__].ACT2FN["sqrelu"]  # type: ignore[attr-defined]
    return "" if mixer.act_fn == known else "its activation is not sqrelu"


def _without_memory(weight: Tensor) -> str:
    return "weights have no memory yet" if weight.device.type == "meta" else ""


# ---- forwards


def _fits(x: Tensor, weight: Tensor, self: Any) -> bool:
    return modules.fits(x, weight) and not self.training


def _mix(self: Any, names: str) -> Tensor:
    """The shares of the token before, [inputs, hidden]."""
    return torch.cat([getattr(self, f"x_{name}").view(1, -1) for name in names])


def _shifted(self: Any, x: Tensor, names: str, before: Tensor | None, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """(the inputs of the products [inputs, N, S, hidden], the last tokens [sequences, hidden])."""
    return rwkv7_shift_mix(x, _mix(self, names), before, cu_seqlens)  # type: ignore[no-any-return]


def _receptance_key_value(self: Any, runs: frozenset[str], mixed: Any) -> Any:
    """r, k and v of their inputs: one launch where the three weights lie in one tensor."""
    if (
        "gemm_batched" in runs
        and isinstance(mixed, Tensor)
        and modules.is_fused(self)
        and modules.multiplies(mixed, self.kiln_weight)
    ):
        weight = self.kiln_weight.view(3, self.hidden_size, self.hidden_size)
        return gemm_batched(mixed[:3].flatten(1, 2), weight).view(3, *mixed.shape[1:])
    return tuple(getattr(self, name)(one) for name, one in zip(PROJECTIONS, mixed[:3]))


def time_mix_forward(runs: frozenset[str], original: Any) -> Any:
    """The time mix. `runs` are the operators that run on kiln."""

    @functools.wraps(original)
    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        output_attentions: bool | None = False,
        v_first: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if not _fits(hidden_states, self.x_r, self):
            return original(
                self,
                hidden_states,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                use_cache=use_cache,
                output_attentions=output_attentions,
                v_first=v_first,
                cu_seqlens=cu_seqlens,
                **kwargs,
            )
        fla: Any = sys.modules[type(self).__module__]
        x, present = hidden_states, None
        if cu_seqlens is not None:
            cu_seqlens = cu_seqlens.long()
        if attention_mask is not None:
            present = attention_mask[:, -x.shape[1] :, None]
            x = x.mul(present).to(x.dtype)
        state = fla.get_layer_cache(self, past_key_values)
        before, initial = (None, None) if state is None else (state["conv_state"], state["recurrent_state"])

        if "rwkv7_shift_mix" in runs:
            mixed, last = _shifted(self, x, "rkvwag", None if before is None else before.view(-1, x.shape[-1]), cu_seqlens)
        else:
            delta, last = fla.token_shift(x, cu_seqlens, output_cache=True, cache=before)
            shares = (self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g)
            xr, xw, xk, xv, xa, xg = fla.fused_addcmul_rwkv7(x, delta, *shares)
            mixed = (xr, xk, xv, xw, xa, xg)
        r, k, v = _receptance_key_value(self, runs, mixed)
        w = LEAST_LOG_DECAY * self.w_lora(mixed[3]).sigmoid()
        a, g = self.a_lora(mixed[4]).sigmoid(), self.g_lora(mixed[5])
        if self.layer_idx == 0:
            v_first = v
        else:
            v = torch.lerp(v, v_first, self.v_lora(mixed[2]).sigmoid())

        heads = (self.num_heads, self.head_dim)
        by_head = lambda one: one.unflatten(-1, heads)
        if "rwkv7_kprep" in runs:
            eps = EPS_OF_FUSED_NORM if self.fuse_norm else EPS_OF_KEYS
            k, kk = rwkv7_kprep(by_head(k), by_head(a), self.k_k.view(heads), self.k_a.view(heads), eps)
        else:
            kk = by_head(k * self.k_k)
            kk = fla.l2_norm(kk) if self.fuse_norm else F.normalize(kk, dim=-1, p=2.0)
            k = by_head(fla.fused_k_rwkv7(k, a, self.k_a))
        if present is not None:
            v = v.mul(present).to(v.dtype)
        r, w, v, a = by_head(r), by_head(w), by_head(v), by_head(a)

        if "wkv7" in runs:
            o, final = wkv7(r, w, k, v, a, kk=kk, initial_state=initial, cu_seqlens=cu_seqlens)
        else:
            same = {"scale": 1.0, "initial_state": initial, "output_final_state": use_cache, "cu_seqlens": cu_seqlens}
            if x.shape[1] >= 64:
                gate = {"safe_gate": True, "lower_bound": LEAST_LOG_DECAY, "chunk_size": 64}
                o, final = fla.chunk_rwkv7(r=r, w=w, k=k, v=v, a=-kk, b=kk * a, **same, **gate)
            else:
                o, final = fla.fused_mul_recurrent_rwkv7(r=r, w=w, k=k, v=v, kk=kk, a=a, **same)
        fla.update_layer_cache(
            self, past_key_values, recurrent_state=final if use_cache else None, conv_state=last, offset=x.shape[1]
        )

        if "rwkv7_out" in runs:
            weight, bias = (None if one is None else one.view(heads) for one in (self.g_norm.weight, self.g_norm.bias))
            o = rwkv7_out(o, r, k, v, by_head(g), self.r_k, weight, bias, self.g_norm.eps, True).flatten(2)
        else:
            o = self.g_norm(o.flatten(2)) if self.fuse_norm else self.g_norm(o.flatten(0, 1).flatten(1)).view(g.shape)
            o = fla.gate_output_correction(o, r, k, self.r_k, v, g)
        return self.o_proj(o), None, past_key_values, v_first

    return forward


def channel_mix_forward(shifts: bool, early: bool | None, original: Any) -> Any:
    """The channel mix. `early` is early_b of the first product, whose epilogue squares; None where gemm does not run it."""

    @functools.wraps(original)
    def forward(
        self: Any,
        x: Tensor,
        attention_mask: Tensor | None = None,
        state: Any = None,
        cu_seqlens: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if not _fits(x, self.x_k, self):
            return original(self, x, attention_mask, state, cu_seqlens, **kwargs)
        fla: Any = sys.modules[type(self).__module__]
        if cu_seqlens is not None:
            cu_seqlens = cu_seqlens.long()
        if attention_mask is not None:
            x = x.mul(attention_mask[:, -x.shape[1] :, None]).to(x.dtype)
        before = None if state is None else state[self.layer_idx]["ffn_state"]
        if shifts:
            mixed, last = _shifted(self, x, "k", None if before is None else before.view(-1, x.shape[-1]), cu_seqlens)
            mixed = mixed[0]
        else:
            delta, last = fla.token_shift(x, cu_seqlens, cache=before, output_cache=True)
            mixed = x.addcmul(delta, self.x_k)
        if state is not None:
            state.update(ffn_state=last, layer_idx=self.layer_idx, offset=0)
        key = self.key.weight
        if early is not None and not modules.is_changed(self.key) and modules.multiplies(mixed, key):
            y = linear.multiply(mixed, key, act="relu_squared", early=early)
        else:
            y = self.act_fn(self.key(mixed))
        return self.value(y), state

    return forward


def layer_norm_forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
        if rest or any(named.values()) or self.weight is None or not modules.fits(x, self.weight):
            return original(self, x, *rest, **named)
        return layer_norm(x, self.weight, self.bias, self.eps)

    return forward
