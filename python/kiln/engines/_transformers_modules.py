"""Replacements for the forwards of transformers' modules: norms, rotary embeddings, gated MLPs, experts, decoder layers.

Each is made from the forward that it replaces, keeps its signature, and calls it where kiln does not fit:
where gradients are enabled, on other devices, and for other types. They run eagerly, compiled and captured.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from ..torch import _linear as linear
from ..torch import _moe as moe
from ..torch import act_and_mul, fused_add_rms_norm, fused_moe, rms_norm, rope
from . import _transformers_attention as attention

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def fits(x: Tensor, weight: Tensor) -> bool:
    """True when kiln's operators may run on x, with a weight of x's type."""
    return x.device.type == attention.DEVICE and x.dtype == weight.dtype and x.dtype in DTYPES and not torch.is_grad_enabled()


def multiplies(x: Tensor, weight: Tensor, gated: bool = False) -> bool:
    """True when the operator gemm may run on x. Another weight may have been assigned since apply() looked at it."""
    return fits(x, weight) and not linear.misfit(weight, gated) and not linear.too_old(weight.device)


def eps_of(norm: Any) -> float:
    """Gemma's norms call it eps, the others variance_epsilon."""
    return norm.eps if hasattr(norm, "eps") else norm.variance_epsilon


def is_gemma(norm: Any) -> bool:
    """True for a norm whose factor is 1 + weight."""
    return type(norm).__name__.startswith(("Gemma", "Qwen3Next"))


def norm_forward(original: Any) -> Any:
    @functools.wraps(original)
    def forward(self: Any, x: Tensor) -> Tensor:
        if not fits(x, self.weight):
            return original(self, x)
        return rms_norm(x, self.weight, eps_of(self), is_gemma(self))

    return forward


def inner_norm(layer: Any) -> Any:
    """The norm that stands after the layer's first addition."""
    return layer.pre_feedforward_layernorm if hasattr(layer, "pre_feedforward_layernorm") else layer.post_attention_layernorm


def add_norm(hidden: Tensor, fresh: Tensor, norm: Any) -> Tensor:
    """Adds hidden to fresh in place, and returns the norm of the sum. Nobody but the caller may have `fresh`."""
    return fused_add_rms_norm(hidden, fresh, norm.weight, eps_of(norm), is_gemma(norm))


def mixer_of(layer: Any) -> Any:
    """The module of a decoder layer that mixes tokens: attention, or a gated delta net."""
    return layer.self_attn if hasattr(layer, "self_attn") else layer.linear_attn


def mixed(layer: Any, x: Tensor, options: dict[str, Any]) -> Tensor:
    """The result of the layer's mixer, for the options of the layer's call."""
    if hasattr(layer, "self_attn"):
        return layer.self_attn(hidden_states=x, **options)[0]  # type: ignore[no-any-return]
    named = {"past_key_values": "cache_params", "attention_mask": "attention_mask"}
    kept = {name: value for name, value in options.items() if name not in (*named, "position_embeddings", "position_ids")}
    return layer.linear_attn(hidden_states=x, **kept, **{to: options.get(name) for name, to in named.items()})  # type: ignore[no-any-return]


def layer_forward(original: Any) -> Any:
    """A decoder layer whose first addition and second norm are one operator.

    The sum goes to the attention's output, which belongs to the layer. hidden_states belong to the caller.
    """

    @functools.wraps(original)
    def forward(self: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        sandwich, norm = hasattr(self, "pre_feedforward_layernorm"), inner_norm(self)
        if args or not fits(hidden_states, norm.weight):
            return original(self, hidden_states, *args, **kwargs)
        fresh = mixed(self, self.input_layernorm(hidden_states), kwargs)
        if sandwich:
            fresh = self.post_attention_layernorm(fresh)
        normed = add_norm(hidden_states, fresh, norm)
        if not sandwich and takes_residual(self.mlp):
            return self.mlp(normed, fresh)
        out = self.mlp(normed)
        return fresh + (self.post_feedforward_layernorm(out) if sandwich else out)

    return forward


def rotary_forward(original: Any) -> Any:
    """A rotary embedding that returns kiln's form of (cos, sin): a table [rows, size] in f32, and a row for each token.

    Attention modules know the form by its number of dimensions.
    """

    @functools.wraps(original)
    def forward(self: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not fits(x, x):
            return original(self, x, position_ids, *args, **kwargs)
        batch, tokens = x.shape[:2]
        cos, sin = original(self, x.new_empty(0, dtype=torch.float32), position_ids, *args, **kwargs)
        half, rows = cos.shape[2] // 2, cos.shape[0] * cos.shape[1]
        table = torch.cat([cos[..., :half], sin[..., :half]], -1).view(rows, 2 * half)
        return table, torch.arange(batch * tokens, device=x.device) % rows

    return forward


def attention_forward(early: bool | None, original: Any) -> Any:
    """transformers' forward, with kiln's rotation. Norms and attention function are the model's.

    `early` is the product's early_b, where one product of kiln serves q, k and v; None where it does not.
    """

    @functools.wraps(original)
    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if position_embeddings is None or position_embeddings[0].dim() != 2:
            return original(self, hidden_states, position_embeddings, attention_mask, past_key_values, **kwargs)
        batch, tokens = hidden_states.shape[:2]
        if hasattr(self, "kiln_fused") and is_fused(self):
            if early is not None and multiplies(hidden_states, self.kiln_weight):
                whole = linear.multiply(hidden_states, self.kiln_weight, early=early)
            else:
                whole = F.linear(hidden_states, self.kiln_weight)
            parts = whole.split([len(w) for w in self.kiln_fused[1].values()], -1)
        else:
            parts = (projection(hidden_states) for projection in (self.q_proj, self.k_proj, self.v_proj))
        query, key, value = parts
        gate = None
        if has_gate(self):
            query, gate = query.view(batch, tokens, -1, 2 * self.head_dim).chunk(2, -1)
        query, key, value = (x.view(batch, tokens, -1, self.head_dim) for x in (query, key, value))
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        table, positions = position_embeddings
        query, key = rope(query.flatten(0, 1), key.flatten(0, 1), positions, table)
        query, key, value = (x.view(batch, tokens, -1, self.head_dim).transpose(1, 2) for x in (query, key, value))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        window, cap = attention.window_of(self), attention.soft_cap_of(self)
        out, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **({"sliding_window": window} if window else {}),
            **({"softcap": cap} if cap else {}),
            **kwargs,
        )
        out = out.reshape(batch, tokens, -1)
        return self.o_proj(out if gate is None else out * torch.sigmoid(gate.reshape(out.shape))), weights

    return forward


def has_gate(attention: Any) -> bool:
    """True for an attention module whose q_proj gives a query and a gate for each head."""
    return type(attention).__name__ == "Qwen3NextAttention"


def mlp_forward(act: str, early: bool | None, original: Any) -> Any:
    """A gated MLP. `early` is early_b of the product for gate and up, whose epilogue is the activation.

    Where `early` is None the product is torch's, and the activation an operator of its own.
    A residual is given only to an MLP that takes_residual().
    """

    @functools.wraps(original)
    def forward(self: Any, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if not fits(x, self.kiln_weight) or not is_fused(self):
            out = original(self, x)
            return out if residual is None else residual + out
        if early is not None and multiplies(x, self.kiln_weight, gated=True):
            middle = linear.multiply(x, self.kiln_weight, act=act, gated=True, early=early)
        else:
            middle = act_and_mul(F.linear(x, self.kiln_weight), act)
        return self.down_proj(middle) if residual is None else self.down_proj(middle, residual)

    return forward


def is_changed(module: Any) -> bool:
    """True when a call of the module does more than the forward of its class."""
    return "forward" in module.__dict__ or bool(module._forward_hooks or module._forward_pre_hooks)


def mixes(x: Tensor, experts: Any) -> bool:
    """True when the operator fused_moe may run on x. Other weights may have been assigned since apply() looked at them."""
    w13, w2 = experts.gate_up_proj, experts.down_proj
    return fits(x, w13) and w2.dtype == w13.dtype and not (is_changed(experts) or moe.misfit(w13, w2) or moe.too_old(w13))


def mixture_forward(act: str, original: Any) -> Any:
    """A block of experts, and the residual that is added to its result.

    The router's product is torch's, so that both ways choose the same experts. A router that does more than the forward of
    its class is called: transformers records its logits by a hook.
    """

    @functools.wraps(original)
    def forward(self: Any, hidden_states: Tensor, residual: Tensor | None = None) -> Tensor:
        experts, gate = self.experts, self.gate
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        if not mixes(x, experts) or (self.training and getattr(self, "jitter_noise", 0) > 0):
            out = original(self, hidden_states)
            return out if residual is None else residual + out
        given: dict[str, Any] = {"act": act, "residual": None if residual is None else residual.reshape(x.shape)}
        if hasattr(self, "shared_expert"):
            given |= {"shared": self.shared_expert(x), "shared_gate": self.shared_expert_gate(x)}
        if is_changed(gate):
            _, weights, ids = gate(x)
            given |= {"weights": weights.float(), "ids": ids}
        else:
            given |= {"logits": F.linear(x, gate.weight), "k": gate.top_k, "renormalize": getattr(gate, "norm_topk_prob", True)}
        return fused_moe(x, experts.gate_up_proj, experts.down_proj, **given).view(hidden_states.shape)

    return forward


def own(layer: Any) -> None:
    """Notes the weight that products may load early. A deep copy has another, and so has a layer that got a new one."""
    layer.__dict__["kiln_linear"] = (weakref.ref(layer), layer.weight)


def linear_forward(early: bool, original: Any) -> Any:
    """nn.Linear on the operator gemm, which applies an activation to its result, and adds a residual."""

    @functools.wraps(original)
    def forward(self: Any, x: Tensor, residual: Tensor | None = None, act: str = "none") -> Tensor:
        owner, weight = self.kiln_linear
        if owner() is not self or weight is not self.weight or not multiplies(x, weight):
            out = linear.ACTIVATIONS[act](original(self, x))
            return out if residual is None else residual + out
        return linear.multiply(x, self.weight, self.bias, residual, act=act, early=early)

    return forward


def finishes(layer: Any) -> bool:
    """True when a linear layer can apply an activation, and add a residual.

    Nothing else may see or change the results before.
    """
    return "kiln_linear" in layer.__dict__ and not (layer._forward_hooks or layer._forward_pre_hooks)


def finished(layer: Any, x: Tensor, residual: Tensor | None = None, act: str = "none") -> Tensor:
    """act(layer(x)) + residual: by the layer's own product where it can."""
    if finishes(layer):
        return layer(x, residual, act)  # type: ignore[no-any-return]
    out = linear.ACTIVATIONS[act](layer(x))
    return out if residual is None else residual + out


def takes_residual(mlp: Any) -> bool:
    """True when the MLP's last product, or the whole block of experts, can add the residual.

    Nothing else may see or change the results before.
    """
    if "kiln_adds" not in mlp.__dict__:
        return False
    last = getattr(mlp, "down_proj", mlp)
    return "kiln_adds" in last.__dict__ and not any(
        (mlp._forward_hooks, mlp._forward_pre_hooks, last._forward_hooks, last._forward_pre_hooks)
    )


def settled(original: Any) -> Any:
    """A method that writes weights, and then waits for the device: products load weights early (early_b)."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(self, *args, **kwargs)
        settle()
        if "kiln_linear" in self.__dict__:
            own(self)
        return out

    return method


def versions_of(weights: Iterable[Tensor]) -> list[tuple[int, int]]:
    """The weights, and how often each was written to."""
    return [(id(weight), 0 if weight.is_inference() else weight._version) for weight in weights]


def keeps(copy: Tensor) -> bool:
    """True in a compiled or captured call, which uses copies of weights as they were."""
    return torch.compiler.is_compiling() or (copy.is_cuda and torch.cuda.is_current_stream_capturing())


def settle() -> None:
    """Waits until all writes of weights have ended."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fuse(module: Any, *names: str) -> None:
    """Lays the weights of linear layers into one tensor, of which they become views.

    One product then serves all of them. Names, values and writes in place stay what they were.
    """
    weights = [getattr(module, name).weight for name in names]
    with torch.no_grad():
        whole = torch.cat([weight.data for weight in weights])
    for weight, part in zip(weights, whole.split([len(weight) for weight in weights])):
        weight.data = part
    module.register_buffer("kiln_weight", whole, persistent=False)
    module.kiln_fused = (weakref.ref(module), dict(zip(names, weights)))


def separate(module: Any) -> tuple[str, ...]:
    """Gives the linear layers their own memory again, and removes the shared tensor. Returns the layers' names."""
    shared, names = module.kiln_weight.untyped_storage().data_ptr(), tuple(module.kiln_fused[1])
    for name in names:
        weight = getattr(module, name).weight
        if weight.untyped_storage().data_ptr() == shared:
            weight.data = weight.data.clone()
    del module.kiln_weight, module.kiln_fused
    return names


def is_fused(module: Any) -> bool:
    """True while the weights are the views that fuse() made. Another weight may have been assigned since."""
    owner, weights = module.kiln_fused
    if owner() is not module:
        return False  # a deep copy: its weights are no views of its kiln_weight
    if any(getattr(module, name).weight is not weight for name, weight in weights.items()):
        return False
    if torch.compiler.is_compiling():
        return True
    row = 0
    for weight in weights.values():
        if weight.data_ptr() != module.kiln_weight[row].data_ptr():
            return False
        row += len(weight)
    return True


def fused_apply(original: Any) -> Any:
    """nn.Module._apply, which .to() and .half() call: it moves the weights one by one, so they are fused again."""

    @functools.wraps(original)
    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        names = separate(self)
        out = original(self, fn, recurse)
        fuse(self, *names)
        settle()
        return out

    return _apply


def model_forward(original: Any) -> Any:
    """The forward of the model that has the layers: it decides how the attention of this call runs."""

    @functools.wraps(original)
    def forward(
        self: Any,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        x = inputs_embeds if input_ids is None else input_ids
        step = None if x is None else self.kiln_attention.step(x, attention_mask, position_ids, past_key_values, kwargs)
        if step is not None:
            kwargs["kiln_step"] = step
            mask = attention.marker(x.device)  # transformers takes a mask of 4 dimensions as it is, and makes none
            by_type = hasattr(self.config, "layer_types") and type(self).__name__ in TAKE_MASKS_BY_TYPE
            attention_mask = dict.fromkeys(("full_attention", "sliding_attention"), mask) if by_type else mask
        elif attention.is_marker(attention_mask):
            attention_mask = None
        out = original(
            self,
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        if not torch.compiler.is_compiling() and not torch.is_grad_enabled():
            self.kiln_attention.prepare(past_key_values)
        return out

    return forward


TAKE_MASKS_BY_TYPE = {"Qwen3Model", "Gemma2Model", "Gemma3TextModel"}


def masks_for_generate(original: Any) -> Any:
    """A function that generate() calls before each step with a static cache. It gives the marker for a mask without padding."""

    @functools.wraps(original)
    def create_masks_for_generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        x, mask, cache = (kwargs.get(name) for name in ("inputs_embeds", "attention_mask", "past_key_values"))
        state = getattr(self.base_model, "kiln_attention", None)
        if state is not None and x is not None and state.takes_static_step(x, mask, cache):
            return attention.marker(x.device)
        return original(*args, **kwargs)

    return create_masks_for_generate
