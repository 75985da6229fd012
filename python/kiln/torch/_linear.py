"""Linear layers on the operator gemm: the product, and the epilogue that follows from a call's arguments.

Where the operator cannot run, plain torch computes the call. refusal() says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._generated import operators
from ._shapes import refuse

#: the type of device that the operator runs on; tests use "cpu" with a fake driver
DEVICE = "cuda"
DTYPES = (torch.float16, torch.bfloat16)
LEAST_CAPABILITY = (8, 0)
#: the factor of the logarithm of RWKV7's decay: -exp(-1/2)
LEAST_LOG_DECAY = -0.6065306597126334
#: the activations that products of experts have, too
OF_EXPERTS: dict[str, Any] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).square(),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
ACTIVATIONS = OF_EXPERTS | {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "log_decay": lambda x: LEAST_LOG_DECAY * torch.sigmoid(x)}
_gemm = operators["gemm"]
#: compute capabilities by the index of a CUDA device
_devices: dict[int, tuple[int, int]] = {}


# ---- whether the operator can run


def misfit(weight: Tensor, gated: bool = False) -> str:
    """Why the operator cannot multiply by a weight, whatever a call is; empty when it can."""
    rows, columns = weight.shape[0] // (2 if gated else 1), weight.shape[1]
    if weight.dtype not in DTYPES:
        return f"the weight is {weight.dtype}, expected torch.float16 or torch.bfloat16"
    if rows % 8 or columns % 8:
        return f"the layer has {columns} inputs and {rows} outputs, expected multiples of 8"
    if weight.stride(1) != 1 or weight.stride(0) % 8:
        return f"the weight has strides {list(weight.stride())}, expected contiguous rows at multiples of 8 elements"
    return ""


def too_old(device: torch.device, least: tuple[int, int] = LEAST_CAPABILITY) -> str:
    """Why an operator cannot run on a CUDA device; empty when it can, and for other devices.

    A compiled call reads what an earlier look found: a layer looks when it is made.
    """
    if device.type != "cuda":
        return ""
    index = device.index or 0
    if index not in _devices and not torch.compiler.is_compiling():
        _devices[index] = torch.cuda.get_device_capability(index)
    found = _devices.get(index, least)
    return (
        ""
        if found >= least
        else f"the device has compute capability {found[0]}.{found[1]}, expected at least {least[0]}.{least[1]}"
    )


def refusal(weight: Tensor, gated: bool, *tensors: Tensor | None) -> str:
    """Why a call with x, a bias or a residual runs in plain torch; empty when the operator runs it."""
    reason = misfit(weight, gated)
    if reason:
        return reason
    if weight.device.type != DEVICE:
        return f"the weight is on {weight.device.type}, expected {DEVICE}"
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (weight, *tensors)):
        return "gradients are enabled and required: call the layer under torch.no_grad or torch.inference_mode"
    return too_old(weight.device)


# ---- the two ways to compute


def _aligned(rows: Tensor) -> Tensor:
    """Rows that a tensor map can describe: contiguous in themselves, and all at multiples of 16 bytes.

    torch.compile cannot trace storage_offset(). A compiled call of a view with an odd offset raises kiln.Error.
    """
    step = 16 // rows.element_size()
    if rows.stride(1) != 1 or rows.stride(0) % step:
        return rows.contiguous() if not rows.is_contiguous() else rows.clone()
    return rows.clone() if not torch.compiler.is_compiling() and rows.storage_offset() % step else rows


def multiply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    act: str = "none",
    gated: bool = False,
    early: bool = False,
) -> Tensor:
    """Runs the operator on the flattened rows of x. REQUIRES: refusal() is empty."""
    shape = (*x.shape[:-1], weight.shape[0] // (2 if gated else 1))
    rows = _aligned(x.reshape(-1, x.shape[-1]))
    added = None if residual is None else _aligned(residual.reshape(-1, shape[-1]))
    return _gemm(rows, weight, bias, added, act, gated, early).view(shape)


def plain(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, act: str = "none", gated: bool = False
) -> Tensor:
    """The result of multiply() in plain torch, which rounds after each step."""
    y = F.linear(x, weight, bias)
    if gated:
        gate, up = y.chunk(2, -1)
        y = ACTIVATIONS[act](gate) * up
    else:
        y = ACTIVATIONS[act](y)
    return y if residual is None else y + residual


# ---- the module


def _parameter(tensor: Tensor | None) -> nn.Parameter | None:
    """A parameter stays the object that it is. Another tensor becomes one without a gradient."""
    if tensor is None or isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=False)


class Linear(nn.Module):
    """A linear layer for inference: one kernel computes act(x weight^T + bias) + residual.

        down = kiln.torch.Linear(weight, bias)                                       # weight [N, K], as nn.Linear has it
        qkv = kiln.torch.Linear.of([attention.q_proj, attention.k_proj, attention.v_proj])
        gate_up = kiln.torch.Linear.of([mlp.gate_proj, mlp.up_proj], act="silu", gated=True)
        y = down(gate_up(x), residual)

    `act` is none, relu, relu_squared, silu, gelu, gelu_tanh, sigmoid, tanh or log_decay, which is
    RWKV7's -exp(-1/2) sigmoid(x). With `gated` the first half of the weight's rows makes
    a gate: the result is act(gate) times the other half, plus the residual, and has half as many columns.

    `early` lets the kernel load the weight before the kernels before it in the stream have ended, which makes layers with
    few rows faster. It must be False when a kernel that may still run writes the weight: then the layer may multiply by
    old values. Examples are a step of an optimizer, an update in place, and a weight that was just computed or copied.
    After torch.cuda.synchronize() all writes have ended, and True is right. The layer waits so itself after of() has packed
    weights, and after to(), load_state_dict() and a deep copy. The attribute `early` may be changed between calls; a
    compiled or captured call keeps the value that it was made with.

    The operator runs in f16 and bf16, on a GPU of compute capability 8.0 or later, with multiples of 8 as sizes,
    and differentiates nothing. Every other call gives the same in plain torch, and explain() says why.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, act: str = "none", gated: bool = False, early: bool = True
    ) -> None:
        super().__init__()
        if act not in ACTIVATIONS:
            refuse(f"act = {act!r}, expected one of {', '.join(ACTIVATIONS)}")
        if weight.dim() != 2 or not weight.is_floating_point() or weight.element_size() < 2:
            refuse(f"weight is {weight.dtype} {list(weight.shape)}, expected [outputs, inputs] in f16, bf16, f32 or f64")
        if gated and weight.shape[0] % 2:
            refuse(f"weight has {weight.shape[0]} rows and gated = True, expected an even number: gate rows, then as many others")
        if bias is not None and (tuple(bias.shape) != (weight.shape[0],) or bias.dtype != weight.dtype):
            refuse(f"bias is {bias.dtype} {list(bias.shape)}, expected {weight.dtype} [{weight.shape[0]}]")
        self.act, self.gated, self.early = act, gated, early
        #: outputs of each layer that of() packed, for Tensor.split
        self.sizes: tuple[int, ...] = (self._outputs(weight),)
        if not isinstance(weight, nn.Parameter):
            weight = weight.contiguous()
        self.weight = _parameter(weight)  # type: ignore[assignment]
        self.register_parameter("bias", _parameter(bias))
        too_old(self.weight.device)

    @classmethod
    def of(cls, layers: nn.Linear | Iterable[nn.Linear], act: str = "none", gated: bool = False, early: bool = True) -> Linear:
        """A layer with the weights of one nn.Linear, which it shares, or of several, which it packs into a new weight.

        Packed layers have one result, whose columns stand in the layers' order: `y.split(layer.sizes, -1)`.
        With `gated` it takes two layers, the gate's first, or one whose weight has the rows of both.
        A layer without a bias gets zeros where another has one.
        """
        given = [layers] if isinstance(layers, nn.Module) else list(layers)
        for layer in given:
            if type(layer) is not nn.Linear:
                refuse(f"a layer is {type(layer).__module__}.{type(layer).__name__}, expected torch.nn.Linear")
        if not given:
            refuse("no layer is given, expected one torch.nn.Linear or several")
        if len(given) == 1:
            return cls(given[0].weight, given[0].bias, act, gated, early)
        if gated and (len(given) != 2 or given[0].out_features != given[1].out_features):
            sizes = ", ".join(str(layer.out_features) for layer in given)
            refuse(f"gated = True with layers of {sizes} outputs, expected two layers with as many outputs")
        first = given[0].weight
        for layer in given[1:]:
            w = layer.weight
            if (w.shape[1], w.dtype, w.device) != (first.shape[1], first.dtype, first.device):
                refuse(
                    f"a layer has {w.shape[1]} inputs in {w.dtype} on {w.device}, "
                    f"expected {first.shape[1]} in {first.dtype} on {first.device}, as the first one"
                )
        with torch.no_grad():
            weight, bias = torch.cat([layer.weight for layer in given]), None
            if any(layer.bias is not None for layer in given):
                bias = torch.cat([first.new_zeros(n.out_features) if n.bias is None else n.bias for n in given])
        out = cls(weight, bias, act, gated, early)
        out._settle()
        if not gated:
            out.sizes = tuple(layer.out_features for layer in given)
        return out

    def _settle(self) -> None:
        """Waits until all writes of the weight have ended."""
        if self.weight.device.type == "cuda":
            torch.cuda.synchronize(self.weight.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Linear:
        super()._apply(fn, recurse)
        self._settle()
        too_old(self.weight.device)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._settle()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._settle()

    def _outputs(self, weight: Tensor) -> int:
        return weight.shape[0] // (2 if self.gated else 1)

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self._outputs(self.weight)

    def explain(self, x: Tensor | None = None, residual: Tensor | None = None) -> str:
        """Why a call with these tensors runs in plain torch; empty when it runs on kiln.

        Without x it looks at the layer alone. The answer depends on torch.is_grad_enabled().
        """
        return refusal(self.weight, self.gated, self.bias, x, residual)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """The result [..., outputs] for x [..., inputs], plus a residual of the result's shape.

        Raises Error for other shapes, and for tensors that have not the weight's dtype and device.
        """
        weight = self.weight
        if x.dim() < 1 or x.shape[-1] != weight.shape[1] or x.dtype != weight.dtype or x.device != weight.device:
            refuse(
                f"x is {x.dtype} {list(x.shape)} on {x.device}, expected {weight.dtype} [..., {weight.shape[1]}] on {weight.device}"
            )
        if residual is not None:
            shape = (*x.shape[:-1], self._outputs(weight))
            if residual.shape != shape or residual.dtype != weight.dtype or residual.device != weight.device:
                refuse(
                    f"residual is {residual.dtype} {list(residual.shape)} on {residual.device}, expected {weight.dtype} {list(shape)} "
                    f"on {weight.device}"
                )
        if refusal(weight, self.gated, self.bias, x, residual):
            return plain(x, weight, self.bias, residual, self.act, self.gated)
        return multiply(x, weight, self.bias, residual, self.act, self.gated, self.early)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"act={self.act}, gated={self.gated}, early={self.early}"
        )
