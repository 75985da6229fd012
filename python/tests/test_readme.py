"""The README's Python example, as it is printed; on the fake driver with arrays in host memory, on a GPU as it stands."""

import os
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
    import kiln.torch
    from kiln.torch import _registry

    _registry.implement("CPU")
    before = driver.launches()
    names = {}
    exec(example().replace('device="cuda"', 'device="cpu"'), names)
    assert driver.launches() == before + 2, "the kernel, and the operator"
    launches = [driver.launch(i)[0].kernel for i in (-2, -1)]
    assert launches[0] == launches[1] and b"rms_norm" in launches[0]
    assert names["service"].stats()["compiles"] >= 1 and os.environ["KILN_CACHE_DIR"]
    names["service"].close()
