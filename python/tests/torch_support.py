"""Helpers of the tests of kiln.torch without a GPU: operators on host memory, launched on the fake driver."""

import kiln
import kiln.torch
import pytest
import torch
from kiln.torch import _registry


@pytest.fixture(scope="module", autouse=True)
def on_host_memory():
    _registry.implement("CPU")


@pytest.fixture
def launching(driver, host_memory):
    """A service through which operators launch on the fake driver."""
    with kiln.Service() as service:
        kiln.torch.use_service(service)
        yield service
    kiln.torch.use_service(kiln.Service())


def fresh(name):
    """An operator name that no other test has."""
    fresh.count = getattr(fresh, "count", 0) + 1
    return f"kiln_test::{name}_{fresh.count}"


def as_tuple(result):
    return result if isinstance(result, tuple) else () if result is None else (result,)


def tensors_named(name):
    """The tensors that an operator takes."""
    return {a.name for a in getattr(torch.ops.kiln, name).default._schema.arguments if "Tensor" in str(a.type)}
