"""Calls of fused_moe, for tests with fake tensors, the fake driver and a GPU, as in operator_cases."""

import torch
from kiln.torch import quantize_int4, quantize_mxfp4
from operator_cases import BF16, E4M3, F16, F32, I32, I64, tensor

EXPERTS, HIDDEN, INNER = 16, 128, 64
#: launches of each case
LAUNCHES = {
    "logits": 4,
    "ids": 4,
    "deepseek": 4,
    "gpt-oss": 4,
    "llama4": 4,
    "ungated": 4,
    "map": 4,
    "many": 5,
    "many-of-expert": 5,
    "many-wide": 6,
    "fp8": 4,
    "fp8-blocks": 6,
    "fp8-many": 6,
    "four-bits-mxfp4": 4,
    "four-bits-int4": 4,
    "four-bits-many": 5,
}


def weight(d, *shape, dtype=BF16):
    """Numbers whose products with rows of normal numbers are about as large as these."""
    return (torch.randn(*shape, device=d) * shape[-1] ** -0.5).to(dtype)


def different_ids(d, tokens, k, experts=EXPERTS, dtype=I32):
    return torch.rand(tokens, experts, device=d).argsort(1)[:, :k].to(dtype)


def _weights(d, experts=EXPERTS, inner=INNER, hidden=HIDDEN, gated=True, dtype=BF16):
    return weight(d, experts, (1 + gated) * inner, hidden, dtype=dtype), weight(d, experts, hidden, inner, dtype=dtype)


def _logits(d, tokens=6, experts=EXPERTS, hidden=HIDDEN, k=4, dtype=BF16, **weights):
    x = tensor(d, tokens, hidden, dtype=dtype)
    return (x, *_weights(d, hidden=hidden, dtype=dtype, **weights), tensor(d, tokens, experts, dtype=dtype), None, None, k)


def _ids(d, tokens=6, k=4, experts=EXPERTS, local=EXPERTS, dtype=I32):
    x, (w13, w2) = tensor(d, tokens, HIDDEN), _weights(d, experts=local)
    return (x, w13, w2, None, torch.rand(tokens, k, device=d), different_ids(d, tokens, k, experts, dtype))


def _map(d, experts=EXPERTS, local=4):
    """Every fourth expert is here."""
    at = torch.arange(experts, dtype=I32, device=d)
    return torch.where(at % (experts // local) == 1, at // (experts // local), -1).to(I32)


def _deepseek(d):
    named = {
        "score": "sigmoid",
        "correction_bias": tensor(d, EXPERTS, dtype=F32) * 0.1,
        "groups": 4,
        "topk_groups": 2,
        "scale": 2.5,
        "shared": tensor(d, 6, HIDDEN),
        "shared_gate": tensor(d, 6, 1),
        "residual": tensor(d, 6, HIDDEN),
    }
    return _logits(d), named


def _gpt_oss(d):
    named = {"act": "swigluoai", "bias13": tensor(d, EXPERTS, 2 * INNER), "bias2": tensor(d, EXPERTS, HIDDEN), "limit": 2.0}
    return _logits(d), named


def _fp8(d, tokens=6, k=4, experts=EXPERTS):
    x, logits = tensor(d, tokens, 256), tensor(d, tokens, experts)
    w13, w2 = tensor(d, experts, 256, 256).to(E4M3), tensor(d, experts, 256, 128).to(E4M3)
    scales = {
        "w13_scale": (torch.rand(experts, 2, 2, device=d) + 0.5) / 16,
        "w2_scale": (torch.rand(experts, 2, 1, device=d) + 0.5) / 12,
    }
    return (x, w13, w2, logits, None, None, k), scales


def _four_bits(d, mx, tokens=6, hidden=HIDDEN, inner=96, k=4, zeros=False):
    """Weights of 4 bits, whose K has tails for tiles of 64."""
    x, logits = tensor(d, tokens, hidden), tensor(d, tokens, EXPERTS)
    w13, w2 = _weights(d, hidden=hidden, inner=inner)
    w13, w2 = (quantize_mxfp4(w13), quantize_mxfp4(w2)) if mx else (quantize_int4(w13, 32), quantize_int4(w2, 64))
    named = {"w13_scale": w13.scales, "w2_scale": w2.scales}
    if mx:
        named |= {"act": "swigluoai", "bias13": tensor(d, EXPERTS, 2 * inner), "bias2": tensor(d, EXPERTS, hidden)}
    if zeros:
        named["w13_zero"] = torch.randint(0, 16, w13.scales.shape, dtype=torch.uint8, device=d)
    return (x, w13.codes, w2.codes, logits, None, None, k), named


def named_cases():
    """{name: make} with make(device) -> (arguments, named)."""
    return {
        "logits": lambda d: (_logits(d), {}),
        "ids": lambda d: (_ids(d, dtype=I64), {"residual": tensor(d, 6, HIDDEN)}),
        "deepseek": _deepseek,
        "gpt-oss": _gpt_oss,
        "llama4": lambda d: (_logits(d, k=1), {"score": "sigmoid", "renormalize": False, "weight_on_input": True}),
        "ungated": lambda d: (_logits(d, gated=False, dtype=F16), {"gated": False, "act": "relu_squared"}),
        "map": lambda d: (_ids(d, local=4), {"expert_map": _map(d), "order": "up_first", "act": "gelu_tanh"}),
        "many": lambda d: (_logits(d, tokens=600, k=2), {}),
        "many-of-expert": lambda d: (_logits(d, tokens=1100, k=2), {}),
        "many-wide": lambda d: (_logits(d, tokens=1100, k=2, inner=1024), {}),
        "fp8": lambda d: _fp8(d),
        "fp8-blocks": lambda d: _fp8(d, tokens=600, k=2, experts=8),
        "fp8-many": lambda d: _fp8(d, tokens=600, k=2, experts=2),
        "four-bits-mxfp4": lambda d: _four_bits(d, True, hidden=144),
        "four-bits-int4": lambda d: _four_bits(d, False, zeros=True),
        "four-bits-many": lambda d: _four_bits(d, True, tokens=600, k=2),
    }


def cases():
    return [("fused_moe", make) for make in named_cases().values()]
