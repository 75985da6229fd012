"""kiln's operators as a kernel of Hugging Face's package `kernels`: `kiln engines hf-kernel DIR` writes it.

    from kernels import get_local_kernel

    kiln = get_local_kernel(pathlib.Path("DIR"))
    y = kiln.rms_norm(x, weight)

transformers takes the layers of such a kernel, too: KernelConfig({"RMSNorm": "DIR:RMSNorm"}, use_local_kernel=True).
The directory has Python alone. It needs the package kiln where it is used, and says so where kiln is missing.
"""

from __future__ import annotations

import json
import pathlib

_INIT = '''"""kiln's operators: kernels that are compiled for the sizes of a model, and kept on disk."""

try:
    import kiln.torch
except ImportError as error:
    raise ImportError(f"this kernel runs on the package kiln, which cannot be imported ({error}): pip install kiln") from error
from . import layers

globals().update({name: getattr(kiln.torch, name) for name in kiln.torch.operators})
__all__ = [*kiln.torch.operators, "layers"]
'''

_LAYERS = '''"""Layers for `kernels`: they keep no state, and read weights of the layer that they stand for."""

import kiln.torch
import torch


class RMSNorm(torch.nn.Module):
    can_torch_compile = True
    has_backward = False
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return kiln.torch.rms_norm(hidden_states, self.weight, self.variance_epsilon)


class SiluAndMul(torch.nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kiln.torch.act_and_mul(x, "silu")


class GeluAndMul(torch.nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kiln.torch.act_and_mul(x, "gelu")


class GeluTanhAndMul(torch.nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kiln.torch.act_and_mul(x, "gelu_tanh")
'''


def write(directory: str | pathlib.Path) -> pathlib.Path:
    """Writes the kernel to DIRECTORY/build/torch-cuda, over an earlier one. Returns that path."""
    out = pathlib.Path(directory) / "build" / "torch-cuda"
    out.mkdir(parents=True, exist_ok=True)
    metadata = {
        "id": "kiln_operators",
        "name": "kiln-operators",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    for name, text in (("metadata.json", json.dumps(metadata, indent=2) + "\n"), ("__init__.py", _INIT), ("layers.py", _LAYERS)):
        (out / name).write_text(text)
    return out
