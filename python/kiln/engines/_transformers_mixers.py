"""The gated delta net of Qwen3-Next on kiln: its forward, and the gated norm.

States lie in the layers of transformers' cache. A layer's state of the convolution has the last W - 1 inputs, where
transformers keeps W; its own code takes both.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import Cache, LinearAttentionLayer

from ..torch import _gated_delta as mixers
from ..torch import _linear as linear
from ..torch import conv1d, conv1d_pool, delta_rule, delta_rule_pool, gated_rms_norm
from . import _transformers_modules as modules

#: sequences whose slots are made once
SLOTS = 256


def unlike(mixer: Any) -> str:
    """Why kiln's operators cannot stand for a mixer's convolution and delta rule; empty when they can."""
    sizes, projections = mixers.sizes_of(mixer), (mixer.in_proj_qkvz, mixer.in_proj_ba)
    if mixer.activation != "silu":
        return f"its activation is {mixer.activation}"
    if modules.is_changed(mixer):
        return "its mixer has hooks, or a forward of its own"
    for projection in projections:
        weight = projection.weight
        if type(projection) is not nn.Linear or type(weight) is not nn.Parameter or projection.bias is not None:
            return f"a projection is {type(projection).__name__} with a weight {type(weight).__name__}, or has a bias"
        if modules.is_changed(projection):
            return "a projection has hooks"
        if weight.device.type == "meta":
            return "weights have no memory yet"
    if mixer.conv_kernel_size not in (2, 3, 4):
        return f"its convolution has {mixer.conv_kernel_size} taps, expected 2 to 4"
    if sizes.key % 4 or sizes.key > 256 or sizes.value % 4 or sizes.value > 1024:
        return f"heads have {sizes.key} and {sizes.value} elements, expected multiples of 4 up to 256 and 1,024"
    return ""


def misfit_product(mixer: Any) -> str:
    """Why the operator gemm cannot multiply by the packed weight; empty when it can."""
    weight = mixer.in_proj_qkvz.weight
    return linear.misfit(weight.new_empty(mixers.sizes_of(mixer).rows, weight.shape[1], device="meta")) or linear.too_old(
        weight.device
    )


# ---- the packed weight


def pack(mixer: Any) -> None:
    """Lays the rows of both projections into one weight, in the order of the operators. It is a copy."""
    weight = mixers.packed_of_qwen3_next(mixer)
    if getattr(mixer, "kiln_weight", None) is None:
        mixer.register_buffer("kiln_weight", weight, persistent=False)
    else:
        mixer.kiln_weight = weight
    mixer.kiln_packed = modules.versions_of(_weights(mixer))


def unpack(mixer: Any) -> None:
    del mixer.kiln_weight, mixer.kiln_packed


def _weights(mixer: Any) -> tuple[Tensor, Tensor]:
    return mixer.in_proj_qkvz.weight, mixer.in_proj_ba.weight


def _packed(mixer: Any) -> Tensor:
    """The packed weight, made again when a projection's weight was written or replaced.

    A compiled or captured call uses the weight as it was.
    """
    if not modules.keeps(mixer.kiln_weight) and mixer.kiln_packed != modules.versions_of(_weights(mixer)):
        pack(mixer)
        modules.settle()
    return mixer.kiln_weight  # type: ignore[no-any-return]


# ---- states


def _states(mixer: Any, layer: LinearAttentionLayer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The states of the convolution and of the delta rule in a cache's layer, which are zeros before the first call."""
    sizes, taps = mixers.sizes_of(mixer), mixer.conv_kernel_size - 1
    if not layer.is_conv_states_initialized[0]:
        layer.lazy_initialization(conv_states=x.new_empty(x.shape[0], sizes.channels, taps))
    elif layer.conv_states[0].shape[-1] > taps:
        layer.conv_states[0], layer.conv_kernel_size[0] = layer.conv_states[0][..., -taps:].contiguous(), taps
    if not layer.is_recurrent_states_initialized[0]:
        shape = (x.shape[0], sizes.value_heads, sizes.key, sizes.value)
        layer.lazy_initialization(recurrent_states=x.new_empty(shape, dtype=torch.float32))
    layer.has_previous_state[0] = True
    return layer.conv_states[0], layer.recurrent_states[0]


def _slots(mixer: Any, x: Tensor) -> Tensor:
    """Sequence n has state n."""
    known = mixer.kiln_slots
    if x.shape[0] <= known.shape[0] and known.device == x.device:
        return known[: x.shape[0]]  # type: ignore[no-any-return]
    return torch.arange(x.shape[0], dtype=torch.int32, device=x.device)


def _takes(mixer: Any, x: Tensor, cache: Cache | None, options: dict[str, Any]) -> bool:
    """True when kiln runs a call."""
    if not modules.fits(x, mixer.in_proj_qkvz.weight) or options.get("cu_seq_lens_q") is not None:
        return False
    if cache is None:
        return True
    layer = cache.layers[mixer.layer_idx] if mixer.layer_idx < len(cache.layers) else None
    return type(layer) is LinearAttentionLayer and not layer.record_past and not getattr(cache, "offloading", False)


# ---- forwards


def mixer_forward(early: bool | None, original: Any) -> Any:
    """The gated delta net. `early` is early_b of the first product; None where gemm does not run it."""

    @functools.wraps(original)
    def forward(
        self: Any, hidden_states: Tensor, cache_params: Cache | None = None, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        if not _takes(self, hidden_states, cache_params, kwargs):
            return original(self, hidden_states, cache_params=cache_params, attention_mask=attention_mask, **kwargs)
        x, sizes, weight = hidden_states, mixers.sizes_of(self), _packed(self)
        if attention_mask is not None:
            x = (x * attention_mask[:, :, None]).to(x.dtype)
        y = linear.multiply(x, weight, early=early) if early is not None and modules.multiplies(x, weight) else F.linear(x, weight)
        qkv, z, b, a = mixers.projected(y, sizes)
        taps, bias = self.conv1d.weight.squeeze(1), self.conv1d.bias
        gates = {
            "l2norm": True,
            "beta_input": "sigmoid",
            "gate_input": "softplus",
            "a_log": self.A_log.float(),
            "dt_bias": self.dt_bias.float(),
        }
        if cache_params is None:
            q, k, v = mixers.by_heads(conv1d(qkv, taps, bias, None, True), sizes)
            o, _ = delta_rule(q, k, v, b, a, **gates)
        else:
            conv, recurrent = _states(self, cache_params.layers[self.layer_idx], x)
            slots = _slots(self, x)
            q, k, v = mixers.by_heads(conv1d_pool(qkv, taps, conv, slots, bias, silu=True), sizes)
            o = delta_rule_pool(q, k, v, recurrent, slots, b, a, **gates)
        return self.out_proj(self.norm(o, z).flatten(2))  # type: ignore[no-any-return]

    return forward


def gated_norm_forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, hidden_states: Tensor, gate: Tensor) -> Tensor:
        if not modules.fits(hidden_states, self.weight) or hidden_states.shape != gate.shape:
            return original(self, hidden_states, gate)  # type: ignore[no-any-return]
        rows = (lambda t: t.unsqueeze(1)) if hidden_states.dim() == 2 else (lambda t: t)
        return gated_rms_norm(rows(hidden_states), rows(gate), self.weight, self.variance_epsilon).view(hidden_states.shape)

    return forward
