"""`kiln engines hf-kernel`, with the released package kernels."""

import subprocess
import sys

import kiln
import pytest
from kiln.engines import hf_kernel
from kiln.engines.__main__ import main

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")

from torch_support import launching, on_host_memory  # noqa: F401


def test_the_written_kernel_has_every_operator_and_stateless_layers(tmp_path, launching, driver, capsys):
    assert main(["hf-kernel", str(tmp_path)]) == 0
    path = tmp_path / "build" / "torch-cuda"
    assert capsys.readouterr().out == f"{path}\n"
    loaded = kernels.get_local_kernel(path)
    assert set(kiln.torch.operators) < set(loaded.__all__)
    before = driver.launches()
    assert loaded.rms_norm(torch.randn(2, 64), torch.randn(64)).shape == (2, 64)
    for layer, shape in (("RMSNorm", (2, 64)), ("SiluAndMul", (2, 32)), ("GeluAndMul", (2, 32)), ("GeluTanhAndMul", (2, 32))):
        module = getattr(loaded.layers, layer)()
        module.weight, module.variance_epsilon = torch.randn(64), 1e-5
        assert module(torch.randn(2, 64)).shape == shape
    assert driver.launches() == before + 5


def test_a_layer_stands_for_a_models_layer(tmp_path, launching, driver):
    hf_kernel.write(tmp_path)

    @kernels.use_kernel_forward_from_hub("RMSNorm")
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(64)), 1e-5

        def forward(self, hidden_states):
            return hidden_states

    model = torch.nn.Sequential(Norm())
    ours = kernels.LocalLayerRepository(repo_path=tmp_path / "build" / "torch-cuda", layer_name="RMSNorm")
    before = driver.launches()
    with torch.no_grad(), kernels.use_kernel_mapping({"RMSNorm": {"cpu": ours}}, inherit_mapping=False):
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device="cpu")
        model(torch.randn(3, 64))
    assert driver.launches() == before + 1


def test_without_kiln_the_error_says_what_to_install(tmp_path):
    path = hf_kernel.write(tmp_path)
    program = f"import sys; sys.modules['kiln'] = None; sys.path.insert(0, {str(path.parent)!r}); __import__({path.name!r})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode and "pip install kiln" in run.stderr


def test_the_list_names_engines_and_what_is_installed(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(line.split()[1] for line in lines)
    assert main(["--json"]) == 0 and '"schema": "kiln.engines/1"' in capsys.readouterr().out
