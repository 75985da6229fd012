"""The plugin backend that kiln.engines.sglang registers. Importing this module imports SGLang's layers."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.kernels.fused_op import BACKEND_METHODS, get_fused_op_backend
from sglang.kernels.spec import CapabilityRequirement, KernelBackend
from sglang.srt.batch_invariant_ops import is_batch_invariant_mode_enabled
from sglang.srt.layers import activation, layernorm

from .. import torch as ops
from . import _layers
from ._layers import class_is_off, notes, run

logger = logging.getLogger(__name__)
METHOD = BACKEND_METHODS[KernelBackend.PLUGIN]


def _own_forward(layer: Any, base: type) -> str:
    """A subclass inherits the plugin's forward, and must not lose its own one to it."""
    if type(layer).forward_cuda is not base.forward_cuda:  # type: ignore[attr-defined]
        return f"{type(layer).__name__} has a forward_cuda of its own"
    return ""


def _norm(
    layer: Any, base: type, x: torch.Tensor, residual: torch.Tensor | None, more: torch.Tensor | None, reason: str, engine: Any
) -> Any:
    def kiln() -> Any:
        summand = residual if residual is None or more is None else residual + more
        return _layers.run_norm(x, summand, layer.weight.data, layer.variance_epsilon, base is layernorm.GemmaRMSNorm)

    if not reason and is_batch_invariant_mode_enabled():
        reason = "SGLang's batch-invariant mode is on"
    reason = _own_forward(layer, base) or reason or _layers.norm(x, residual, layer.weight)
    if not reason and more is not None and residual is not None and more.dtype != x.dtype:
        reason = "post_residual_addition has another dtype than x"
    return run(layer, reason, kiln, engine)


def rms_norm(
    layer: Any,
    x: torch.Tensor,
    residual: torch.Tensor | None = None,
    post_residual_addition: torch.Tensor | None = None,
    quant_linear: torch.nn.Module | None = None,
) -> Any:
    reason = ""
    if quant_linear is not None or layer._quant_linear is not None:
        reason = "the input quantisation of the next projection is fused with the norm"
    elif layer.variance_size_override is not None:
        reason = "the variance is that of a part of the row"
    elif layer.cast_x_before_out_mul:
        reason = "cast_x_before_out_mul rounds before the weight"
    elif layer.override_orig_dtype is not None:
        reason = "override_orig_dtype is set"
    return _norm(
        layer,
        layernorm.RMSNorm,
        x,
        residual,
        post_residual_addition,
        reason,
        lambda: layer.forward_cuda(x, residual, post_residual_addition, quant_linear),
    )


def gemma_rms_norm(
    layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None, post_residual_addition: torch.Tensor | None = None
) -> Any:
    return _norm(
        layer,
        layernorm.GemmaRMSNorm,
        x,
        residual,
        post_residual_addition,
        "",
        lambda: layer.forward_cuda(x, residual, post_residual_addition),
    )


def silu_and_mul(layer: Any, x: torch.Tensor) -> Any:
    reason = _own_forward(layer, activation.SiluAndMul) or _layers.gated(x)
    return run(layer, reason, lambda: ops.act_and_mul(x, "silu"), lambda: layer.forward_cuda(x))


def gelu_and_mul(layer: Any, x: torch.Tensor) -> Any:
    reason = _own_forward(layer, activation.GeluAndMul) or _layers.gated(x)
    if layer.approximate not in _layers.GELU:
        reason = f"approximate is {layer.approximate!r}"
    return run(layer, reason, lambda: ops.act_and_mul(x, _layers.GELU[layer.approximate]), lambda: layer.forward_cuda(x))


LAYERS: dict[type, tuple[str, Any]] = {
    layernorm.RMSNorm: ("rms_norm", rms_norm),
    layernorm.GemmaRMSNorm: ("rms_norm", gemma_rms_norm),
    activation.SiluAndMul: ("act_and_mul", silu_and_mul),
    activation.GeluAndMul: ("act_and_mul", gelu_and_mul),
}


def _replace(base: Any, operator: str, forward: Any) -> None:
    name = base.__name__
    notes.operators[name] = operator
    if class_is_off(name, operator):
        return
    if METHOD in vars(base):
        logger.warning("kiln: %s stays with the plugin that gave it a %s", name, METHOD)
        return
    init = base.__init__

    def noted_init(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        notes.add(self)

    base.__init__ = noted_init
    setattr(base, METHOD, forward)
    base.capabilities = {**base.capabilities, KernelBackend.PLUGIN: {CapabilityRequirement.CUDA}}


def register() -> None:
    for base, (operator, forward) in LAYERS.items():
        _replace(base, operator, forward)


def _class_of(layer: Any) -> str:
    return next(base.__name__ for base in LAYERS if isinstance(layer, base))


def _always(layer: Any) -> str:
    forced = get_fused_op_backend()
    if forced not in (None, KernelBackend.PLUGIN):
        return f"SGLANG_FORCE_FUSED_OP_BACKEND is {forced.value}"
    method = getattr(layer._forward_method, "__name__", None)  # None until the first call
    if method is None and layer.auto_selected_backend() is not KernelBackend.PLUGIN:
        return "SGLang does not choose the plugin backend on this platform"
    if method not in (None, METHOD, LAYERS_FORWARDS.get(_class_of(layer))):
        return f"SGLang runs {method}"
    return ""


LAYERS_FORWARDS = {base.__name__: forward.__name__ for base, (_, forward) in LAYERS.items()}


def explain(model: torch.nn.Module | None) -> Any:
    return notes.explain(_class_of, _always, model)
