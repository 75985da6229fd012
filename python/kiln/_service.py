"""Service: configuration, cache, compiler and the templates opened from it."""

from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _kiln
from ._values import Progress, plan_text

_MODES = {None: 0, "jit": 1, "warn": 2, "sealed": 3}
_open_services: weakref.WeakSet[Service] = weakref.WeakSet()

Plan = str | os.PathLike[str] | Iterable[Mapping[str, Any]]


class Service(_kiln.Service):
    """One per process is usual; several may share a cache directory. What is not given comes from KILN_*, then the configuration file, then
    a default. Makes no CUDA context, and touches no GPU until a kernel is asked for. Thread-safe; calls that wait give up the GIL.

    It is closed when the process ends, or by close(), or as a context manager: that unloads its kernels (which must be quiet) and writes what
    is not on disk yet. Kernels and templates that came from it say so when they are used afterwards.
    """

    def __init__(self, *, mode: str | None = None, cache_dir: str | os.PathLike[str] | None = None, cache_layers: str | None = None,
                 cache_max_size: str | None = None, template_path: str | os.PathLike[str] | None = None, include_path: str | None = None,
                 cuda_home: str | None = None, toolchain: str | None = None, arch: str | None = None, worker: str | None = None, jobs: int = 0,
                 compile_deadline: float = 0, record: str | os.PathLike[str] | None = None, compile_memory: str | None = None,
                 adopt_automatically: bool = False, hermetic: bool = False) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode = {mode!r}: expected jit, warn or sealed")

        def text(value: str | os.PathLike[str] | None) -> str | None:
            return None if value is None else os.fspath(value)

        super().__init__(_MODES[mode], hermetic, jobs, compile_deadline, adopt_automatically, text(cache_dir), cache_layers, cache_max_size,
                         text(template_path), include_path, cuda_home or _wheels_beside_us(hermetic), toolchain, arch, worker, text(record),
                         compile_memory)
        _open_services.add(self)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, name: str, device: int | None = None, arch: str | None = None) -> _kiln.Template:
        """A template, bound to the calling thread's current context (`device`: which must be on that device). With `arch`, such as
        "sm_90a", bound to none: compile() alone works, without a GPU."""
        if device is not None and arch is not None:
            raise ValueError("a device has its arch: give device or arch, not both")
        ordinal = _kiln.DEVICE_NONE if arch is not None else _kiln.DEVICE_CURRENT if device is None else device
        return super().open(name, ordinal, arch)

    def get(self, name: str, /, **parameters: Any) -> _kiln.Kernel:
        """open(name).get(**parameters)"""
        return self.open(name).get(**parameters)

    def compile(self, name: str, /, *, arch: str | None = None, **parameters: Any) -> _kiln.Image:
        """The image alone, which needs no GPU. `arch`: else KILN_ARCH's, else sm_90a."""
        return super().open(name, _kiln.DEVICE_NONE, arch).compile(**parameters)

    def prewarm(self, plan: Plan, *, arch: str | Iterable[str] | None = None, deadline: float = 0,
                progress: Callable[[Progress], object] | None = None) -> Progress:
        """Compiles what a plan names into the store, in parallel and without a GPU: rows such as
        {"template": "rms_norm", "T": "bf16", "H": [2048, 4096]}, the text of a plan, or the path of one or of a record. `arch` is that of rows
        that name none, or several. Waits; raises the first failure after all is done."""
        archs = [arch] if arch is None or isinstance(arch, str) else list(arch)
        done = [self._make(plan, True, _kiln.DEVICE_NONE, each, deadline, True, progress) for each in archs]
        return Progress(*map(sum, zip(*done)))

    def prepare(self, plan: Plan, *, deadline: float = 0, may_compile: bool = True,
                progress: Callable[[Progress], object] | None = None) -> Progress:
        """Makes a plan's kernels ready in the current context, in parallel: the one explicit way past the seal. Waits."""
        return self._make(plan, False, _kiln.DEVICE_CURRENT, None, deadline, may_compile, progress)

    def _make(self, plan: Plan, until_image: bool, device: int, arch: str | None, deadline: float, may_compile: bool,
              progress: Callable[[Progress], object] | None) -> Progress:
        file = os.fspath(plan) if isinstance(plan, os.PathLike) else None
        begun = self.begin(None if file else plan_text(plan), file, until_image, device, arch, deadline, may_compile)
        try:
            while True:
                over, counts = begun.wait(0.1)  # in slices, so that Ctrl-C ends it
                if progress is not None:
                    progress(Progress(*counts))
                if over:
                    return Progress(*counts)
        finally:
            begun.end()


class CaptureScope:
    """Inside of it this thread's kernels that are not ready are refused (NotReady) before any driver call: for code that captures a graph."""

    def __enter__(self) -> None:
        _kiln.capture_begin()

    def __exit__(self, *_: object) -> None:
        _kiln.capture_end()


def _wheels_beside_us(hermetic: bool) -> str | None:
    """NVRTC's wheels of this very environment, which the library cannot know of; only where nothing says otherwise and no toolkit is installed."""
    configured = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "kiln", "config.toml")
    if hermetic or any(os.environ.get(name) for name in ("KILN_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")):
        return None
    if configured.exists() or any(pathlib.Path("/usr/local/cuda/lib64").glob("libnvrtc.so.*")):
        return None
    found = importlib.util.find_spec("nvidia")
    for place in found.submodule_search_locations or () if found else ():
        for root in sorted(pathlib.Path(place).glob("cu[0-9]*"), reverse=True):
            if any(root.glob("lib/libnvrtc.so.*")) and (root / "include").is_dir():
                return str(root)
    return None


@atexit.register
def _close_all() -> None:
    for service in list(_open_services):
        service.close()
