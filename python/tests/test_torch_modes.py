"""How each mode of an operator treats a kernel that is not there."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch
from torch_support import launching, on_host_memory  # noqa: F401


def sealed_service():
    service = kiln.Service(mode="sealed")
    kiln.torch.use_service(service)
    service.prepare([{"template": "rms_norm", "T": "f32", "H": 64}])
    service.seal()
    return service


def test_sealed_launches_what_is_ready_and_names_what_is_not(launching, driver):
    with sealed_service() as service:
        torch.ops.kiln.rms_norm(torch.randn(2, 64), torch.randn(64))
        with pytest.raises(kiln.NotReady, match="rms_norm"):
            torch.ops.kiln.rms_norm(torch.randn(2, 152), torch.randn(152))
        assert service.stats()["compiles"] <= 1 and 'H = "152"' in service.missing()


def test_one_operator_may_compile_after_the_seal(launching):
    with sealed_service():
        kiln.torch.set_mode("rms_norm", "jit")
        try:
            torch.ops.kiln.rms_norm(torch.randn(2, 160), torch.randn(160))
        finally:
            kiln.torch.set_mode("rms_norm", None)
        kiln.torch.set_mode("kiln::rms_norm", "warn")
        try:
            with pytest.warns(UserWarning, match="kiln::rms_norm: rms_norm .* after the seal"):
                torch.ops.kiln.rms_norm(torch.randn(2, 168), torch.randn(168))
        finally:
            kiln.torch.set_mode("rms_norm", None)


def test_one_operator_may_be_sealed_alone(launching, tmp_path):
    with kiln.Service(cache_dir=tmp_path) as service:  # where no earlier run has left a kernel
        kiln.torch.use_service(service)
        kiln.torch.set_mode("rms_norm", "sealed")
        try:
            with pytest.raises(kiln.NotReady, match="kiln::rms_norm is sealed"):
                torch.ops.kiln.rms_norm(torch.randn(2, 176), torch.randn(176))
            assert service.stats()["compiles"] == 0
            torch.ops.kiln.softmax(torch.randn(2, 176))
        finally:
            kiln.torch.set_mode("rms_norm", None)
        torch.ops.kiln.rms_norm(torch.randn(2, 176), torch.randn(176))
    with pytest.raises(ValueError, match="jit, warn, sealed"):
        kiln.torch.set_mode("rms_norm", "off")


def test_the_environment_sets_modes_of_single_operators():
    program = "import kiln.torch as k; k.service(); print(k._modes.mode_of('kiln::rms_norm'), k._modes.mode_of('mine::x'), k._modes.mode_of('kiln::rope'))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def run(value):
        return subprocess.run(
            [sys.executable, "-c", program], env=environment | {"KILN_TORCH_MODES": value}, capture_output=True, text=True
        )

    good = run("rms_norm=sealed, mine::x=jit")
    assert good.stdout == "sealed jit None\n" and "KILN_TORCH_MODES" not in good.stderr  # no warning
    assert "expected OPERATOR=MODE" in run("rms_norm").stderr
