"""Hugging Face transformers on kiln: Llama, Qwen3, Qwen3-MoE, Qwen3-Next, Mistral, Mixtral, Gemma, and RWKV7 of FLA, by one call on a model.

    import kiln.engines.transformers as engine

    print(engine.apply(model))       # a table: which operation of which layer runs on kiln, which not and why
    model.generate(...)              # under torch.no_grad or inference_mode; eager, compiled, or with CUDA graphs
    engine.undo(model)

apply() replaces forwards on the model's instances. It fuses the weights of gate_proj and up_proj, and of q_proj,
k_proj and v_proj where heads have no norms; a gated delta net gets a packed copy of its input projections.
A time mix of RWKV7 has r_proj, k_proj and v_proj in one tensor. FLA is Flash Linear Attention. A module whose class or configuration is not known exactly stays as it is.
KILN_ENGINES_OFF turns single operators off; apply() reads it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from transformers.masking_utils import create_masks_for_generate

from ..torch import _linear, _moe
from . import _transformers_attention as _attention
from . import _transformers_mixers as _mixers
from . import _transformers_modules as _modules
from . import _transformers_rwkv7 as _rwkv7
from ._explain import Explanation, is_off

__all__ = ["apply", "explain", "prepare", "undo"]

#: the release whose forwards the replacements stand for
RELEASE = "5.17"
FAMILIES = {
    f"transformers.models.{family}.modeling_{family}"
    for family in ("llama", "qwen3", "qwen3_moe", "qwen3_next", "mistral", "mixtral", "gemma", "gemma2", "gemma3")
}
#: the families, as messages name them
KNOWN = "Llama, Qwen3, Qwen3-MoE, Qwen3-Next, Mistral, Mixtral, Gemma and RWKV7 of Flash Linear Attention"
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
ACTIVATION_MODULES = ("transformers.activations", "torch.nn.modules.activation")
ACTIVATIONS = {"SiLUActivation": "silu", "SiLU": "silu", "GELUTanh": "gelu_tanh", "GELUActivation": "gelu"}


class _Survey:
    """The table for a model, and the changes that apply() would make."""

    def __init__(self, model: nn.Module, early: bool) -> None:
        self.explanation, self.early = Explanation(), early
        self.changes: list[Callable[[_Applied], None]] = []
        known = [(name, module) for name, module in model.named_modules() if type(module).__module__ in FAMILIES | _rwkv7.FAMILIES]
        of_fla = any(type(module).__module__ in _rwkv7.FAMILIES for _, module in known)
        if not transformers.__version__.startswith(RELEASE + "."):
            self._nothing(f"transformers is {transformers.__version__}, expected {RELEASE}")
        elif of_fla and _rwkv7.wrong_release():
            self._nothing(_rwkv7.wrong_release())
        elif not known:
            self._nothing(f"{type(model).__name__} is none of {KNOWN}")
        else:
            for name, module in known:
                self._module(name, module)
            for name, module in known:
                if hasattr(module, "layers") and hasattr(module, "rotary_emb"):
                    self._decoder(name, module, model)

    def _nothing(self, reason: str) -> None:
        self.explanation.add("model", "all", reason)

    def _replace(self, place: str, operator: str, module: nn.Module, make: Any, reason: str = "", name: str = "forward") -> bool:
        if not reason and name in module.__dict__:
            reason = f"its {name} was replaced already"
        if not self.explanation.add(place, operator, reason):
            return False
        self.changes.append(lambda applied: applied.replace(module, name, make))
        return True

    def _module(self, name: str, module: nn.Module) -> None:
        kind = type(module).__name__
        if type(module).__module__ in _rwkv7.FAMILIES:
            self._rwkv7(name, module)
        elif kind.endswith("RMSNorm"):
            self._replace(name, "rms_norm", module, _modules.norm_forward)
        elif kind.endswith("RMSNormGated"):
            self._replace(name, "gated_rms_norm", module, _mixers.gated_norm_forward)
        elif kind.endswith("GatedDeltaNet"):
            self._mixer(name, module)
        elif kind.endswith("MLP") and hasattr(module, "gate_proj"):
            self._mlp(name, module)
        elif kind.endswith("SparseMoeBlock"):
            self._mixture(name, module)
        elif kind.endswith("DecoderLayer"):
            reason = _hooked(_modules.mixer_of(module)) or _unlike_norm(_modules.inner_norm(module))
            self._replace(name, "fused_add_rms_norm", module, _modules.layer_forward, reason)

    def _mlp(self, name: str, mlp: Any) -> None:
        act, reason = _activation(mlp.act_fn)
        for linear in (mlp.gate_proj, mlp.up_proj):
            reason = reason or _unlike_linear(linear)
        # The product's epilogue is the activation. Where gemm cannot run, the activation is an operator of its own.
        unfit = reason or _misfit_product(mlp.gate_proj, mlp.up_proj)
        gemm = self.explanation.add(f"{name}.gate_proj+up_proj", "gemm", unfit or _replaced(mlp))
        forward = functools.partial(_modules.mlp_forward, act, self.early if gemm else None)
        fused = gemm or self.explanation.add(name, "act_and_mul", reason or _replaced(mlp))
        down = self._linear(f"{name}.down_proj", mlp.down_proj)
        if fused:
            self.changes.append(lambda applied: applied.replace(mlp, "forward", forward))
            self.changes.append(lambda applied: applied.fuse(mlp, "gate_proj", "up_proj"))
            if down:
                self.changes.append(lambda applied: applied.mark(mlp, "kiln_adds"))
                self.changes.append(lambda applied: applied.mark(mlp.down_proj, "kiln_adds"))

    def _mixture(self, name: str, block: Any) -> None:
        act, reason = _activation(block.experts.act_fn)
        make = functools.partial(_modules.mixture_forward, act)
        if self._replace(name, "fused_moe", block, make, _unlike_mixture(block) or reason):
            self.changes.append(lambda applied: applied.mark(block, "kiln_adds"))

    def _mixer(self, name: str, mixer: Any) -> None:
        """A gated delta net. Its forward has the convolution and the delta rule, so both run on kiln, or none."""
        reason, operators = _mixers.unlike(mixer), ("conv1d_pool", "delta_rule_pool")
        off = [operator for operator in operators if is_off(operator)]
        runs = [self.explanation.add(name, o, reason or ("" if o in off or not off else f"{off[0]} is off")) for o in operators]
        if all(runs):
            unfit = _mixers.misfit_product(mixer)
            gemm = self.explanation.add(f"{name}.in_proj_qkvz+in_proj_ba", "gemm", unfit)
            make = functools.partial(_mixers.mixer_forward, self.early if gemm else None)
            self.changes.append(lambda applied: applied.replace(mixer, "forward", make))
            self.changes.append(lambda applied: applied.pack(mixer))
        self._linear(f"{name}.out_proj", mixer.out_proj)

    def _rwkv7(self, name: str, module: Any) -> None:
        """A module of Flash Linear Attention's RWKV7."""
        kind = type(module).__name__
        if kind == "RWKV7Attention":
            self._time_mix(name, module)
        elif kind == "RWKV7FeedForward":
            self._channel_mix(name, module)
        elif kind == "RWKV7Block" and not _unlike_block(module):
            self.changes.append(lambda applied: applied.replace(module, "forward", _rwkv7.block_forward))
        for part, norm in module.named_children():
            if not _rwkv7.is_layer_norm(norm):
                continue
            adds = part == "ffn_norm" and not isinstance(norm, nn.LayerNorm) and _unlike_block(module)
            reason = f"it adds a residual, which the operator does not: {adds}" if adds else ""
            changed = "it has hooks, or a forward of its own" if _modules.is_changed(norm) else ""
            self._replace(f"{name}.{part}".removeprefix("."), "layer_norm", norm, _rwkv7.layer_norm_forward, reason or changed)

    def _time_mix(self, name: str, mixer: Any) -> None:
        unlike = _rwkv7.unlike_time_mix(mixer)
        runs = {operator for operator in _rwkv7.OPERATORS if self.explanation.add(name, operator, unlike)}
        if mixer.layer_idx != 0:
            off = "" if unlike or "rwkv7_kprep" in runs else "rwkv7_kprep is off"
            runs |= {"rwkv7_kvprep"} if self.explanation.add(name, "rwkv7_kvprep", unlike or off) else set()
        layers = [getattr(mixer, projection) for projection in _rwkv7.PROJECTIONS]
        unfit = unlike or next(filter(None, map(_unlike_linear, layers)), "") or _misfit_product(*layers)
        if self.explanation.add(f"{name}.r_proj+k_proj+v_proj", "gemm_batched", unfit):
            runs.add("gemm_batched")
        else:
            for projection, layer in zip(_rwkv7.PROJECTIONS, layers):
                self._linear(f"{name}.{projection}", layer)
        for pair in ("w_lora", "a_lora", "g_lora", "v_lora"):
            for part, layer in getattr(getattr(mixer, pair, None), "lora", nn.Sequential()).named_children():
                if isinstance(layer, nn.Linear):
                    self._linear(f"{name}.{pair}.lora.{part}", layer)
        self._linear(f"{name}.o_proj", mixer.o_proj)
        if runs or not (unlike or _unlike_sum(mixer, "o_proj")):
            make = functools.partial(_rwkv7.time_mix_forward, frozenset(runs))
            self.changes.append(lambda applied: applied.replace(mixer, "forward", make))
        if "rwkv7_shift_mix" in runs:
            self.changes.append(lambda applied: applied.gather(mixer))
        if "gemm_batched" in runs:
            self.changes.append(lambda applied: applied.fuse(mixer, *_rwkv7.PROJECTIONS))

    def _channel_mix(self, name: str, mixer: Any) -> None:
        unlike = _rwkv7.unlike_channel_mix(mixer)
        shifts = self.explanation.add(name, "rwkv7_shift_mix", unlike)
        unfit = unlike or _rwkv7.unlike_activation(mixer) or _unlike_linear(mixer.key) or _misfit_product(mixer.key)
        gemm = self.explanation.add(f"{name}.key", "gemm", unfit)
        self._linear(f"{name}.value", mixer.value)
        if shifts or gemm or not (unlike or _unlike_sum(mixer, "value")):
            make = functools.partial(_rwkv7.channel_mix_forward, shifts, self.early if gemm else None)
            self.changes.append(lambda applied: applied.replace(mixer, "forward", make))
            self.changes.append(lambda applied: applied._settle(mixer.key))
        if shifts:
            self.changes.append(lambda applied: applied.gather(mixer))

    def _linear(self, name: str, linear: nn.Module) -> bool:
        """A linear layer whose product is no part of a fused one."""
        reason = _other_class(linear) or _misfit_product(linear) or _replaced(linear)
        if not self.explanation.add(name, "gemm", reason):
            return False
        make = functools.partial(_modules.linear_forward, self.early)
        self.changes.append(lambda applied: applied.replace_linear(linear, make))
        return True

    def _attention(self, name: str, layer: Any, rotates: bool) -> None:
        """The products of an attention module. `rotates`: its forward is kiln's."""
        early = None
        # Norms of single heads need each projection's result for itself: one product would be copied apart.
        fused = rotates and not hasattr(layer, "q_norm") and not any(_unlike_linear(getattr(layer, p)) for p in PROJECTIONS)
        if fused:
            unfit = next(filter(None, (_misfit_product(getattr(layer, p)) for p in PROJECTIONS)), "")
            if self.explanation.add(f"{name}.q_proj+k_proj+v_proj", "gemm", unfit):
                early = self.early
        else:
            for projection in PROJECTIONS:
                self._linear(f"{name}.{projection}", getattr(layer, projection))
        self._linear(f"{name}.o_proj", layer.o_proj)
        if rotates:
            make = functools.partial(_modules.attention_forward, early)
            self.changes.append(lambda applied: applied.replace(layer, "forward", make))
        if fused:
            self.changes.append(lambda applied: applied.fuse(layer, *PROJECTIONS))

    def _decoder(self, name: str, model: Any, whole: Any) -> None:
        numbered = {
            i: getattr(layer, "self_attn", layer) for i, layer in enumerate(model.layers) if not hasattr(layer, "linear_attn")
        }
        layers = list(numbered.values())
        if not layers:
            return
        reason = next(filter(None, map(_unlike_attention, layers)), "")
        rotates = self._replace(f"{name}.rotary_emb", "rope", model.rotary_emb, _modules.rotary_forward, reason)
        for i, layer in numbered.items():
            if _is_known(layer, "Attention"):
                self._attention(f"{name}.layers.{i}.self_attn", layer, rotates)
        reason = next(filter(None, (_misfit(layer) for layer in layers)), "")
        if not reason and "forward" in model.__dict__:
            reason = "the model's forward was replaced already"
        prefill = self.explanation.add(f"{name} ({len(layers)} layers)", "attn_prefill", reason)
        decode = self.explanation.add(f"{name} ({len(layers)} layers)", "attn_decode_paged", reason)
        if prefill or decode:
            self.changes.append(lambda applied: applied.attend(model, whole, layers, prefill, decode))


def _replaced(module: nn.Module) -> str:
    return "its forward was replaced already" if "forward" in module.__dict__ else ""


def _hooked(module: nn.Module) -> str:
    return "its attention has forward hooks" if module._forward_hooks or module._forward_pre_hooks else ""


def _is_known(module: nn.Module, ending: str) -> bool:
    return type(module).__module__ in FAMILIES and type(module).__name__.endswith(ending)


def _unlike_attention(module: nn.Module) -> str:
    """Why the forward of an attention module cannot be replaced; empty when it can."""
    if not _is_known(module, "Attention"):
        return f"an attention module is {type(module).__name__} of {type(module).__module__}"
    if "forward" in module.__dict__:
        return "the forward of an attention module was replaced already"
    return _hooked(module)


def _unlike_norm(norm: nn.Module) -> str:
    """Why an operator cannot stand for a norm inside of a layer, which then is not called; empty when it can."""
    if not _is_known(norm, "RMSNorm"):
        return f"its second norm is {type(norm).__name__} of {type(norm).__module__}"
    return "its second norm has hooks, or a forward of its own" if _modules.is_changed(norm) else ""


def _activation(module: nn.Module) -> tuple[str, str]:
    """(kiln's name of an activation module, why an epilogue cannot stand for it)."""
    kind = type(module)
    act = ACTIVATIONS.get(kind.__name__, "") if kind.__module__ in ACTIVATION_MODULES else ""
    if not act:
        return act, f"its activation is {kind.__name__}"
    if act == "gelu" and getattr(module, "act", nn.functional.gelu) is not nn.functional.gelu:
        return act, "its gelu is the one in Python"
    return act, "its activation has hooks, or a forward of its own" if _modules.is_changed(module) else ""


def _unlike_mixture(block: Any) -> str:
    """Why the operator fused_moe cannot stand for a block of experts; empty when it can."""
    experts, gate = block.experts, block.gate
    if hasattr(block, "shared_expert") and not _is_known(block.shared_expert, "MLP"):
        return f"its shared expert is {type(block.shared_expert).__name__}"
    for part, ending in ((experts, "Experts"), (gate, "TopKRouter")):
        if not _is_known(part, ending):
            return f"a part of it is {type(part).__name__} of {type(part).__module__}"
    if _modules.is_changed(experts):
        return "its experts have hooks, or a forward of their own"
    weights = (experts.gate_up_proj, experts.down_proj)
    for weight in weights:
        if type(weight) is not nn.Parameter:
            return f"its experts have a weight {type(weight).__name__}"
        if weight.device.type == "meta":
            return "weights have no memory yet"
    if len(weights[0]) != len(gate.weight):
        return f"it has the weights of {len(weights[0])} of {len(gate.weight)} experts"
    if experts.num_experts > _moe.MOST_EXPERTS or gate.top_k > _moe.MOST_PER_TOKEN:
        return f"a token has {gate.top_k} of {experts.num_experts} experts, at most {_moe.MOST_PER_TOKEN} of {_moe.MOST_EXPERTS} can be"
    return _moe.misfit(*weights) or _moe.too_old(weights[0])


def _other_class(linear: nn.Module) -> str:
    """Why a module is not the linear layer of torch, with a weight in memory; empty when it is."""
    weight = getattr(linear, "weight", None)
    if type(linear) is not nn.Linear or type(weight) is not nn.Parameter:
        return f"a projection is {type(linear).__name__} with a weight {type(weight).__name__}"
    return "weights have no memory yet" if weight.device.type == "meta" else ""


def _misfit_product(*layers: Any) -> str:
    """Why the operator gemm cannot multiply by the weights of linear layers; empty when it can."""
    reasons = (_linear.misfit(layer.weight) or _linear.too_old(layer.weight.device) for layer in layers)
    return next(filter(None, reasons), "")


def _unlike_linear(linear: nn.Module) -> str:
    """Why the weight of a linear layer cannot become a view; empty when it can."""
    weight = getattr(linear, "weight", None)
    if _other_class(linear) and getattr(weight, "device", None) != torch.device("meta"):
        return _other_class(linear)
    if linear.bias is not None:
        return "a projection has a bias"
    if "forward" in linear.__dict__ or linear._forward_hooks or linear._forward_pre_hooks:
        return "a projection has hooks"
    return "weights have no memory yet" if weight.device.type == "meta" else ""


def _unlike_sum(mixer: Any, last: str) -> str:
    """Why the last product of a mixer of RWKV7 cannot add the residual; empty when it can."""
    layer = getattr(mixer, last)
    if _modules.is_changed(mixer) or _modules.is_changed(layer):
        return f"{last} or its mixer has hooks, or a forward of its own"
    return _other_class(layer) or _misfit_product(layer) or ("gemm is off" if is_off("gemm") else "")


def _unlike_block(block: Any) -> str:
    """Why kiln's forward cannot stand for that of a block of RWKV7; empty when it can."""
    if type(block).__name__ != "RWKV7Block" or type(block.attn).__name__ != "RWKV7Attention":
        return "its block is not RWKV7Block with a time mix"
    if _modules.is_changed(block.ffn_norm) or _replaced(block):
        return "its block or its norm has hooks, or a forward of its own"
    unlike = _rwkv7.unlike_time_mix(block.attn) or _rwkv7.unlike_channel_mix(block.ffn)
    return unlike or _unlike_sum(block.attn, "o_proj") or _unlike_sum(block.ffn, "value")


def _misfit(module: Any) -> str:
    """Why kiln's attention kernels do not fit an attention module; empty when they fit."""
    if not _is_known(module, "Attention"):
        return f"an attention module is {type(module).__name__} of {type(module).__module__}"
    implementation, group = module.config._attn_implementation, module.num_key_value_groups
    if implementation not in (*_attention.IMPLEMENTATIONS, *_attention.IMPLEMENTATIONS.values()):
        return f"attn_implementation is {implementation}, expected sdpa or eager"
    if _attention.soft_cap_of(module) and implementation in ("sdpa", "kiln"):
        return "sdpa of transformers ignores the model's soft cap, and kiln would not: use attn_implementation eager"
    if not module.is_causal:
        return "its attention is bidirectional"
    if module.head_dim not in _attention.HEAD_SIZES:
        return f"heads have {module.head_dim} elements, expected one of {', '.join(map(str, _attention.HEAD_SIZES))}"
    if group > _attention.MOST_HEADS_OF_A_GROUP:
        return f"{group} q heads share a kv head, at most {_attention.MOST_HEADS_OF_A_GROUP} can"
    return ""


class _Applied:
    """The changes that apply() made on a model. The object lies in the model's attribute kiln_engine."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation
        self.replaced: list[tuple[nn.Module, str]] = []
        self.fused: list[Any] = []
        self.packed: list[Any] = []
        self.gathered: list[Any] = []
        self.attention: tuple[Any, str] | None = None  #: the model that has the layers, and its implementation before

    def replace(self, module: nn.Module, name: str, make: Any, original: Any = None) -> None:
        setattr(module, name, types.MethodType(make(original or getattr(type(module), name)), module))
        self.replaced.append((module, name))

    def replace_linear(self, linear: nn.Module, make: Any) -> None:
        self.replace(linear, "forward", make)
        _modules.own(linear)
        self.replaced.append((linear, "kiln_linear"))
        self._settle(linear)

    def _settle(self, linear: nn.Module) -> None:
        for name in ("_apply", "_load_from_state_dict"):
            if name not in linear.__dict__:
                self.replace(linear, name, _modules.settled)

    def mark(self, module: nn.Module, name: str) -> None:
        module.__dict__[name] = True
        self.replaced.append((module, name))

    def fuse(self, module: Any, *names: str) -> None:
        _modules.fuse(module, *names)
        self.replace(module, "_apply", _modules.fused_apply)
        self.fused.append(module)
        for name in names:
            self._settle(getattr(module, name))

    def pack(self, mixer: Any) -> None:
        device = mixer.in_proj_qkvz.weight.device
        mixer.__dict__["kiln_slots"] = torch.arange(_mixers.SLOTS, dtype=torch.int32, device=device)
        self.replaced.append((mixer, "kiln_slots"))
        _mixers.pack(mixer)
        self.packed.append(mixer)
        self.replace(mixer, "_apply", _modules.settled)
        self.replace(mixer, "_load_from_state_dict", _modules.settled)

    def gather(self, mixer: Any) -> None:
        _rwkv7.gather(mixer)
        self.gathered.append(mixer)

    def attend(self, model: Any, whole: Any, layers: list[Any], prefill: bool, decode: bool) -> None:
        self.attention = (model, model.config._attn_implementation)
        model.set_attn_implementation(_attention.IMPLEMENTATIONS[model.config._attn_implementation])
        model.kiln_attention = _attention.ModelAttention(model.config, layers, prefill, decode)
        self.replace(model, "forward", _modules.model_forward)
        if decode and hasattr(whole, "generate") and not hasattr(type(whole), "create_masks_for_generate"):
            self.replace(whole, "create_masks_for_generate", _modules.masks_for_generate, create_masks_for_generate)

    def undo(self) -> None:
        for module, name in reversed(self.replaced):
            module.__dict__.pop(name, None)
        for module in self.fused:
            _modules.separate(module)
        for mixer in self.packed:
            _mixers.unpack(mixer)
        for mixer in self.gathered:
            _rwkv7.scatter(mixer)
        if self.attention is not None:
            model, implementation = self.attention
            model.set_attn_implementation(implementation)
            model.__dict__.pop("kiln_attention", None)


def apply(model: nn.Module, *, early: bool = True) -> Explanation:
    """Makes a model of transformers run on kiln's operators, and returns what runs and what does not.

    A second call changes nothing and returns the same. The model stays the same object, with the same
    parameters and state_dict. REQUIRES: no call of the model is running, and it was not compiled before.

    With `early` products load weights before the kernels before them have ended. Weights are then constants: apply(),
    model.to() and load_state_dict() wait for the device. After other writes to weights, such as an update in place, call
    torch.cuda.synchronize() before the model, or apply with early=False.
    """
    applied = model.__dict__.get("kiln_engine")
    if applied is None:
        survey = _Survey(model, early)
        applied = _Applied(survey.explanation)
        try:
            for change in survey.changes:
                change(applied)
        except BaseException:  # the fused weights may not fit the device's memory
            applied.undo()
            raise
        _modules.settle()
        model.__dict__["kiln_engine"] = applied
    return applied.explanation


def undo(model: nn.Module) -> None:
    """Restores what apply() changed. Models compiled in between must be compiled again."""
    applied = model.__dict__.pop("kiln_engine", None)
    if applied is not None:
        applied.undo()


def explain(model: nn.Module) -> Explanation:
    """The table of a model: what runs on kiln after apply(), or would run.

    Calls whose attention did not run on kiln are further rows, by reason. Compiled calls are not seen.
    """
    applied = model.__dict__.get("kiln_engine")
    if applied is None:
        return _Survey(model, early=True).explanation
    out = Explanation()
    out.rows = list(applied.explanation.rows)
    if applied.attention is not None:
        for reason, calls in applied.attention[0].kiln_attention.refusals.items():
            out.add(f"{calls} calls", "attention", reason)
    return out


def prepare(model: nn.Module, cache: Any) -> bool:
    """Prepares compiled decode steps with a StaticCache. Returns whether such steps run on kiln.

    The model does this itself after each call that was not compiled, as generate() makes for the prompt.
    Otherwise call it after cache.early_initialization(), and before the first compiled step.
    """
    applied = model.__dict__.get("kiln_engine")
    return applied is not None and applied.attention is not None and applied.attention[0].kiln_attention.prepare(cache)
