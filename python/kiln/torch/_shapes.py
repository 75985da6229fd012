"""Checks whose errors name the tensor."""

from torch import Tensor, dtype

from .._errors import Code, Error


def refuse(message: str) -> None:
    raise Error(message, Code.invalid_argument)


def of_type(wanted: dtype, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != wanted:
            refuse(f"{name} is {tensor.dtype}, expected {wanted}")


def of_shape(tensor: Tensor | None, name: str, *shape: int) -> None:
    """Refuses a tensor of another shape. Strides are free, and None is accepted."""
    if tensor is not None and tuple(tensor.shape) != shape:
        refuse(f"{name} is {list(tensor.shape)}, expected {list(shape)}")
