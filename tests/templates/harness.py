"""Helpers of the tests and benches of the shipped templates: guarded memory, comparison
with float64, and timing.

A template has a module with test_*() functions, which raise to fail, and bench(), which yields Row.
run.py runs them. Timings are compared with a stream of the same bytes and with peers, which are
kernels of other projects.
"""

import dataclasses
import functools
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import typing

import torch
from kiln_library import Kernel, KilnError, add_template, kernel, prefetch, seal, stats, version  # noqa: F401  (for the modules)

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "ue8m0": torch.float8_e8m0fnu,
    "i32": torch.int32,
    "i64": torch.int64,
}
# Allowed relative RMS error against float64, as in the manifests.
TOLERANCE = {"f32": 4e-6, "f16": 5e-4, "bf16": 4e-3, "e4m3": 4e-2}

# ---- data ---------------------------------------------------------------------------------------------------------------------------------


def normal(*shape, dtype="bf16", scale=1.0):
    """New normal random numbers."""
    return (torch.randn(*shape, device="cuda", dtype=torch.float32) * scale).to(DTYPES[dtype])


def between_nans(shape, strides, dtype="bf16", scale=1.0):
    """New normal random numbers. The elements that `strides` leave out, and 4 KiB behind the last one, are NaN."""
    size = torch.empty(0, dtype=DTYPES[dtype]).element_size()
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    out = torch.full((span * size + 4096,), 0xFF, dtype=torch.uint8, device="cuda").view(DTYPES[dtype]).as_strided(shape, strides)
    return out.copy_(normal(*shape, dtype=dtype, scale=scale))


class Guarded:
    """A view of `shape` inside a larger allocation, to find writes outside of the view.

    `strides` are in elements; the default is contiguous. The view begins `shift` elements after a
    256-byte boundary. Its elements begin as NaN (floats) or -1 (integers), so that missing writes show.
    All other bytes are 0xa5.
    """

    MARGIN = 1 << 16

    def __init__(self, *shape, dtype="bf16", strides=None, shift=0):
        kind = DTYPES[dtype]
        size = torch.empty(0, dtype=kind).element_size()
        if strides is None:
            strides = [1] * len(shape)
            for d in range(len(shape) - 2, -1, -1):
                strides[d] = strides[d + 1] * shape[d + 1]
        span = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
        self.arena = torch.full(((span + shift) * size + 2 * self.MARGIN,), 0xA5, dtype=torch.uint8, device="cuda")
        inner = self.arena[self.MARGIN + shift * size : self.MARGIN + (shift + span) * size]
        self.bits = inner.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]).as_strided(shape, strides)
        self.bits.fill_(255 if size == 1 else -1)
        self.view = inner.view(kind).as_strided(shape, strides)

    def check(self, what=""):
        """Raises when a byte outside of the view has changed. The view is lost."""
        pattern = {1: 0xA5, 2: 0xA5A5 - (1 << 16), 4: 0xA5A5A5A5 - (1 << 32), 8: 0xA5A5A5A5A5A5A5A5 - (1 << 64)}[
            self.bits.element_size()
        ]
        self.bits.fill_(pattern)
        torch.cuda.synchronize()
        for part in self.arena.split(1 << 30):
            assert bool((part == 0xA5).all()), f"{what}: written outside of the output"


# ---- comparison ---------------------------------------------------------------------------------------------------------------------------


def relative_rms(got, want):
    """||got - want|| / ||want|| in float64.

    Two NaN agree, and so do two equal infinities. Any other pair with one of them makes the result infinite.
    """
    got, want = got.double(), want.double()
    finite = torch.isfinite(got) & torch.isfinite(want)
    same = finite | (got == want) | (got.isnan() & want.isnan())
    if not bool(same.all()):
        return float("inf")
    got, want = torch.where(finite, got, 0.0), torch.where(finite, want, 0.0)
    norm = want.norm()
    return float((got - want).norm() / norm) if norm > 0 else float((got - want).norm())


def expect_close(got, want, tolerance, what=""):
    found = relative_rms(got, want)
    assert found <= tolerance, (
        f"{what}: relative RMS {found:.3g}, allowed {tolerance:.3g}, largest error {float((got.double() - want.double()).abs().nan_to_num().max()):.3g}"
    )
    return found


def expect_same_bits(a, b, what=""):
    size = a.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    differ = int((a.contiguous().view(kind) != b.contiguous().view(kind)).sum())
    assert differ == 0, f"{what}: {differ} of {a.numel()} elements differ in their bits"


def expect_refused(call, *words):
    """Expects that the call raises KilnError, and that the message has all of `words`."""
    try:
        call()
    except KilnError as error:
        missing = [w for w in words if w not in str(error)]
        assert not missing, f"the message lacks {missing}: {error}"
        return
    raise AssertionError(f"was not refused ({' '.join(words)})")


def expect_traps(program, cases):
    """Runs `program` % values for each case (*values, traps). It launches once with KILN_DEBUG=1, and must
    trap when `traps` is true.

    Each case runs in a new process, as a trap destroys the context.
    """
    before = f"import os, sys\nos.environ['KILN_DEBUG'] = '1'\nsys.path[:0] = {sys.path!r}\nimport torch\n"
    behind = """
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    os._exit(7 if "launch failure" in str(error) else 8)  # nothing can be given back
"""
    running = [
        (case, subprocess.Popen([sys.executable, "-c", before + program % case[:-1] + behind], stderr=subprocess.PIPE, text=True))
        for case in cases
    ]
    for case, process in running:
        assert process.wait() == (7 if case[-1] else 0), f"{case}: {process.returncode} {process.stderr.read()[-500:]}"


# ---- timing -------------------------------------------------------------------------------------------------------------------------------


@functools.cache
def l2_bytes():
    return torch.cuda.get_device_properties(0).L2_cache_size


def bytes_of(tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors if isinstance(t, torch.Tensor))


class Timed:
    """A CUDA graph of at least 20 launches, or of `launches`, over buffer sets that take at least four times the L2.

    There are at most 512 sets, so very small data stays in the L2.
    """

    def __init__(self, sets, launch, launches=0):
        self.launches = launches or max(20, len(sets))
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles, loads and sets attributes before the capture
            for s in sets[:2]:
                launch(*s)
        torch.cuda.synchronize()
        kept = []  # memory that a peer allocates rotates as well
        with torch.cuda.graph(self.graph):
            for i in range(self.launches):
                kept.append(launch(*sets[i % len(sets)]))
                if len(kept) >= len(sets):
                    kept.pop(0)
        self.times = []

    def replay(self):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        stop.record()
        stop.synchronize()
        self.times.append(start.elapsed_time(stop) * 1000 / self.launches)

    @property
    def us(self):
        return statistics.median(self.times)


def make_sets(make):
    first = make()
    count = max(2, min(512, -(-4 * l2_bytes() // max(1, bytes_of(first)))))
    return [first] + [make() for _ in range(count - 1)]


def call_each(tensors, launches):
    """Calls each launch once, so that it compiles. A launch that refuses its shape does
    so again when it is timed.
    """
    for launch in launches.values():
        try:
            if launch:
                launch(*tensors)
        except RuntimeError:
            pass
    torch.cuda.synchronize()


def time_all(sets, launches, replays=21, warm=3):
    """Median microseconds of one launch, by label.

    The labels take turns, replay by replay, so that they see the same state of the machine. When a round of
    all labels takes more than 50 ms, 7 replays are enough.
    """
    timed = {}
    for label, launch in launches.items():
        try:
            timed[label] = Timed(sets, launch)
        except RuntimeError as error:  # a peer that refuses this shape is left out with a message
            if str(label).startswith("kiln") or isinstance(error, KilnError):
                raise
            print(f"  {label} refuses: {str(error).splitlines()[0][:120]}", flush=True)
    for t in timed.values():
        t.replay()
    if sum(t.us * t.launches for t in timed.values()) > 50e3:
        replays, warm = 7, 1
    for i in range(warm + replays):
        for t in timed.values():
            t.replay()
            if i < warm:
                t.times.clear()
    return {label: t.us for label, t in timed.items()}


@functools.cache
def stream_us(read, write):
    """Microseconds of a stream that reads and writes as many bytes, timed in the same way.

    The template is kiln_stream, with one or two vectors for each thread, whichever is faster.
    """

    def make():
        return torch.randn(max(16, read) // 4 + 4, device="cuda"), torch.empty(max(16, write) // 4 + 4, device="cuda")

    def launch(stream):
        return lambda source, target: stream(source, target, read, write)

    return min(time_all(make_sets(make), {unroll: launch(kernel("kiln_stream", UNROLL=unroll)) for unroll in (1, 2)}).values())


@dataclasses.dataclass
class Row:
    """One line of the table, with the bytes that a launch reads and writes.

    make() gives the tensors of one buffer set. Each function of `launches` takes the tensors and launches
    once. The label "kiln" is our kernel.
    """

    case: str
    read: int
    write: int
    make: typing.Callable
    launches: dict
    flops: int = 0
    bar_us: float = 0.0  # the microseconds that a latency-bound row must reach; 0: none
    # The share of the stream's speed to reach; negative: 0.92 from 64 MB on, else 0.85; 0: none.
    bar: float = -1.0
    # Label of ours -> peers that it must be faster than.
    beats: dict = dataclasses.field(default_factory=dict)


@functools.cache
def _peers():
    path = os.environ.get("BENCH_PEERS")
    if not path:
        return None
    sys.path.append(os.path.dirname(path))  # for modules that it imports
    spec = importlib.util.spec_from_file_location("peers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class peers:
    """Kernels of other projects as label -> callable, from the module that BENCH_PEERS names.

    {} without such a module, and for names that it does not have.
    """

    @staticmethod
    def get(name):
        return _peers().get(name) if _peers() else {}


def compiled(function):
    """torch.compile for fixed shapes. With BENCH_NO_COMPILE, for a quick table, None,
    which leaves the label out.
    """
    if os.environ.get("BENCH_NO_COMPILE"):
        return None
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


@functools.cache
def portable_template(folder, name, source, portable):
    """Adds the template `portable`: the shipped template `name` without what it has for Hopper, for this GPU. Returns its name."""
    text = (pathlib.Path(__file__).resolve().parents[2] / f"templates/{folder}/{name}.toml").read_text()

    def cut(text, first, behind):
        return text[: text.index(first)] + text[text.index(behind) :]

    text = cut(cut(text, "[[bind]]", "[launch]"), "[arch.sm_90a]", "[cost]").replace(f'source = "{source}"\n', "")
    add_template(text.replace(f'name = "{name}"', f'name = "{portable}"', 1), f'#include "{folder}/{source}"\n')
    return portable
