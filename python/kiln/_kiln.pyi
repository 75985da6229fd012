"""The extension module that kiln/__init__.py re-exports. Programs import kiln instead."""

from collections.abc import Callable, Sequence
from typing import Any, final

from ._values import AttentionPlan, AttentionSizes, KernelInfo

DEVICE_CURRENT: int
DEVICE_NONE: int

class Image:
    """A compiled image, which needs no GPU. `outcome` says how it was obtained, as in KernelInfo."""

    @property
    def outcome(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def lowered_name(self) -> str: ...
    @property
    def specialization(self) -> str: ...
    @property
    def cubin(self) -> bytes: ...

class Template:
    """A template, bound to a device's context and arch. Thread-safe.

    Parameters are given by position in the manifest's order, or by name, but not both.
    None, and a parameter that is left out, mean the manifest's default.

    - get() returns a loaded kernel, and waits until it is made.
      `deadline` is in seconds: 0 means no limit, and a negative deadline has passed already. When `stream` is
      capturing, a kernel that is not ready is refused with NotReady. With `fallback` the manifest's fallback
      kernel is returned at once while the specialised kernel compiles. A parameter named deadline, stream or
      fallback can only be given by position.
    - try_get() returns the kernel if it is ready, else None. It touches neither disk nor driver.
    - prefetch() makes the kernel ready on a thread of kiln's, and returns at once.
    - compile() returns the image alone.
    """

    def get(self, *values: Any, deadline: float = 0, stream: Any = None, fallback: bool = False, **parameters: Any) -> Kernel: ...
    def try_get(self, *values: Any) -> Kernel | None: ...
    def prefetch(self, *values: Any, **parameters: Any) -> None: ...
    def compile(self, *values: Any, **parameters: Any) -> Image: ...

@final
class Kernel:
    """A loaded kernel. A call launches it.

    Arguments come in the manifest's order. Trailing optional arguments may be left out.
    `stream` is an integer or a stream object; None means the current stream of the first array's library.

    - entry() returns another [[kernel]] of the same image.
    - variable() returns (address, bytes) of a [[global]].
    - constant() returns an integer constant of the source, an [export] of the manifest.
    """

    def __call__(self, *arguments: Any, stream: Any = None) -> None: ...
    def entry(self, name: str, /) -> Kernel: ...
    def variable(self, name: str, /) -> tuple[int, int]: ...
    def constant(self, name: str, /) -> int: ...
    @property
    def info(self) -> KernelInfo: ...
    @property
    def function(self) -> int: ...

@final
class Launcher:
    """The kernels of one template by device and parameters. A call finds a kernel and launches it.

    miss(device, parameters) makes a kernel that is not there yet.
    failed(device, error, launch) is called when a launch fails. It may repair the context, call launch(), and
    then returns True. forget() drops all kernels.
    """

    def __new__(
        cls, miss: Callable[[int, tuple[Any, ...]], Kernel], failed: Callable[[int, Any, Callable[[], None]], bool]
    ) -> Launcher: ...
    def __call__(self, parameters: tuple[Any, ...], /, *arguments: Any) -> None: ...
    def forget(self) -> None: ...

class Preparation:
    """A plan that is being made ready.

    wait() waits at most `seconds` and returns (done, the counts of a Progress).
    It raises the first failure once all is done. end() begins nothing more.
    """

    def wait(self, seconds: float, /) -> tuple[bool, tuple[int, int, int, int, int, int, int, int]]: ...
    def end(self) -> None: ...

class Service:
    def __init__(
        self,
        mode: int,
        hermetic: bool,
        jobs: int,
        compile_deadline: float,
        adopt: bool,
        cache_dir: str | None,
        cache_layers: str | None,
        cache_max_size: str | None,
        template_path: str | None,
        include_path: str | None,
        cuda_home: str | None,
        toolchain: str | None,
        arch: str | None,
        worker: str | None,
        record: str | None,
        compile_memory: str | None,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def open(self, name: str, device: int, arch: str | None) -> Template: ...
    def add_template(self, manifest: str, source: str, reference: str | None = None) -> None: ...
    def begin(
        self,
        plan: str | None,
        file: str | None,
        until_image: bool,
        device: int,
        arch: str | None,
        deadline: float,
        may_compile: bool,
    ) -> Preparation: ...
    def seal(self) -> None: ...
    def missing(self) -> str: ...
    def fingerprint(self) -> str: ...
    def adopt(self) -> int: ...
    def stats(self) -> dict[str, int | float]: ...

def library_version() -> str: ...
def process_seal() -> None: ...
def capture_begin() -> None: ...
def capture_end() -> None: ...
def accept_host_memory(on: bool, /) -> None: ...
def attention_sizes(
    kernel: Kernel, *, max_requests: int, kv_heads: int, max_tokens: int = 0, workers: int = 0
) -> AttentionSizes: ...
def attention_plan(
    kernel: Kernel,
    buffer: Any,
    *,
    max_requests: int,
    kv_heads: int,
    kv_indptr: Sequence[int] | None,
    qo_indptr: Sequence[int] | None = None,
    kv_len: Sequence[int] | None = None,
    last_page_len: Sequence[int] | None = None,
    page_size: int = 0,
    window_left: int = -1,
    max_tokens: int = 0,
    workers: int = 0,
) -> AttentionPlan: ...
