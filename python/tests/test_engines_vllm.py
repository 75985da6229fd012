"""kiln.engines.vllm on the released vLLM's layers (engines-requirements.txt), without a GPU: fake tensors."""

import os
import types

import engines_support
import pytest
import torch

if not engines_support.has("vllm"):
    pytest.skip("vllm is not installed", allow_module_level=True)
import kiln.engines.vllm as adapter

adapter.register()  # without KILN_VLLM
UNSET = len(adapter.explain().rows), adapter._adapter
os.environ["KILN_VLLM"] = "1"
E = engines_support.vllm()
adapter.register()
adapter.register()
BF16 = torch.bfloat16
SHAPE = E.quant.GroupShape


def reasons(layer):
    return [row.reason for row in adapter.explain(torch.nn.ModuleList([layer])).rows]


def runs(layer, *arguments, **named):
    return engines_support.traced(layer, *arguments, **named)[0]


def test_does_nothing_unless_switched_on():
    assert UNSET == (0, None)


def test_refuses_another_value_of_the_switch(monkeypatch):
    monkeypatch.setenv("KILN_VLLM", "yes")
    with pytest.raises(ValueError, match="KILN_VLLM is 'yes', expected 0, 1 or seal"):
        adapter.switch()


@pytest.mark.parametrize("layer, gemma", [("RMSNorm", False), ("GemmaRMSNorm", True)])
def test_norms(layer, gemma):
    norm = getattr(E.norm, layer)(64).bfloat16()
    assert type(norm).__name__ == f"Kiln{layer}"
    names, out = engines_support.traced(norm, torch.ones(3, 64, dtype=BF16))
    assert names == ["rms_norm"] and out.shape == (3, 64)
    names, (out, total) = engines_support.traced(norm, torch.ones(3, 64, dtype=BF16), torch.ones(3, 64, dtype=BF16))
    assert names == ["fused_add_rms_norm"] and out.shape == total.shape == (3, 64)
    assert reasons(norm) == [""]


def test_norms_that_fall_through():
    x = torch.ones(3, 64)
    other, part, bare = E.norm.RMSNorm(64).bfloat16(), E.norm.RMSNorm(64, var_hidden_size=32), E.norm.RMSNorm(64, has_weight=False)
    for layer in (other, part, bare):
        assert runs(layer, x) == []
    assert reasons(other) == ["x is torch.float32, the weight is torch.bfloat16"]
    assert reasons(part) == ["the variance is that of a part of the row"]
    assert reasons(bare) == ["the layer has no weight"]


def test_activations():
    for layer in (E.activation.SiluAndMul(), E.activation.GeluAndMul("none"), E.activation.GeluAndMul("tanh")):
        names, out = engines_support.traced(layer, torch.ones(2, 5, 32))
        assert names == ["act_and_mul"] and out.shape == (2, 5, 16)


def test_rotary_embeddings():
    q, k, p = torch.ones(3, 4 * 64), torch.ones(3, 64), torch.arange(3)
    for layer in (
        E.rotary.RotaryEmbedding(64, 64, 32, 1e4, True, torch.float32),
        E.rotary.RotaryEmbedding(64, 32, 32, 1e4, False, torch.float32),
        E.rotary.Llama3RotaryEmbedding(64, 64, 32, 1e4, True, torch.float32, 8.0, 1.0, 4.0, 8192),
    ):
        names, (q_out, k_out) = engines_support.traced(layer, p, q, k)
        assert names == ["rope_"] and q_out.shape == q.shape and k_out.shape == k.shape
        with pytest.raises((AttributeError, NotImplementedError)):
            engines_support.traced(layer, p, q, None)  # vLLM's own kernel, which is not on this machine
        assert reasons(layer) == ["", "there is no key"]


@pytest.mark.parametrize(
    "operator, options, extra",
    [
        ("fp8_quant", {"static": True, "group_shape": SHAPE.PER_TENSOR}, [torch.ones(1)]),
        ("fp8_quant_tensor", {"static": False, "group_shape": SHAPE.PER_TENSOR}, []),
        ("fp8_quant_token", {"static": False, "group_shape": SHAPE.PER_TOKEN}, []),
        ("fp8_quant_group", {"static": False, "group_shape": SHAPE(1, 128), "use_ue8m0": False}, []),
    ],
)
def test_quantisation(operator, options, extra):
    layer = E.quant.QuantFP8(**options)
    names, (values, scales) = engines_support.traced(layer, torch.ones(6, 256), *extra)
    assert names[-1] == operator and values.dtype == torch.float8_e4m3fn and values.shape == (6, 256)
    expected, expected_scales = layer.forward_native(torch.ones(6, 256), *extra)
    assert values.shape == expected.shape and scales.numel() == expected_scales.numel()


def test_a_registered_layer_is_switched_by_the_engines_own_name():
    E.config.custom_ops[:] = ["none", "+rms_norm"]
    try:
        assert runs(E.norm.RMSNorm(64), torch.ones(2, 64)) == ["rms_norm"]
        silu = E.activation.SiluAndMul(compile_native=False)
        assert runs(silu, torch.ones(2, 64)) == []
        assert reasons(silu) == ["custom_ops does not enable silu_and_mul: vLLM compiles its forward_native"]
    finally:
        E.config.custom_ops[:] = ["all"]


def test_warm_up_has_the_kernels_of_layers_that_know_their_width():
    registry = E.jit_warmup.JitWarmupRegistry(types.SimpleNamespace())
    with registry.activate():
        E.norm.RMSNorm(64)
        E.norm.RMSNorm(64)
        E.rotary.RotaryEmbedding(64, 32, 32, 1e4, False, torch.float32)
    ((kernel, asked),) = registry._registrations.items()
    keys = [dict(key.parameters) for place, named in asked for key in kernel.get_warmup_keys(*place, **named)]
    assert [key.get("H") or key["D"] for key in keys] == [64, 64, 64]
    assert [key.get("FUSED_ADD") for key in keys] == [False, True, None]


def test_compiles_after_the_warm_up_are_named():
    before = {"compiles": 3, "sealed_misses": 0}
    assert adapter._adapter.late(before, before) == []
    assert adapter._adapter.late(before, {"compiles": 4, "sealed_misses": 1}) == [
        "kernel JIT compilation",
        "miss of the sealed service",
    ]


def test_torch_compile_traces_kiln_and_the_reasons():
    norm = E.norm.RMSNorm(64)
    graphs = []
    traced = torch.compile(lambda x: norm(x), fullgraph=True, backend=lambda g, _: graphs.append(g) or (lambda *a: (a[-1],)))
    for dtype in (torch.float32, BF16):
        traced(torch.ones(4, 64, dtype=dtype))
    assert ["kiln" in g.code for g in graphs] == [True, False]
    assert reasons(norm) == ["x is torch.bfloat16, the weight is torch.float32"]
