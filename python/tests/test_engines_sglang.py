"""kiln.engines.sglang on the released SGLang's layers (engines-requirements.txt), without a GPU: fake tensors."""

import os

import engines_support
import pytest
import torch

if not engines_support.has("sglang"):
    pytest.skip("sglang is not installed", allow_module_level=True)
import kiln.engines.sglang as adapter

adapter.register()  # without KILN_SGLANG
UNSET = len(adapter.explain().rows), adapter._adapter
os.environ["KILN_SGLANG"] = "1"
os.environ["KILN_ENGINES_OFF"] = "GeluAndMul"
E = engines_support.sglang()
adapter.register()
adapter.register()
PLUGIN = E.spec.KernelBackend.PLUGIN


def reasons(layer):
    return adapter._adapter.notes.met[layer._kiln_number]


def runs(layer, *arguments, **named):
    return engines_support.traced(layer, *arguments, backend=PLUGIN, **named)[0]


def test_does_nothing_unless_switched_on():
    assert UNSET == (0, None)


@pytest.mark.parametrize("name", ["RMSNorm", "GemmaRMSNorm"])
def test_norms(name):
    norm = getattr(E.norm, name)(64)
    x = torch.ones(3, 64)
    assert runs(norm, x) == ["rms_norm"]
    assert runs(norm, x, torch.ones(3, 64)) == ["fused_add_rms_norm"]
    assert runs(norm, x, torch.ones(3, 64), torch.ones(3, 64)) == ["fused_add_rms_norm"]
    assert reasons(norm) == [""]


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"var_hidden_size": 32}, "the variance is that of a part of the row"),
        ({"cast_x_before_out_mul": True}, "cast_x_before_out_mul rounds before the weight"),
        ({"override_orig_dtype": torch.float32}, "override_orig_dtype is set"),
        ({"weight_dtype": torch.bfloat16}, "x is torch.float32, the weight is torch.bfloat16"),
    ],
)
def test_norms_that_fall_through(options, reason, monkeypatch):
    monkeypatch.setattr(E.norm.RMSNorm, "forward_cuda", E.norm.RMSNorm.forward_native)
    norm = E.norm.RMSNorm(64, **options)
    assert runs(norm, torch.ones(3, 64)) == []
    assert reasons(norm) == [reason]


def test_a_subclass_keeps_its_own_forward():
    class Doubled(E.norm.RMSNorm):
        def forward_cuda(self, x, residual=None, post_residual_addition=None, quant_linear=None):
            return x * 2

    norm = Doubled(64)
    names, out = engines_support.traced(norm, torch.ones(3, 64), backend=PLUGIN)
    assert names == [] and out.shape == (3, 64)


def test_a_fused_quantisation_stays_with_sglang(monkeypatch):
    monkeypatch.setattr(E.norm.RMSNorm, "forward_cuda", lambda self, x, *rest: x)
    assert runs(E.norm.RMSNorm(64), torch.ones(3, 64), quant_linear=torch.nn.Linear(4, 4)) == []


def test_the_plugin_backend_is_chosen_on_cuda_only():
    norm, gelu = E.norm.RMSNorm(64), E.activation.GeluAndMul()
    assert norm._auto_backend_candidates() == (PLUGIN,)
    assert norm.capabilities[PLUGIN] == {E.spec.CapabilityRequirement.CUDA}
    assert gelu._auto_backend_candidates() == ()


def test_a_variable_turns_a_layer_off():
    off = [row for row in adapter.explain().rows if "KILN_ENGINES_OFF" in row.reason]
    assert [(row.place, row.operator) for row in off] == [("GeluAndMul", "act_and_mul")]
    names, out = engines_support.traced(E.activation.SiluAndMul(), torch.ones(2, 5, 32), backend=PLUGIN)
    assert names == ["act_and_mul"] and out.shape == (2, 5, 16)
