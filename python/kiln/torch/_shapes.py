"""What the bodies of operators share: tensors as rows, and refusals that name what is wrong."""

import torch
from torch import Tensor

from .._errors import Code, Error


def refuse(message: str) -> None:
    raise Error(message, Code.invalid_argument)


def rows_of(x: Tensor) -> Tensor:
    """As a matrix of its last dimension; a view where its strides let it be one, else a copy."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def rows_in_place(x: Tensor, name: str) -> Tensor:
    """As a matrix whose writes reach `x`."""
    flat = x if x.dim() == 2 else x.view(-1, x.shape[-1])
    if flat.stride(1) != 1:
        refuse(f"{name} is written in place: its last dimension must be contiguous, and has stride {flat.stride(1)}")
    return flat


def heads_of(x: Tensor, name: str) -> Tensor:
    """[tokens, heads, D] with a contiguous last dimension; a copy where it is not."""
    if x.dim() != 3:
        refuse(f"{name} must be [tokens, heads, size of a head], and is {list(x.shape)}")
    return x if x.stride(2) == 1 else x.contiguous()


def same_type(x: Tensor, **others: Tensor) -> None:
    for name, other in others.items():
        if other.dtype != x.dtype:
            refuse(f"{name} is {other.dtype}, expected {x.dtype} like the first argument")


def of_type(dtype: torch.dtype, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != dtype:
            refuse(f"{name} is {tensor.dtype}, expected {dtype}")


def of_shape(tensor: Tensor, name: str, *shape: int) -> None:
    if tuple(tensor.shape) != shape:
        refuse(f"{name} is {list(tensor.shape)}, expected {list(shape)}")
    if not tensor.is_contiguous():
        refuse(f"{name} must be contiguous")
