"""The layers that kiln.engines.vllm registers. Importing this module imports vLLM's layers."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import Any

import torch
from vllm import envs
from vllm.logger import init_logger
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers import activation, layernorm, rotary_embedding
from vllm.model_executor.layers.quantization import input_quant_fp8 as quant
from vllm.model_executor.warmup.jit_warmup import VllmJitKernel
from vllm.utils import jit_monitor
from vllm.utils.deep_gemm import DeepGemmQuantScaleFMT

from .. import torch as ops
from .._values import plan_text
from . import _layers
from ._layers import class_is_off, notes, run

logger = init_logger("vllm.kiln")  # vLLM's handlers belong to the loggers below "vllm"

# ---- warm-up: kernels whose sizes are known when a layer is made


@dataclass(frozen=True)
class Key:
    """A row of a plan: a template, and its parameters."""

    template: str
    parameters: tuple[tuple[str, Any], ...]


class WarmUp(VllmJitKernel[Key]):
    """Makes the kernels of layers in vLLM's warm-up, before graphs are captured.

    Layers that know their widths register themselves. vLLM's dummy runs ask for the other kernels.
    """

    CompileKey = Key

    def get_warmup_keys(self, template: str, **parameters: Any) -> list[Key]:
        return [Key(template, tuple(parameters.items()))]

    def compile(self, compile_key: Key) -> None:
        ops.service().prepare(plan_text([{"template": compile_key.template, **dict(compile_key.parameters)}]))
        self._compiled_cache[compile_key] = True


warm_up = WarmUp()


def _warm_norm(layer: Any, gemma: bool) -> None:
    for fused in (False, True):
        warm_up.register_warmup("rms_norm", T=layer.weight.dtype, H=layer.weight.shape[0], FUSED_ADD=fused, GEMMA=gemma)


def _warm_rope(layer: Any) -> None:
    if isinstance(getattr(layer, "cos_sin_cache", None), torch.Tensor) and layer.head_size <= 512:
        warm_up.register_warmup(
            "rope",
            T=layer.dtype,
            D=layer.head_size,
            ROTARY=layer.cos_sin_cache.shape[-1],
            INTERLEAVE=not layer.is_neox_style,
            TABLE=layer.dtype,
        )


# ---- layers: for each the reason against kiln, and the call


def _norm_reason(layer: Any, x: torch.Tensor, residual: torch.Tensor | None) -> str:
    if envs.VLLM_BATCH_INVARIANT:
        return "VLLM_BATCH_INVARIANT is set"
    if getattr(layer, "variance_size_override", None) is not None:
        return "the variance is that of a part of the row"
    if not getattr(layer, "pass_weight_add" if residual is not None else "pass_weight", True):
        return "the layer has no weight"
    return _layers.norm(x, residual, layer.weight)


def rms_norm(layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    return run(
        layer,
        _norm_reason(layer, x, residual),
        lambda: _layers.run_norm(x, residual, layer.weight.data, layer.variance_epsilon, False),
        lambda: layernorm.RMSNorm.forward_cuda(layer, x, residual),
    )


def gemma_rms_norm(layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    """As vLLM's forward does, it leaves the residual as it is, and returns the sum in a new tensor."""
    return run(
        layer,
        _norm_reason(layer, x, residual),
        lambda: _layers.run_norm(
            x, None if residual is None else residual.clone(), layer.weight.data, layer.variance_epsilon, True
        ),
        lambda: layernorm.GemmaRMSNorm.forward_cuda(layer, x, residual),
    )


def silu_and_mul(layer: Any, x: torch.Tensor) -> Any:
    return run(
        layer,
        _layers.gated(x),
        lambda: ops.act_and_mul(x, "silu", round_gate=True),
        lambda: activation.SiluAndMul.forward_cuda(layer, x),
    )


def gelu_and_mul(layer: Any, x: torch.Tensor) -> Any:
    return run(
        layer,
        _layers.gated(x),
        lambda: ops.act_and_mul(x, _layers.GELU[layer.approximate], round_gate=True),
        lambda: activation.GeluAndMul.forward_cuda(layer, x),
    )


def _heads(x: torch.Tensor, positions: torch.Tensor, size: int) -> torch.Tensor | None:
    """x as [tokens, heads, size], a view, or None when there is none."""
    if not torch.compiler.is_compiling() and x.numel() == 0:
        return None
    if positions.dim() == 1 and x.dim() == 3 and x.shape[2] == size:
        return x if x.stride(2) == 1 else None
    if x.is_contiguous() or (positions.dim() == 1 and x.dim() == 2 and x.stride(1) == 1):
        return x.view(positions.numel(), -1, size)
    return None


def rotary(layer: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None) -> Any:
    """Rotates query and key in place, as vLLM's forward does. In torch.compile it returns new tensors, as forward_native.

    Inductor of torch 2.11 adds the offset of an input twice where an operator writes to a view of it.
    """
    size = layer.head_size
    q = _heads(query, positions, size)
    k = None if key is None else _heads(key, positions, size)
    table = None if layer.use_flashinfer or q is None or k is None else layer._match_cos_sin_cache_dtype(query)

    def reason() -> str:
        if layer.use_flashinfer:
            return "FlashInfer's rotary embedding was chosen"
        if key is None:
            return "there is no key"
        if q is None or k is None or table is None:
            return "query or key is empty, or no view of contiguous heads"
        if key.dtype != query.dtype or positions.dtype not in (torch.int32, torch.int64):
            return f"query is {query.dtype}, key is {key.dtype}, positions are {positions.dtype}"
        turned = table.shape[1]
        if turned % 2 or not 2 <= turned <= size <= 512:
            return f"the head has {size} elements, of which {turned} are rotated"
        return _layers.rows(q, math.gcd(size, turned // 2)) or _layers.rows(k, math.gcd(size, turned // 2))

    def kiln() -> Any:
        assert table is not None
        options = (positions.flatten().contiguous(), table, not layer.is_neox_style, table.shape[1])
        if torch.compiler.is_compiling():
            return tuple(new.view(old.shape) for new, old in zip(ops.rope(q, k, *options), (query, key)))
        ops.rope_(q, k, *options)
        return query, key

    return run(layer, reason(), kiln, lambda: rotary_embedding.RotaryEmbedding.forward_cuda(layer, positions, query, key))


def _packed(layer: Any) -> bool:
    """vLLM's own condition for scales of four groups in an int32."""
    return (
        layer.use_ue8m0
        and layer.use_deep_gemm_supported
        and layer.group_size == 128
        and DeepGemmQuantScaleFMT.from_oracle() == DeepGemmQuantScaleFMT.UE8M0
    )


def _quant_reason(layer: Any, x: torch.Tensor, scale: torch.Tensor | None, scale_ub: torch.Tensor | None) -> str:
    if torch.float8_e4m3fn != quant._FP8_DTYPE:
        return f"the platform's fp8 is {quant._FP8_DTYPE}"
    if x.dim() != 2:
        return f"x has {x.dim()} dimensions"
    if layer.num_token_padding is not None and not (layer.is_group_quant and not layer.static):
        return "the result is padded with rows"
    if layer.static:
        if scale is None or scale.numel() != 1 or scale.dtype != torch.float32 or not layer.group_shape.is_per_tensor():
            return "the given scales are more than one"
        return _layers.rows(x, x.shape[1])
    if scale is not None:
        return "a scale is given to a layer that computes it"
    if scale_ub is not None:
        return "scale_ub bounds the scales"
    if not layer.is_group_quant:
        return _layers.rows(x, x.shape[1], 32 if layer.group_shape.is_per_token() else 16)
    group = layer.group_size
    if group not in (64, 128) or x.shape[1] % group:
        return f"groups have {group} elements, rows of x {x.shape[1]}"
    if layer.column_major_scales and not layer.tma_aligned_scales and not _packed(layer):
        return "columns of scales are not aligned for TMA"
    return _layers.rows(x, x.shape[1])


def quant_fp8(
    layer: Any, x: torch.Tensor, scale: torch.Tensor | None = None, scale_ub: torch.Tensor | None = None, use_triton: bool = False
) -> Any:
    def kiln() -> Any:
        if layer.static:
            return ops.fp8_quant(x, scale), scale
        if layer.is_group_quant:
            packed = _packed(layer)
            columns = packed or layer.column_major_scales
            return ops.fp8_quant_group(
                x, layer.group_size, eps=1e-10, pow2=bool(layer.use_ue8m0), column_major=columns, packed=packed
            )
        least = 448 * quant._FP8_MIN_SCALING_FACTOR  # of the largest magnitude
        if layer.group_shape.is_per_token():
            return ops.fp8_quant_token(x, eps=least)
        return ops.fp8_quant_tensor(x, ops.amax(x), eps=least)

    return run(
        layer,
        _quant_reason(layer, x, scale, scale_ub),
        kiln,
        lambda: quant.QuantFP8.forward_cuda(layer, x, scale, scale_ub, use_triton),
    )


# ---- registration


def _rotary_classes() -> list[type]:
    """RotaryEmbedding, and the classes that only make another table for it."""
    base = rotary_embedding.RotaryEmbedding
    return [
        c
        for c in vars(rotary_embedding).values()
        if isinstance(c, type)
        and issubclass(c, base)
        and c.forward_cuda is base.forward_cuda
        and c.forward_native is base.forward_native
    ]


def _replace(base: Any, operator: str, forward: Any, warm: Any = None) -> None:
    name = base.__name__
    notes.operators[name] = operator
    if class_is_off(name, operator):
        return
    if name in op_registry_oot:
        logger.warning("kiln: %s stays with the plugin that replaced it by %s", name, op_registry_oot[name])
        return

    class KilnLayer(base):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            notes.add(self)
            if warm is not None and self._forward_method == self.forward_cuda:
                warm(self)

        forward_cuda = forward

    KilnLayer.__name__ = KilnLayer.__qualname__ = "Kiln" + name
    base.register_oot(KilnLayer, name=name)
    # register_oot sets the name by which custom_ops enables the layer to `name`: "+rms_norm" would not hold.
    KilnLayer.name = base.name


def register(seal: bool) -> None:
    _replace(layernorm.RMSNorm, "rms_norm", rms_norm, lambda layer: _warm_norm(layer, False))
    _replace(layernorm.GemmaRMSNorm, "rms_norm", gemma_rms_norm, lambda layer: _warm_norm(layer, True))
    _replace(activation.SiluAndMul, "act_and_mul", silu_and_mul)
    _replace(activation.GeluAndMul, "act_and_mul", gelu_and_mul)
    for base in _rotary_classes():
        _replace(base, "rope", rotary, _warm_rope)
    _replace(quant.QuantFP8, "fp8_quant", quant_fp8)
    _watch(seal)


def _watch(seal: bool) -> None:
    """Seals the service, if asked to, and begins to report compiles, when vLLM starts its JIT monitor after warm-up."""
    activate = jit_monitor.activate

    def activate_and_watch(**named: Any) -> None:
        first = not jit_monitor.is_active()
        activate(**named)
        if seal:
            ops.seal()
        if first:
            threading.Thread(target=_report, name="kiln-jit-monitor", daemon=True).start()

    jit_monitor.activate = activate_and_watch


def late(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names the work that a service did between two of its stats(), and that vLLM's warm-up should have done."""
    events = {"compiles": "kernel JIT compilation", "sealed_misses": "miss of the sealed service"}
    return [event for counter, event in events.items() if now[counter] > before[counter]]


def _report(seconds: float = 1.0) -> None:
    """Reports to the JIT monitor, once a second. A kernel in a compiled graph calls no Python that could report it."""
    before = ops.service().stats()
    while True:
        time.sleep(seconds)
        now = ops.service().stats()
        for event in late(before, now):
            try:
                jit_monitor._handle_jit_event(backend="kiln", event=event, fn_name="an operator", detail=None)
            except RuntimeError as error:  # the monitor's mode "error", in a thread that serves no request
                logger.error("%s", error)
        before = now


def _always(layer: Any) -> str:
    if layer._forward_method == layer.forward_cuda:
        return ""
    return f"custom_ops does not enable {layer.name}: vLLM compiles its forward_native"


def explain(model: torch.nn.Module | None) -> Any:
    return notes.explain(lambda layer: type(layer).__name__.removeprefix("Kiln"), _always, model)
