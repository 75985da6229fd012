"""Shared parts of the adapters of vLLM and SGLang: the conditions under which a call runs on kiln, and notes of calls.

A reason is a sentence's part that says why the engine's own forward runs; an empty reason means that kiln runs.
Reasons read shapes, dtypes and strides only, so that torch.compile can trace them.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .. import torch as ops
from .._errors import NotReady
from ._explain import VARIABLE, Explanation, is_off

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Notes:
    """The layers of one engine that kiln knows, and the reasons that their calls met."""

    def __init__(self) -> None:
        self.operators: dict[str, str] = {}  # kiln's operator by the name of the engine's class
        self.layers: list[weakref.ref[torch.nn.Module]] = []
        self.met: dict[int, list[str]] = {}  # reasons of calls, by the layer's number

    def add(self, layer: torch.nn.Module) -> None:
        if not hasattr(layer, "_kiln_number"):
            layer._kiln_number = len(self.layers)  # type: ignore[assignment]
            self.layers.append(weakref.ref(layer))

    def explain(self, class_of: Callable[[Any], str], always: Callable[[Any], str], model: torch.nn.Module | None) -> Explanation:
        """A row for each layer and reason. `always` gives the reason that holds for every call of a layer."""
        out = Explanation()
        names = {id(layer): name for name, layer in model.named_modules()} if model is not None else {}
        for name, operator in self.operators.items():
            if class_is_off(name, operator):
                out.add(name, operator, f"{VARIABLE} names it")
        for number, reference in enumerate(self.layers):
            layer = reference()
            if layer is None or (model is not None and id(layer) not in names):
                continue
            name = class_of(layer)
            place = names.get(id(layer)) or f"{name} {number}"
            for reason in [always(layer)] if always(layer) else self.met.get(number) or [""]:
                out.add(place, self.operators[name], reason)
        return out


def class_is_off(name: str, operator: str) -> bool:
    """True when KILN_ENGINES_OFF names the operator, or the engine's class."""
    return is_off(operator) or is_off(name)


#: the layers of this process; it has one engine
notes = Notes()


@torch.compiler.assume_constant_result
def _note(number: int, reason: str) -> bool:
    """Keeps a reason that a call of a layer met, "" for a call that ran on kiln. torch.compile runs it as it traces."""
    met = notes.met.setdefault(number, [])
    if reason not in met:
        met.append(reason)
    return True


def run(layer: Any, reason: str, kiln: Callable[[], Any], engine: Callable[[], Any]) -> Any:
    """Runs a call on kiln, or on the engine when there is a reason, or a sealed service has not got the kernel."""
    if not reason and torch.compiler.is_compiling():
        return kiln()
    if not reason:
        try:
            result = kiln()
        except NotReady:
            reason = "the sealed service has not got the kernel"
    _note(getattr(layer, "_kiln_number", -1), reason)
    return engine() if reason else result


# ---- reasons


def _unaligned(x: torch.Tensor, step: int) -> bool:
    """True when rows of x do not begin at multiples of `step` elements.

    torch.compile cannot trace storage_offset(). A compiled call of a view with an odd offset raises kiln.Error.
    """
    if any(stride % step for stride in x.stride()[:-1]):
        return True
    return not torch.compiler.is_compiling() and x.storage_offset() % step != 0


def rows(x: torch.Tensor, width: int, bytes_of_access: int = 16) -> str:
    """A reason against rows of x, whose kernel reads vectors of a divisor of `width` elements."""
    if x.dtype not in DTYPES:
        return f"x is {x.dtype}"
    if not torch.compiler.is_compiling() and x.numel() == 0:
        return "x is empty"
    if x.stride(-1) == 1 and _unaligned(x, math.gcd(width, bytes_of_access // x.element_size())):
        return "rows of x are not aligned to 16 bytes"
    return ""


def norm(x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor) -> str:
    if weight.dtype != x.dtype:
        return f"x is {x.dtype}, the weight is {weight.dtype}"
    if x.shape[-1] != weight.shape[0]:
        return "rows of x are not as long as the weight"
    reason = rows(x, weight.shape[0])
    if reason or residual is None:
        return reason
    if residual.dtype != x.dtype or residual.shape != x.shape:
        return "the residual has another dtype or shape than x"
    if not (residual.is_contiguous() or (residual.dim() == 2 and residual.stride(1) == 1)):
        return "the residual is not made of contiguous rows"
    if _unaligned(residual, math.gcd(weight.shape[0], 16 // x.element_size())):
        return "rows of the residual are not aligned to 16 bytes"
    return ""


def gated(x: torch.Tensor) -> str:
    return "rows of x have an odd number of elements" if x.shape[-1] % 2 else rows(x, x.shape[-1] // 2)


# ---- calls


def run_norm(x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, gemma: bool) -> Any:
    """The norm, and the sum when there is a residual, which then is written to."""
    if residual is None:
        return ops.rms_norm(x, weight, eps, gemma)
    return ops.fused_add_rms_norm(x, residual, weight, eps, gemma), residual


GELU = {"none": "gelu", "tanh": "gelu_tanh"}
