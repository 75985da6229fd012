"""Service: configuration, cache, compiler, and the templates that it opens."""

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
    """Opens templates, and makes their kernels from cache or compiler.

    A process usually has one service. Several services may share a cache directory.
    An option that is not given comes from KILN_*, then the configuration file, then a default.
    kiln_options in kiln.h documents the options; `adopt_automatically` is KILN_ADOPT_AUTOMATICALLY, and
    `hermetic` ignores environment and configuration file. `compile_deadline` is in seconds.

    The constructor creates no CUDA context and touches no GPU. The service is thread-safe.
    Calls that compile, load or wait release the GIL.

    The service is closed by close(), by `with`, or when the process ends.
    Closing unloads its kernels, none of which may be running, and writes to disk what is not stored yet.
    Kernels and templates of a closed service raise Error when they are used.

    Raises ValueError for an unknown mode, and Error for other options that are refused.
    """

    def __init__(
        self,
        *,
        mode: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_layers: str | None = None,
        cache_max_size: str | None = None,
        template_path: str | os.PathLike[str] | None = None,
        include_path: str | os.PathLike[str] | None = None,
        cuda_home: str | os.PathLike[str] | None = None,
        toolchain: str | None = None,
        arch: str | None = None,
        worker: str | os.PathLike[str] | None = None,
        jobs: int = 0,
        compile_deadline: float = 0,
        record: str | os.PathLike[str] | None = None,
        compile_memory: str | None = None,
        adopt_automatically: bool = False,
        hermetic: bool = False,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode = {mode!r}: expected jit, warn or sealed")

        def text(value: str | os.PathLike[str] | None) -> str | None:
            return None if value is None else os.fspath(value)

        super().__init__(
            _MODES[mode],
            hermetic,
            jobs,
            compile_deadline,
            adopt_automatically,
            text(cache_dir),
            cache_layers,
            cache_max_size,
            text(template_path),
            text(include_path),
            text(cuda_home) or _wheels_beside_us(hermetic),
            toolchain,
            arch,
            text(worker),
            text(record),
            compile_memory,
        )
        _open_services.add(self)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, name: str, device: int | None = None, arch: str | None = None) -> _kiln.Template:
        """Opens a template and binds it to the calling thread's current CUDA context.

        With `device` that context must be on the device of this ordinal. With `arch`, such as "sm_90a",
        the template is bound to no context: only compile() and prefetch() work, and they need no GPU.
        Raises ValueError when both are given.
        """
        if device is not None and arch is not None:
            raise ValueError("a device has its arch: give device or arch, not both")
        ordinal = _kiln.DEVICE_NONE if arch is not None else _kiln.DEVICE_CURRENT if device is None else device
        return super().open(name, ordinal, arch)

    def add_template(self, manifest: str | os.PathLike[str], source: str | None = None, reference: str | None = None) -> None:
        """Registers a template from memory, or templates from files.

        With `source`, `manifest` is the text of a manifest, and `source` and `reference` are texts in C++.
        Alone, it is a path: a directory of manifests, or the manifest NAME.toml of one template.
        """
        text = os.fspath(manifest)
        if source is not None:
            super().add_template(text, source, reference)
        elif "\n" in text or reference is not None:
            raise TypeError("add_template: the text of a manifest needs the text of its source, too; alone, a path is expected")
        else:
            super().add_template_path(text)

    def operator(self, name: str, arch: str | None = None) -> _kiln.Operator:
        """The operator of that name, or "TEMPLATE.NAME", as a function of arrays (see kiln.ops).

        With `arch`, such as "sm_90a", a call checks its operands and obtains the image, and launches nothing.
        Raises Error for an unknown name, which lists the known ones.
        """
        from . import _operator

        return _operator.make(_operator.describe(self, name)[0], lambda: self, arch)

    def get(self, name: str, /, **parameters: Any) -> _kiln.Kernel:
        """Returns open(name).get(**parameters)."""
        return self.open(name).get(**parameters)

    def compile(self, name: str, /, *, arch: str | None = None, **parameters: Any) -> _kiln.Image:
        """Returns the image alone, which needs no GPU. `arch` is KILN_ARCH by default, else sm_90a."""
        return super().open(name, _kiln.DEVICE_NONE, arch).compile(**parameters)

    def prewarm(
        self,
        plan: Plan,
        *,
        arch: str | Iterable[str] | None = None,
        deadline: float = 0,
        progress: Callable[[Progress], object] | None = None,
    ) -> Progress:
        """Compiles the specialisations of a plan into the store, in parallel and without a GPU. Waits.

        `plan` is a list of rows such as {"template": "rms_norm", "T": "bf16", "H": [2048, 4096]}, the text
        of a plan, or a path object (os.PathLike) of a plan or trace.
        `arch` is the arch of rows that name none. With several archs the plan is done once for each.
        `deadline` is in seconds, for each arch: nothing is begun or waited for after it. 0 means no limit.
        `progress` is called in this thread about every 0.1 s.

        Raises the first failure of an arch after all of its rows are done. Later archs are then not begun.
        Raises ValueError for an empty list of archs.
        """
        archs = [arch] if arch is None or isinstance(arch, str) else list(arch)
        if not archs:
            raise ValueError("arch = []: expected an arch such as 'sm_90a', or a list of at least one")
        done = [self._make(plan, True, _kiln.DEVICE_NONE, each, deadline, True, progress) for each in archs]
        return Progress(*map(sum, zip(*done)))

    def prepare(
        self, plan: Plan, *, deadline: float = 0, may_compile: bool = True, progress: Callable[[Progress], object] | None = None
    ) -> Progress:
        """Makes a plan's kernels ready in the current CUDA context, in parallel. Waits for them.

        This is the one explicit way to make kernels after a seal. With `may_compile` False kernels come from
        memory and disk only. `plan`, `deadline` and `progress` are as in prewarm().
        Raises the first failure after all rows are done.
        """
        return self._make(plan, False, _kiln.DEVICE_CURRENT, None, deadline, may_compile, progress)

    def _make(
        self,
        plan: Plan,
        until_image: bool,
        device: int,
        arch: str | None,
        deadline: float,
        may_compile: bool,
        progress: Callable[[Progress], object] | None,
    ) -> Progress:
        file = os.fspath(plan) if isinstance(plan, os.PathLike) else None
        begun = self.begin(None if file else plan_text(plan), file, until_image, device, arch, deadline, may_compile)
        try:
            while True:
                over, counts = begun.wait(0.1)  # in slices, so that Ctrl-C ends the wait
                if progress is not None:
                    progress(Progress(*counts))
                if over:
                    return Progress(*counts)
        finally:
            begun.end()


class CaptureScope:
    """A context manager for code that captures a graph.

    Inside it, this thread gets NotReady for a kernel that is not ready, before any driver call. Scopes nest.
    """

    def __enter__(self) -> None:
        _kiln.capture_begin()

    def __exit__(self, *_: object) -> None:
        _kiln.capture_end()


def _wheels_beside_us(hermetic: bool) -> str | None:
    """The root of NVRTC's wheels in this Python environment, which the library cannot find by itself.

    None when a variable, a configuration file or `hermetic` decides, or /usr/local/cuda has NVRTC.
    """
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
