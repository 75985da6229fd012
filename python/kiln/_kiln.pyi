"""The extension: what kiln/__init__.py is made of. Programs import kiln."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any, final

from ._values import AttentionPlan, AttentionSizes, DeviceFault, KernelInfo

DEVICE_CURRENT: int
DEVICE_NONE: int

class Lease:
    """The right to make a blob, for kiln.Lease."""

    @property
    def held(self) -> bool:
        """True until the lease was given to a put, or ended."""
    def end(self) -> None:
        """Lets the next caller make the blob."""

class Blobs:
    """The blobs of a space, for kiln.Blobs. Keys and values have the buffer protocol."""

    def get(self, key: Any) -> bytes | None: ...
    def put(self, key: Any, data: Any, lease: Lease | None = None) -> int: ...
    def lease(self, key: Any, wait: float) -> tuple[bytes | None, Lease | None]: ...
    def flush(self, wait: float) -> bool: ...
    def list(self) -> str: ...
    def delete(self, key: Any) -> bool: ...
    def identify(self, key: Any, identity: Any) -> None: ...

class Image:
    """A compiled image, without a GPU."""

    @property
    def outcome(self) -> str:
        """How the image was obtained: "memory", "disk", "layer", "remote", "compiled" or "waited"."""
    @property
    def key(self) -> str:
        """The key of the record, as 64 hex digits."""
    @property
    def arch(self) -> str:
        """The architecture of the image, such as "sm_90a"."""
    @property
    def lowered_name(self) -> str:
        """The symbol of the kernel in the image."""
    @property
    def specialization(self) -> str:
        """The template's name with all parameters: "rms_norm T=bf16 H=4096"."""
    @property
    def cubin(self) -> builtins.bytes:
        """The bytes of the compiled cubin."""
    def bytes(self) -> builtins.bytes:
        """The bytes of the compiled cubin, by the name of the method in C++."""
    def size(self) -> int:
        """The number of these bytes."""

class Template:
    """A template, bound to a device's context and arch. Parameters by position in the manifest's order, or by name."""

    def get(self, *values: Any, deadline: float = 0, stream: Any = None, fallback: bool = False, **parameters: Any) -> Kernel:
        """The kernel for these parameters, from memory, from disk or from the compiler.

        `deadline` is the number of seconds to wait for a kernel that is not ready; 0 waits without limit.
        While `stream` captures a graph, a kernel that is not ready is refused (NotReady).
        With `fallback`, a kernel of the manifest's fallback template is returned at once while the specialised kernel compiles.
        A parameter that is named `deadline`, `stream` or `fallback` must be given by position.
        """
    def get_family(self, *values: Any, deadline: float = 0, stream: Any = None, **parameters: Any) -> Family:
        """All members of the template's [family], ready. Its parameter is left out, because each launch picks it.

        `deadline` and `stream` are as in get(). A member that a seal or a capture refuses is named in the error (NotReady).
        """
    def try_get(self, *values: Any) -> Kernel | None:
        """The kernel if it is ready in memory, else None. Never waits and never compiles."""
    def prefetch(self, *values: Any, **parameters: Any) -> None:
        """Starts to make the kernel ready in the background, after kernels that a caller waits for."""
    def compile(self, *values: Any, **parameters: Any) -> Image:
        """The compiled image alone. It needs no GPU and loads nothing."""

@final
class Kernel:
    """A loaded kernel. Arguments come in the manifest's order; trailing optional ones may be left out."""

    def __call__(self, *arguments: Any, stream: Any = None) -> None:
        """Launches with the geometry of the manifest.

        Without `stream` it launches on the current stream of the first array's library.
        """
    def entry(self, name: str, /) -> Kernel:
        """Another [[kernel]] of the manifest: an entry point of the same image, which shares its variables."""
    def variable(self, name: str, /) -> tuple[int, int]:
        """Address and bytes of a [[global]] of the manifest, in the context of this kernel."""
    def constant(self, name: str, /) -> int:
        """An integer constant of the source: an [export] of the manifest."""
    @property
    def info(self) -> KernelInfo:
        """The key, the registers, the spills, and how the kernel was obtained."""
    @property
    def function(self) -> int:
        """The address of the CUfunction, for programs that launch by themselves."""

@final
class Family:
    """All members of a family. Each launch picks one by the value of an argument."""

    def __call__(self, *arguments: Any, stream: Any = None) -> None:
        """Launches the member that serves the family's argument, as a Kernel launches."""
    def member(self, value: int, /) -> Kernel:
        """The kernel that serves this value of the family's argument."""
    @property
    def by(self) -> str:
        """The argument that picks the member."""
    @property
    def parameter(self) -> str:
        """The parameter whose values are the edges."""
    @property
    def edges(self) -> tuple[int, ...]:
        """The greatest value that each member is for, in ascending order. The last member also serves everything above."""

class DeviceMemory:
    """Memory of the current device that this object owns."""

    def __init__(self, bytes: int) -> None: ...
    @property
    def address(self) -> int:
        """Its address on the device."""

def device_capsule(memory: DeviceMemory, shape: Sequence[int], strides: Sequence[int], code: int, bits: int, device: int) -> Any:
    """A DLPack capsule over memory, which it keeps. `strides` are in elements; `code` and `bits` are DLPack's dtype."""

@final
class Operator:
    """An operator as a function of arrays. It runs on the arrays' device and, without `stream`, on their current stream.

    `inputs` and `outputs` are pairs (name, kind). resolve(device, array) opens the operator on a device.
    failed(error, device) may return a context manager, in which a failed call is made again.
    """

    def __new__(
        cls,
        name: str,
        inputs: Sequence[tuple[str, str]],
        outputs: Sequence[tuple[str, str]],
        resolve: Callable[[int, Any], Any],
        failed: Callable[[Any, int], Any],
    ) -> Operator: ...
    def __call__(self, *operands: Any, stream: Any = None, **named: Any) -> Any:
        """Returns the outputs: nothing, an array or a tuple. Operands are inputs, then outputs, or go by name."""
    def forget(self) -> None:
        """Asks resolve() again on every device."""
    def allow(self, no_compile: bool, past_seal: bool) -> None:
        """Says how a kernel is made that is not ready (kiln_call in kiln.h)."""

@final
class Launcher:
    """One template's kernels by device and parameters; miss(device, parameters) makes one, failed(device, error, launch) may mend a launch."""

    def __new__(
        cls, miss: Callable[[int, tuple[Any, ...]], Kernel], failed: Callable[[int, Any, Callable[[], None]], bool]
    ) -> Launcher: ...
    def __call__(self, parameters: tuple[Any, ...], /, *arguments: Any) -> None: ...
    def forget(self) -> None: ...

class Preparation:
    """A plan that is being made ready."""

    def wait(self, seconds: float, /) -> tuple[bool, tuple[int, int, int, int, int, int, int, int]]: ...
    def end(self) -> None: ...

class Service:
    """The native service that kiln.Service wraps."""

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
    def close(self) -> None:
        """Unloads the kernels, which must be quiet, and writes what is not on disk yet."""
    @property
    def closed(self) -> bool:
        """True after close()."""
    def open(self, name: str, device: int, arch: str | None) -> Template: ...
    def open_operator(self, name: str, device: int, arch: str | None) -> Any:
        """An operator on a device, as a capsule for Operator."""
    def describe_operators(self, name: str | None) -> str:
        """A JSON array: `operators` in docs/schema/templates.json."""
    def open_blobs(self, space: str, compatibility: str, budget: int, refuse_when_sealed: bool, behind: bool) -> Blobs:
        """The blobs of a space, for kiln.Blobs."""
    def describe_blobs(self) -> str:
        """A JSON array with the counts of each space."""
    def add_template(self, manifest: str, source: str, reference: str | None = None) -> None:
        """Registers a template from memory: the texts of its manifest, its source and its reference."""
    def add_template_path(self, path: str) -> None:
        """Registers templates from files: a directory of manifests, or the manifest NAME.toml of one."""
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
    def seal(self) -> None:
        """From here on only kernels in memory are returned, unless this service was told mode jit or warn."""
    def missing(self) -> str:
        """The specialisations that were refused because of the seal, as the text of a plan."""
    def fingerprint(self) -> str:
        """32 hex digits over loaded kernels and used blobs: equal in two processes that run the same code."""
    def describe_fingerprint(self) -> str:
        """A JSON object of what the fingerprint covers (kiln_service_describe_fingerprint in kiln.h)."""
    def adopt(self) -> int:
        """Lets get(fallback=True) return the specialised kernels that have become ready; returns their number."""
    def device_faults(self) -> list[DeviceFault]:
        """The kernels of which a launch could not do its work since the last call: see kiln_service_device_faults in kiln.h."""
    def stats(self) -> dict[str, int | float]:
        """Counters since the service was made: the fields of kiln_stats in kiln.h."""

def library_version() -> str:
    """The version of the library, such as "0.2.0"."""

def process_seal() -> None:
    """Seals every service of this process, present and future."""

def capture_begin() -> None: ...
def capture_end() -> None: ...
def tvm_ffi_function(signature: str, resolve: Callable[[int], Any]) -> int:
    """The address of a new function, which the function at tvm_ffi_wrap takes."""

def tvm_ffi_forget() -> None:
    """Asks resolve() of every function again."""

tvm_ffi_wrap: int

def zero_outputs(on: bool, /) -> None: ...
def accept_host_memory(on: bool, /) -> None:
    """For tests with a driver whose device memory is the host's."""

def attention_sizes(kernel: Kernel, *, max_requests: int, kv_heads: int, max_tokens: int = 0, workers: int = 0) -> AttentionSizes:
    """Sizes of plan and workspace for an attention kernel. They follow from the limits alone."""

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
    window_right: int = -1,
    max_tokens: int = 0,
    workers: int = 0,
) -> AttentionPlan:
    """Writes the plan of a batch into `buffer`, in host memory. The caller copies it to the device in the stream of the launch."""
