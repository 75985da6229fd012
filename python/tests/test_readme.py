"""The README's Python example as it is printed: on the fake driver with arrays in host memory, and on a GPU."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def example():
    section = (ROOT / "README.md").read_text().split("## From Python")[1].split("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(found) == 1 and len(found[0].strip().splitlines()) <= 12
    return found[0]


def test_the_example_runs(driver, host_memory):
    from kiln.torch import _registry

    _registry.implement("CPU")
    before = driver.launches()
    names = {}
    exec(example().replace('device="cuda"', 'device="cpu"'), names)
    assert driver.launches() == before + 2, "the kernel, and the operator"
    launches = [driver.launch(i)[0].kernel for i in (-2, -1)]
    assert launches[0] == launches[1] and b"rms_norm" in launches[0]
    stats = names["service"].stats()
    assert stats["compiles"] + stats["disk_hits"] >= 1 and stats["loads"] == 1
    names["service"].close()


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def test_docs_make_an_operator_of_a_template_of_ones_own(driver, host_memory):
    """The operator of docs/guide/pytorch/own-operator.md launches the template of docs/guide/write-a-template.md.
    Both pages print them whole.
    """
    import kiln
    import kiln.torch
    from kiln.torch import _registry

    with kiln.Service() as service:
        manifest = "\n".join(block for block in blocks("docs/guide/write-a-template.md", "toml"))
        service.add_template(manifest[: manifest.index("[reference]")], blocks("docs/guide/write-a-template.md", "cpp")[0])
        kiln.torch.use_service(service)
        program = next(block for block in blocks("docs/guide/pytorch/own-operator.md", "py") if "kiln.torch.operator" in block)
        made, used = program.strip().rsplit("\n\n", 1)
        names = {"kiln": kiln, "torch": torch}
        exec(made, names)
        known = _registry._operators["mine::add_bias_gelu"]
        known.library.impl("add_bias_gelu", known.real, "CPU")
        names |= {"x": torch.randn(6, 64), "bias": torch.randn(64)}
        before = driver.launches()
        exec(used.replace("fullgraph=True", 'fullgraph=True, backend="aot_eager"'), names)
        assert names["y"].shape == (6, 64) and driver.launches() == before + 1 and b"add_bias_gelu" in driver.launch()[0].kernel


def test_docs_attend_with_a_plan(driver, host_memory):
    """The attention of docs/guide/pytorch/attention.md, compiled: planned twice, traced once."""
    import functools

    import kiln
    import kiln.torch
    import torch._dynamo.testing
    from kiln.torch import _registry

    _registry.implement("CPU")
    program = next(block for block in blocks("docs/guide/pytorch/attention.md", "py") if "Attention" in block)
    with kiln.Service() as service:
        kiln.torch.use_service(service)
        k_cache, v_cache = torch.zeros(2, 40, 16, 8, 128).bfloat16()
        names = {
            "torch": torch,
            "kv_indptr": [0, 3, 5],
            "lengths": [48, 18],
            "qo_indptr": [0, 1, 2],
            "kv_indices": torch.arange(40, dtype=torch.int32),
            "k_cache": k_cache,
            "v_cache": v_cache,
            "kiln": type(
                "kiln", (), {"torch": type("torch", (), {"Attention": functools.partial(kiln.torch.Attention, device="cpu")})}
            ),
        }
        exec(program, names)
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        torch._dynamo.reset()
        step = torch.compile(names["step"], fullgraph=True, backend=counter)
        before = driver.launches()
        for _ in range(2):
            o, lse = step(torch.randn(2, 32, 128).bfloat16(), *torch.randn(2, 2, 8, 128).bfloat16(), torch.tensor([47, 65]))
            names["attention"].plan([0, 1, 2], last_page_len=[3, 4])
        assert o.shape == (2, 32, 128) and lse.shape == (2, 32) and driver.launches() == before + 4 and counter.frame_count == 1
    kiln.torch.use_service(kiln.Service())
