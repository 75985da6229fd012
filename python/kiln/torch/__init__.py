"""The shipped templates as operators of PyTorch, and a decorator that makes operators from your own.

    import kiln.torch

    y = torch.ops.kiln.rms_norm(x, weight, 1e-6)     # or kiln.torch.rms_norm: eager, compiled, exported, captured

Operators are registered when this module is imported, and stay as long as the process.
Tracing them touches neither driver nor cache. When an operator runs and its kernel is missing, the kernel is
made if the mode allows it (KILN_MODE, kiln.torch.set_mode, KILN_TORCH_MODES).
Operators are for inference: nothing is differentiated. A refused argument raises kiln.Error.
"""

from ._attention import attn_decode_paged, attn_prefill
from ._modes import seal, service, set_mode, use_service
from ._operators import (
    act_and_mul,
    act_and_mul_group_fp8,
    amax,
    append_paged_kv,
    append_paged_kv_by_table,
    fp8_quant,
    fp8_quant_group,
    fp8_quant_tensor,
    fp8_quant_token,
    fused_add_rms_norm,
    moe_align,
    rms_norm,
    rope,
    rope_,
    softmax,
    topk_gate,
)
from ._plans import PagedDecode, RaggedPrefill
from ._recurrent import attn_merge, delta_recurrent, rwkv7_kprep, rwkv7_out, rwkv7_shift_mix, wkv7_recurrent
from ._registry import Template, operator, specialize

__all__ = [
    "PagedDecode",
    "RaggedPrefill",
    "Template",
    "act_and_mul",
    "act_and_mul_group_fp8",
    "amax",
    "append_paged_kv",
    "append_paged_kv_by_table",
    "attn_decode_paged",
    "attn_merge",
    "attn_prefill",
    "delta_recurrent",
    "fp8_quant",
    "fp8_quant_group",
    "fp8_quant_tensor",
    "fp8_quant_token",
    "fused_add_rms_norm",
    "moe_align",
    "operator",
    "rms_norm",
    "rope",
    "rope_",
    "rwkv7_kprep",
    "rwkv7_out",
    "rwkv7_shift_mix",
    "seal",
    "service",
    "set_mode",
    "softmax",
    "specialize",
    "topk_gate",
    "use_service",
    "wkv7_recurrent",
]
