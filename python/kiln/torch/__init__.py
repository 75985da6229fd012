"""The shipped templates as operators of PyTorch, and a decorator that makes operators from your own.

    import kiln.torch

    y = torch.ops.kiln.rms_norm(x, weight, 1e-6)     # or kiln.torch.rms_norm: eager, compiled, exported, captured

Operators are registered when this module is imported, and stay as long as the process.
Tracing them touches neither driver nor cache. When an operator runs and its kernel is missing, the kernel is
made if the mode allows it (KILN_MODE, kiln.torch.set_mode, KILN_TORCH_MODES).
Operators are for inference: nothing is differentiated. A refused argument raises kiln.Error.
"""

from .._default import service, use_service
from ._attention import Attention, PagedDecode, RaggedPrefill
from ._by_length import choosing
from ._four_bits import FourBits, pack_int4, pack_mxfp4, quantize_int4, quantize_mxfp4
from ._fused_moe import fused_moe
from ._gated_delta import GatedDeltaNet, GatedDeltaStates
from ._generated import operators
from ._linear import Linear
from ._modes import seal, set_mode
from ._moe import FusedMoE
from ._plans import LatentDecode
from ._registry import Template, operator, specialize
from ._rwkv7 import RWKV7, RWKV7ChannelMix, RWKV7States

globals().update(operators | choosing)  # rms_norm, fused_add_rms_norm, rope, ...
__all__ = [
    *choosing,
    *operators,
    "Attention",
    "FourBits",
    "FusedMoE",
    "GatedDeltaNet",
    "GatedDeltaStates",
    "LatentDecode",
    "Linear",
    "PagedDecode",
    "RWKV7",
    "RWKV7ChannelMix",
    "RWKV7States",
    "RaggedPrefill",
    "Template",
    "fused_moe",
    "operator",
    "operators",
    "pack_int4",
    "pack_mxfp4",
    "quantize_int4",
    "quantize_mxfp4",
    "seal",
    "service",
    "set_mode",
    "specialize",
    "use_service",
]
