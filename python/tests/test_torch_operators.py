"""Each operator of kiln.torch without a GPU: tracing and calls give the same shapes,
one launch a call, opcheck.
"""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import attention_cases
import kiln
import kiln.torch
import recurrent_cases
import torch._dynamo.testing
from kiln import _kiln
from kiln.torch import _attention, _by_length, _generated, _registry
from operator_cases import cases, with_rows
from torch._subclasses import FakeTensorMode
from torch_support import as_tuple, launching, on_host_memory  # noqa: F401

CASES = cases() + recurrent_cases.cases() + attention_cases.cases()
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"


def described(results):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in as_tuple(results)]


def test_every_shipped_template_has_an_operator():
    shipped = {file.stem for file in TEMPLATES.glob("*/*.toml") if not file.stem.startswith("kiln_")}
    assert {one["template"] for one in _generated.descriptions.values()} == shipped


def test_every_operator_has_a_case():
    names = {name for name in _registry._operators if name.startswith("kiln::")}
    elsewhere = {"kiln::fused_moe"} | {f"kiln::{name}_into" for name in _attention._INTO}  # test_torch_moe, test_torch_attention
    assert {f"kiln::{name}" for name, _ in CASES} == names - elsewhere


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_tracing_gives_the_shapes_of_a_call_and_touches_neither_driver_nor_cache(name, make, launching, driver):
    operator = getattr(torch.ops.kiln, name)
    calls = driver.calls()
    with FakeTensorMode():
        arguments, named = make("cuda")
        results = operator(*arguments, **named)
    assert driver.calls() == calls and not any(launching.stats().values())
    assert all(t.device.type == "cuda" for t in as_tuple(results))
    arguments, named = make("cpu")
    assert described(operator(*arguments, **named)) == described(results)


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_no_rows_give_empty_results(name, make, launching):
    """torch gives tensors without elements no address. Rules of templates take null for a tensor that is not given."""
    arguments, named = make("cpu")
    if with_rows(name, arguments, named, 1) is None:
        pytest.skip("the rows are no independent size")
    rows = arguments[2 if "append" in name else 0].shape[0]

    def none_of(value):
        return value[:0].clone() if torch.is_tensor(value) and value.dim() and value.shape[0] == rows else value

    arguments, named = tuple(map(none_of, arguments)), {n: none_of(v) for n, v in named.items()}
    operator = getattr(torch.ops.kiln, name)
    with FakeTensorMode(allow_non_fake_inputs=True):
        traced = described(operator(*arguments, **named))
    assert described(operator(*arguments, **named)) == traced
    assert described(operator(*arguments, **named)) == traced, "a call that was made before"


def member_of(name, arguments, named):
    """The operator that runs a call. The host's memory is on no GPU that has the chunked templates of Hopper."""
    if name not in _by_length.MEMBERS:
        return name
    members, descriptions = _by_length.MEMBERS[name], _generated.descriptions
    chunked = [one for one in members.chunked if one not in _by_length.HOPPER]
    choice = _by_length.Choice({one: descriptions[one] for one in chunked}, descriptions[members.recurrent])
    return choice.pick(choice.given(arguments, named), chunked) or members.recurrent


def written_by(name, driver):
    """The addresses that the last launch, one of this operator, may write to, by its template's manifest.

    A workspace is left out, as the call itself allocates it.
    """
    tomllib = pytest.importorskip("tomllib")
    manifest = tomllib.loads(next(TEMPLATES.glob(f"*/{_generated.descriptions[name]['template']}.toml")).read_text())
    _, values = driver.launch()
    call = {d["name"]: d for d in manifest["arg"]}
    names = manifest["template"].get("arguments", list(call) + [m["name"] for m in manifest.get("tensormap", [])])
    names = manifest.get("arch", {}).get("sm_90a", {}).get("arguments", names)  # of the fake driver's device
    assert len(values) == len(names)
    return {
        int.from_bytes(v, "little")
        for v, name in zip(values, names)
        if not isinstance(name, dict)
        and call.get(name, {}).get("access", "read") != "read"
        and name != manifest.get("work_list", {}).get("workspace")
    } - {0}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_one_call_is_one_launch_that_writes_results_and_what_the_schema_declares(name, make, launching, driver):
    operator = getattr(torch.ops.kiln, name)
    arguments, named = make("cpu")
    before = driver.launches()
    results = as_tuple(operator(*arguments, **named))
    assert driver.launches() == before + 1
    mutated = {
        a.data_ptr() for a, d in zip(arguments, operator.default._schema.arguments) if d.alias_info and d.alias_info.is_write
    }
    assert written_by(member_of(name, arguments, named), driver) == mutated | {t.data_ptr() for t in results}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_opcheck(name, make, launching):
    arguments, named = make("cpu")
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(torch.is_tensor(a) and a.dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu) for a in arguments):
        tests.remove("test_schema")  # does arithmetic on its arguments, and torch has none for fp8 on the CPU
    kiln.torch.specialize(True)  # opcheck's dynamic check makes every size symbolic
    _kiln.zero_outputs(True)  # the fake driver's kernels write nothing, and opcheck compares results
    try:
        torch.library.opcheck(getattr(torch.ops.kiln, name).default, arguments, named, test_utils=tests)
    finally:
        kiln.torch.specialize(False)
        _kiln.zero_outputs(False)


@pytest.mark.parametrize(
    "name, batch, tokens, ends, suits",
    [
        ("wkv7_recurrent", 3, 1, None, "one"),
        ("wkv7_recurrent", 3, 2, None, "any"),
        ("wkv7_recurrent", 1, 3, [0, 1, 2, 3], "decode"),
        ("delta_recurrent", 3, 1, None, "one"),
        ("delta_recurrent", 1, 12, None, "any"),
        ("delta_recurrent", 1, 3, [0, 1, 2, 3], "decode"),
        ("delta_recurrent", 1, 3, [0, 2, 3], "any"),
    ],
)
def test_a_decode_step_gets_the_kernel_that_suits_it(name, batch, tokens, ends, suits, driver, host_memory, tmp_path):
    """Holds for eager and compiled calls, also when the batch's size is symbolic."""
    x = torch.randn(batch, tokens, 2, 16).bfloat16()
    named = {"cu_seqlens": torch.tensor(ends)} if ends else {}
    arguments = (x,) * (6 if name == "wkv7_recurrent" else 3)
    operator = getattr(torch.ops.kiln, name)
    for way in ("eager", "static", "dynamic"):
        record = tmp_path / way
        torch._dynamo.reset()
        with kiln.Service(record=record) as service:
            kiln.torch.use_service(service)
            if way == "dynamic":
                torch._dynamo.mark_dynamic(x, 1 if batch == 1 else 0)
            call = lambda *a: operator(*a, **named)
            (call if way == "eager" else torch.compile(call, backend="aot_eager", fullgraph=True))(*arguments)
        recorded = record.read_text()
        picked = next((name for name in ("decode", "one") if f'FOR = "{name}"' in recorded), "any")
        assert recorded.count("template =") == 1 and picked == suits, recorded
    kiln.torch.use_service(kiln.Service())


def test_a_product_takes_scales_as_the_quantiser_writes_them(launching, driver):
    tomllib = pytest.importorskip("tomllib")
    for rows in (1, 6, 8, 130):
        values, scale = torch.ops.kiln.fp8_quant_group(torch.randn(rows, 512).bfloat16(), column_major=True)
        weight = torch.randn(64, 512).to(torch.float8_e4m3fn)
        before = driver.launches()
        torch.ops.kiln.gemm_fp8(values, weight, scale, torch.rand(1, 4))
        assert driver.launches() == before + 1
        _, arguments = driver.launch()
        names = tomllib.loads((TEMPLATES / "gemm" / "gemm.toml").read_text())["arch"]["sm_90a"]["arguments"]
        given = {name: int.from_bytes(v, "little") for name, v in zip(names, arguments)}
        assert given["stride_scale_a"] == -(-rows // 4) * 4 and given["scale_a"] == scale.data_ptr(), "no copy"


def test_a_pool_with_gaps_between_its_states_is_written_in_place(launching, driver):
    """Engines keep the states of a layer inside larger pages. No state is copied."""
    tomllib = pytest.importorskip("tomllib")
    x, pool = torch.randn(3, 1, 2, 64).bfloat16(), torch.zeros(5, 9000).bfloat16()[:, : 2 * 64 * 64].unflatten(1, (2, 64, 64))
    for name, arguments in (("delta_recurrent", (x, x, x)), ("wkv7_recurrent", (x,) * 5)):
        named = {"kk": x} if name == "wkv7_recurrent" else {}
        getattr(torch.ops.kiln, f"{name}_pool")(*arguments, pool, torch.zeros(3, dtype=torch.int32), **named)
        _, values = driver.launch()
        names = [a["name"] for a in tomllib.loads((TEMPLATES / "recurrent" / f"{name}.toml").read_text())["arg"]]
        given = {name: int.from_bytes(v, "little") for name, v in zip(names, values)}
        assert given["initial_state"] == given["final_state"] == pool.data_ptr()
        assert (given["pool"], given["stride_state"]) == (5, 9000)


def test_tracing_makes_no_service():
    """Runs in a new process, where no other test has made a service."""
    program = """
import torch, kiln.torch
from kiln import _default
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    torch.ops.kiln.rms_norm(torch.empty(4, 64, device="cuda"), torch.empty(64, device="cuda"))
print(_default.state.service)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KILN_LIBCUDA": "/nonexistent/libcuda.so"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout == "None\n"


def test_no_graph_break_in_any_operator(launching):
    for name, make in CASES:
        torch._dynamo.reset()
        arguments, named = make("cpu")
        explained = torch._dynamo.explain(lambda *a: getattr(torch.ops.kiln, name)(*a, **named))(*arguments)
        assert (explained.graph_count, explained.graph_break_count) == (1, 0), name


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_other_numbers_of_rows_are_traced_once_more_and_never_again(name, make, launching):
    arguments, named = make("cpu")
    calls = [with_rows(name, arguments, named, times) for times in (1, 2, 3, 5)]
    if calls[0] is None:
        pytest.skip("its rows are those of a plan or of cu_seqlens: test_torch_attention, gpu_models")
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    operator = getattr(torch.ops.kiln, name)
    compiled = torch.compile(lambda a, n: operator(*a, **n), backend=counter, fullgraph=True)
    for a, n in calls:
        assert described(compiled(a, n)) == described(operator(*a, **n))
    assert counter.frame_count == 2
