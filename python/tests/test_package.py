"""The package without a GPU and without torch: compile, prewarm, errors, counters."""

import ast
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import kiln
import pytest
from kiln import _kiln

BAD = (
    """format = 1
[template]
name = "bad"
source = "bad.cu"
instantiate = "bad<{N}>"
[param.N]
kind = "int"
range = [1, 9]
[[arg]]
name = "x"
type = "ptr<void>"
[launch]
grid = ["1"]
block = ["1"]
""",
    "template <int N> __global__ void bad(void* x) { no_such_name; }",
)


def heavy(name, statements):
    """A template whose compile takes a while."""
    body = "".join(f"y += __sinf(y * {i}.0f + N);" for i in range(statements))
    manifest = BAD[0].replace('"bad', f'"{name}').replace("ptr<void>", "ptr<f32>").replace("bad<", f"{name}<")
    return manifest, f"template <int N> __global__ void {name}(float* x) {{ float y = *x; {body} *x = y; }}"


def test_an_import_loads_only_what_every_process_needs():
    program = "import sys; before = set(sys.modules); import kiln; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert not {"importlib.metadata", "email", "multiprocessing.util", "kiln.ops", "torch"} & set(loaded), loaded


def test_compile_needs_no_gpu_and_the_second_time_no_compiler(service):
    image = service.compile("rms_norm", T="bf16", H=4096, arch="sm_90a")
    assert image.cubin[:4] == b"\x7fELF" and image.arch == "sm_90a" and len(image.key) == 64
    assert image.specialization.startswith("rms_norm T=bf16 H=4096")
    assert image.outcome in ("compiled", "disk", "memory")
    assert service.compile("rms_norm", T="bf16", H=4096, arch="sm_90a").outcome in ("memory", "disk")


def test_an_image_has_bytes_and_a_size(service):
    image = service.compile("rms_norm", T="bf16", H=4096, arch="sm_90a")
    assert image.bytes() == image.cubin and image.size() == len(image.cubin)


def test_templates_come_from_texts_or_from_a_path(tmp_path):
    manifest, source = heavy("from_path", 1)
    (tmp_path / "from_path.toml").write_text(manifest.replace("bad.cu", "from_path.cu"))
    (tmp_path / "from_path.cu").write_text(source)
    for path in (tmp_path, str(tmp_path / "from_path.toml")):
        with kiln.Service() as service:
            service.add_template(path)
            assert service.compile("from_path", N=1, arch="sm_90a").arch == "sm_90a"
    with kiln.Service() as service:
        service.add_template(manifest, source)
        assert service.compile("from_path", N=1, arch="sm_90a").arch == "sm_90a"
        with pytest.raises(TypeError, match="the text of its source"):
            service.add_template(manifest)


def test_without_a_driver_the_error_says_what_python_writes():
    program = "import kiln\ntry: kiln.Service().open('rms_norm')\nexcept kiln.Error as error: print(error)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KILN_LIBCUDA": "/nonexistent/libcuda.so"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout
    assert said.count("no CUDA driver") == 1 and 'in Python arch="sm_90a"' in said, said


def test_the_package_names_its_cmake_directory():
    done = subprocess.run([sys.executable, "-m", "kiln", "--cmake-dir"], capture_output=True, text=True, check=True)
    directory = pathlib.Path(done.stdout.strip())
    assert directory.parts[-4:] == ("kiln", "lib", "cmake", "kiln")
    assert (directory / "kilnConfig.cmake").is_file()


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
def test_cmake_finds_the_library_and_the_headers_in_the_package(tmp_path):
    done = subprocess.run([sys.executable, "-m", "kiln", "--cmake-dir"], capture_output=True, text=True, check=True)
    version = ".".join(kiln.__version__.split(".")[:2])
    (tmp_path / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.16)
project(engine LANGUAGES NONE)
find_package(kiln {version} CONFIG REQUIRED COMPONENTS shared headers)
get_target_property(library kiln::kiln LOCATION)
get_target_property(headers kiln::headers INTERFACE_INCLUDE_DIRECTORIES)
foreach(file ${{library}} ${{headers}}/kiln/kiln.hpp)
  if(NOT EXISTS ${{file}})
    message(FATAL_ERROR "${{file}} does not exist")
  endif()
endforeach()
"""
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dkiln_DIR={done.stdout.strip()}"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_parameters_by_position_and_by_name_are_the_same(service):
    template = service.open("rms_norm", arch="sm_90a")
    assert template.compile("f32", 64).key == template.compile(T="f32", H=64).key == template.compile("f32", 64, None, False).key
    with pytest.raises(kiln.Error, match="not both"):
        template.compile("f32", H=64)


def test_prewarm_reports_what_it_did(service):
    seen = []
    rows = [{"template": "rms_norm", "T": "f16", "H": [64, 128]}]
    done = service.prewarm(rows, arch=["sm_80", "sm_90a"], progress=seen.append)
    assert (done.total, done.done, done.failed) == (4, 4, 0) and done.compiled == 4
    assert seen[-1].done == seen[-1].total == 2
    assert service.prewarm(rows, arch=["sm_80", "sm_90a"]).compiled == 0
    with kiln.Service() as other:
        again = other.prewarm(rows, arch="sm_80")  # a put that is not on disk yet is waited for
        assert again.disk + again.waited == 2 and again.compiled == 0


def test_prewarm_takes_a_plan_as_text_and_as_a_file(service, tmp_path):
    plan = '[[prewarm]]\ntemplate = "softmax"\nT = "f32"\nH = 64\n'
    file = tmp_path / "plan.toml"
    file.write_text(plan)
    assert service.prewarm(plan, arch="sm_80").done == 1
    assert service.prewarm(file, arch="sm_80").done == 1
    with pytest.raises(kiln.Error, match="nothing_like_it"):
        service.prewarm([{"template": "nothing_like_it"}])
    with pytest.raises(ValueError, match=r"arch = \[\]: expected an arch"):
        service.prewarm(plan, arch=[])


@pytest.mark.parametrize("wheel", [False, True])
def test_a_wheel_without_nvrtc_names_its_extra(tmp_path, monkeypatch, wheel):
    monkeypatch.setattr(kiln._errors, "_comes_from_a_wheel", lambda: wheel)
    service = kiln.Service(cuda_home=tmp_path / "none", cache_dir=tmp_path / "cache", hermetic=True)
    with service, pytest.raises(kiln.Error, match="no NVRTC found") as caught:
        service.compile("rms_norm", T="bf16", H=64)
    assert caught.value.code == kiln.Code.no_compiler
    assert ('pip install "kiln[nvrtc]"' in str(caught.value)) is wheel


def test_errors_say_what_and_which(service):
    for call, code, text in [
        (lambda: service.open("rms_nrom", arch="sm_90a"), kiln.Code.unknown_template, "rms_nrom"),
        (lambda: service.compile("rms_norm", T="bf16", H=0), kiln.Code.invalid_value, "1 to 1048576"),
        (lambda: service.compile("rms_norm", T="bf16", WIDTH=8), kiln.Code.unknown_parameter, "WIDTH"),
        (lambda: service.compile("rms_norm", T="bf16", H=4096, VEC=8, THREADS=48), kiln.Code.requirement, "THREADS"),
    ]:
        with pytest.raises(kiln.Error, match=text) as caught:
            call()
        assert caught.value.code == code
    with pytest.raises(TypeError, match="no value of a parameter"):
        service.compile("rms_norm", T=object(), H=4096)


def test_a_compile_error_has_the_compilers_log(service):
    service.add_template(*BAD)
    with pytest.raises(kiln.CompileError, match="no_such_name") as caught:
        service.compile("bad", N=1)
    assert caught.value.code == kiln.Code.compile_failed
    assert "no_such_name" in caught.value.log and caught.value.specialization == "bad N=1" and caught.value.options


def test_others_run_while_one_compiles(service):
    service.add_template(*heavy("slow", 2000))
    turns, done = 0, threading.Event()
    thread = threading.Thread(target=lambda: (service.compile("slow", N=1), done.set()))
    thread.start()
    start = time.monotonic()
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    took = time.monotonic() - start
    assert took > 0.1, "too quick to tell"
    # A compile that holds the GIL leaves one or two turns. How many there are otherwise depends on the machine.
    assert turns > 5, f"{turns} turns of 1 ms in {took:.2f} s: the compile held the GIL"


def test_numpy_and_names_of_other_libraries_are_element_types(service):
    numpy = pytest.importorskip("numpy")
    template = service.open("rms_norm", arch="sm_90a")
    assert (
        template.compile(numpy.float32, 64).key
        == template.compile(numpy.dtype("float32"), 64).key
        == template.compile("f32", 64).key
    )


def test_stats_count(service):
    before = service.stats()["compiles"]
    service.compile("rms_norm", T="f32", H=72)
    assert service.stats()["compiles"] == before + 1


def test_a_closed_service_says_so():
    with kiln.Service() as service:
        template = service.open("rms_norm", arch="sm_90a")
    assert service.closed
    for call in (lambda: template.compile("f32", 64), lambda: service.open("rms_norm", arch="sm_90a"), service.stats, service.seal):
        with pytest.raises(kiln.Error, match="closed"):
            call()
    service.close()


def test_what_was_compiled_last_is_on_disk_when_the_process_ends(tmp_path):
    program = "import kiln; s = kiln.Service(); print(s.compile('rms_norm', T='f32', H=96, arch='sm_80').outcome)"
    environment = os.environ | {"KILN_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [r.stdout.strip() for r in runs] == ["compiled", "disk"], [r.stderr for r in runs]
    assert not any(r.stderr for r in runs)


def test_works_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None; import kiln; kiln.Service().compile('rms_norm', T='f32', H=64); print('done')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout == "done\n"


def test_codes_are_the_librarys():
    header = (pathlib.Path(__file__).resolve().parents[2] / "include/kiln/error.hpp").read_text()
    body = header.split("enum class Errc")[1].split("{", 1)[1].split("};")[0]
    found = {name: int(value) for name, value in re.findall(r"(\w+) =\s+(\d+),", body)}
    assert found.pop("ok") == 0
    assert found == {code.name: int(code) for code in kiln.Code}


def test_stubs_have_what_the_extension_has():
    stub = ast.parse((pathlib.Path(kiln.__file__).parent / "_kiln.pyi").read_text())
    declared = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            declared[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            declared[node.target.id] = None
    real = {n: v for n, v in vars(_kiln).items() if not n.startswith("_")}
    assert set(declared) == set(real)
    for name, members in declared.items():
        if members is not None:
            public = {n for n in vars(real[name]) if not n.startswith("_")}
            assert {m for m in members if not m.startswith("_")} == public, name


def test_public_names_are_documented():
    for name in kiln.__all__:
        thing = getattr(kiln, name)
        if inspect.isclass(thing) and thing.__module__ == "kiln._service":
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"


def test_a_forked_child_finds_the_package_locks_free():
    """A thread of the parent holds them at the fork. The alarm ends a child that is stuck."""
    program = """
import kiln.caches._settings, kiln.ops, os, signal, threading
locks = [kiln._default.state.lock, kiln.ops._lock, kiln.caches._settings._lock]
taken = threading.Event()

def hold():
    with locks[0], locks[1], locks[2]:
        taken.set()
        threading.Event().wait()

with locks[0]:
    if (child := os.fork()) == 0:
        signal.alarm(60)
if child == 0:
    with locks[0]:  # free, also after a fork by the thread that held it
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
threading.Thread(target=hold, daemon=True).start()
assert taken.wait(300)
if (child := os.fork()) == 0:
    signal.alarm(60)
    with locks[0], locks[1], locks[2]:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
