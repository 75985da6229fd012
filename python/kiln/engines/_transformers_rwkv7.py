"""RWKV7 of Flash Linear Attention on kiln: forwards of its blocks, their time mix, channel mix and layer norms.

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
from ..torch import gemm_batched, layer_norm, rwkv7_kprep, rwkv7_kvprep, rwkv7_out, rwkv7_shift_mix, wkv7
from ..torch._linear import LEAST_LOG_DECAY
from ..torch._rwkv7 import EPS_OF_KEYS
from . import _transformers_modules as modules

#: the release whose forwards the replacements stand for
RELEASE = "0.6"
FAMILIES = {"fla.layers.rwkv7", "fla.models.rwkv7.modeling_rwkv7"}
#: classes of layer norms that the blocks and the model have
NORMS = {("fla.modules.norm.layernorm", "LayerNorm"), ("torch.nn.modules.normalization", "LayerNorm")}
#: operators of the time mix, besides the products
OPERATORS = ("rwkv7_shift_mix", "rwkv7_kprep", "wkv7", "rwkv7_out")
PROJECTIONS = ("r_proj", "k_proj", "v_proj")
#: inputs of the time mix, in the order in which the operator makes them
INPUTS = "rkvwag"
#: activations between the two products of a pair of low rank
INNER = {nn.Tanh: "tanh", nn.Sigmoid: "sigmoid", nn.ReLU: "relu", nn.Identity: "none"}
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


# ---- the shares of the token before, in one tensor


def _shares(mixer: Any) -> list[Tensor]:
    return [getattr(mixer, f"x_{name}") for name in (INPUTS if hasattr(mixer, "x_r") else "k")]


def gather(mixer: Any) -> None:
    """Lays the shares of a mixer's inputs into one tensor [inputs, hidden]. It is a copy."""
    shares = _shares(mixer)
    mix = torch.cat([share.detach().view(1, -1) for share in shares])
    if getattr(mixer, "kiln_mix", None) is None:
        mixer.register_buffer("kiln_mix", mix, persistent=False)
    else:
        mixer.kiln_mix = mix
    mixer.kiln_gathered = modules.versions_of(shares)


def scatter(mixer: Any) -> None:
    del mixer.kiln_mix, mixer.kiln_gathered


def _mix(mixer: Any) -> Tensor:
    """The shares in one tensor, which is made again when one was written or replaced.

    A compiled or captured call uses them as they were.
    """
    if not modules.keeps(mixer.kiln_mix) and mixer.kiln_gathered != modules.versions_of(_shares(mixer)):
        gather(mixer)
    return mixer.kiln_mix  # type: ignore[no-any-return]


# ---- forwards


def _fits(x: Tensor, weight: Tensor, self: Any) -> bool:
    return modules.fits(x, weight) and not self.training


def _shifted(self: Any, x: Tensor, before: Tensor | None, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """(the inputs of the products [inputs, N, S, hidden], the last tokens [sequences, hidden])."""
    before = None if before is None else before.view(-1, x.shape[-1])
    return rwkv7_shift_mix(x, _mix(self), before, cu_seqlens)  # type: ignore[no-any-return]


def _low_rank(pair: Any, x: Tensor, act: str = "none") -> Tensor:
    """act(pair(x)) for a pair of products of low rank, which apply both activations themselves where they can."""
    layers = pair.lora
    inner = INNER.get(type(layers[1])) if type(layers) is nn.Sequential and len(layers) == 3 else None
    if inner is None or any(map(modules.is_changed, (pair, layers, layers[1]))):
        return linear.ACTIVATIONS[act](pair(x))  # type: ignore[no-any-return]
    return modules.finished(layers[2], modules.finished(layers[0], x, act=inner), act=act)


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
        residual: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if not _fits(hidden_states, self.x_r, self):
            out, *others = original(
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
            return out if residual is None else residual + out, *others
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
            mixed, last = _shifted(self, x, before, cu_seqlens)
        else:
            delta, last = fla.token_shift(x, cu_seqlens, output_cache=True, cache=before)
            shares = (self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g)
            xr, xw, xk, xv, xa, xg = fla.fused_addcmul_rwkv7(x, delta, *shares)
            mixed = (xr, xk, xv, xw, xa, xg)
        r, k, v = _receptance_key_value(self, runs, mixed)
        w = _low_rank(self.w_lora, mixed[3], "log_decay")
        a, g = _low_rank(self.a_lora, mixed[4], "sigmoid"), _low_rank(self.g_lora, mixed[5])
        heads = (self.num_heads, self.head_dim)
        by_head = lambda one: one.unflatten(-1, heads)
        weights = (self.k_k.view(heads), self.k_a.view(heads))
        eps = EPS_OF_FUSED_NORM if self.fuse_norm else EPS_OF_KEYS
        prepared = None
        if self.layer_idx == 0:
            v_first = v
        else:
            rate = _low_rank(self.v_lora, mixed[2], "sigmoid")
            if "rwkv7_kvprep" in runs:
                *prepared, v = rwkv7_kvprep(by_head(k), by_head(a), *weights, *map(by_head, (v, v_first, rate)), eps)
                v = v.flatten(2)
            else:
                v = torch.lerp(v, v_first, rate)
        if prepared is not None:
            k, kk = prepared
        elif "rwkv7_kprep" in runs:
            k, kk = rwkv7_kprep(by_head(k), by_head(a), *weights, eps)
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
        return modules.finished(self.o_proj, o, residual), None, past_key_values, v_first

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
        residual: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if not _fits(x, self.x_k, self):
            out, state = original(self, x, attention_mask, state, cu_seqlens, **kwargs)
            return out if residual is None else residual + out, state
        fla: Any = sys.modules[type(self).__module__]
        if cu_seqlens is not None:
            cu_seqlens = cu_seqlens.long()
        if attention_mask is not None:
            x = x.mul(attention_mask[:, -x.shape[1] :, None]).to(x.dtype)
        before = None if state is None else state[self.layer_idx]["ffn_state"]
        if shifts:
            mixed, last = _shifted(self, x, before, cu_seqlens)
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
        return modules.finished(self.value, y, residual), state

    return forward


def block_forward(original: Any) -> Any:
    """A block, whose additions are the ends of the products before them."""

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
        named = {
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
            "output_attentions": output_attentions,
            "v_first": v_first,
            "cu_seqlens": cu_seqlens,
            **kwargs,
        }
        changed = any(mixer._forward_hooks or mixer._forward_pre_hooks for mixer in (self.attn, self.ffn))
        if changed or not (modules.finishes(self.attn.o_proj) and modules.finishes(self.ffn.value)):
            return original(self, hidden_states, **named)
        residual = self.pre_norm(hidden_states) if hasattr(self, "pre_norm") else hidden_states
        y, attentions, past_key_values, v_first = self.attn(hidden_states=self.attn_norm(residual), residual=residual, **named)
        out, past_key_values = self.ffn(self.ffn_norm(y), attention_mask, past_key_values, cu_seqlens, residual=y, **kwargs)
        return out, attentions, past_key_values, v_first

    return forward


def layer_norm_forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
        if rest or any(named.values()) or self.weight is None or not modules.fits(x, self.weight):
            return original(self, x, *rest, **named)
        return layer_norm(x, self.weight, self.bias, self.eps)

    return forward
