"""Helpers of the operators' bodies: tensors as rows, and checks whose errors name the tensor."""

import torch
from torch import Tensor

from .._errors import Code, Error


def refuse(message: str) -> None:
    raise Error(message, Code.invalid_argument)


def rows_of(x: Tensor) -> tuple[Tensor, int, int]:
    """(matrix, rows, stride): x as rows of its last dimension, and the elements from one row to the next.

    The matrix is a view of x where the strides allow one, else a copy.
    """
    if x.dim() == 2:
        stride, inner = x.stride()  # one call into torch for both: a call costs more than the rest here
        if inner == 1:
            return x, x.shape[0], stride
    flat = x.reshape(-1, x.shape[-1])
    if flat.stride(1) != 1:
        flat = flat.contiguous()
    return flat, flat.shape[0], flat.stride(0)


def rows_in_place(x: Tensor, name: str) -> Tensor:
    """x as a matrix of its last dimension: a view, so that writes reach x."""
    flat = x if x.dim() == 2 else x.view(-1, x.shape[-1])
    if flat.stride(1) != 1:
        refuse(f"{name} is written in place: its last dimension must be contiguous, and has stride {flat.stride(1)}")
    return flat


def like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new contiguous tensor of x's shape."""
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A new tensor on x's device."""
    return torch.empty(shape, dtype=dtype, device=x.device)


def heads_of(x: Tensor, name: str) -> Tensor:
    """x [tokens, heads, D] with a contiguous last dimension: x itself, or a copy."""
    if x.dim() != 3:
        refuse(f"{name} must be [tokens, heads, size of a head], and is {list(x.shape)}")
    return x if x.stride(2) == 1 else x.contiguous()


def same_type(x: Tensor, **others: Tensor | None) -> None:
    for name, other in others.items():
        if other is not None and other.dtype != x.dtype:
            refuse(f"{name} is {other.dtype}, expected {x.dtype} like the first argument")


def of_type(dtype: torch.dtype, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != dtype:
            refuse(f"{name} is {tensor.dtype}, expected {dtype}")


def of_shape(tensor: Tensor | None, name: str, *shape: int) -> None:
    """Refuses a tensor of another shape. Strides are free, and None is accepted."""
    if tensor is not None and tuple(tensor.shape) != shape:
        refuse(f"{name} is {list(tensor.shape)}, expected {list(shape)}")


def dense(tensor: Tensor, name: str, *shape: int) -> None:
    """Refuses a tensor of another shape, or one that is not contiguous."""
    of_shape(tensor, name, *shape)
    if not tensor.is_contiguous():
        refuse(f"{name} must be contiguous")


def of_dims(tensor: Tensor, name: str, meaning: str) -> None:
    """Refuses a tensor with another number of dimensions than `meaning`, such as "[B, T, H, K]"."""
    if tensor.dim() != meaning.count(",") + 1:
        refuse(f"{name} is {list(tensor.shape)}, expected {meaning}")


def one_scale(scale: Tensor) -> None:
    of_type(torch.float32, scale=scale)
    if scale.numel() != 1:
        refuse(f"scale is {list(scale.shape)}, expected one element")


def stride_of_scales(heads: int, k_scale: Tensor | None, v_scale: Tensor | None) -> int:
    """The stride of fp8 scales: 0 for one scale of the tensor, 1 for one scale of each head."""
    of_type(torch.float32, k_scale=k_scale, v_scale=v_scale)
    sizes = [scale.numel() for scale in (k_scale, v_scale) if scale is not None]
    if all(size == 1 for size in sizes):
        return 0
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None:
            dense(scale, name, *scale.shape)
    if not all(size == heads for size in sizes):
        refuse(f"k_scale and v_scale have {sizes} elements, expected 1 each or {heads} each")
    return 1
