"""The exceptions that kiln raises. A message names the thing, its value and what was allowed."""

import enum


class Code(enum.IntEnum):
    """Classes of failures that a caller can act on. include/kiln/error.hpp documents each of them (Errc)."""

    invalid_argument = 1
    unknown_template = 2
    unknown_parameter = 3
    invalid_value = 4
    requirement = 5
    manifest = 6
    source = 7
    unsupported_arch = 8
    compile_failed = 9
    compile_timeout = 10
    compile_crashed = 11
    no_compiler = 12
    no_driver = 13
    driver = 14
    not_ready = 15
    deadline = 16
    io = 17
    internal = 18


class Error(RuntimeError):
    """Root of everything that kiln raises."""

    def __init__(self, message: str, code: int = Code.internal) -> None:
        super().__init__(message)
        #: a Code, or a plain int when the library is newer than this package
        self.code = code


class CompileError(Error):
    """The compiler refused the source, was killed at its deadline, or crashed. The text has the log."""

    def __init__(
        self, message: str, code: int = Code.compile_failed, specialization: str = "", options: str = "", log: str = ""
    ) -> None:
        super().__init__(message if log.strip() in message else f"{message}\n{log}", code)
        #: "rms_norm T=bf16 H=4096"
        self.specialization = specialization
        #: the compiler's options, one per line
        self.options = options
        #: at most the first 16 KB of the compiler's log
        self.log = log


class NotReady(Error):
    """The kernel is not in memory and may not be made now: the service is sealed, or a graph is captured."""


class DeadlineExceeded(Error, TimeoutError):
    """The caller's deadline passed. A compile or load that is under way continues."""


def from_status(status: int, message: str, specialization: str, options: str, log: str) -> Error:
    """The exception for a kiln_error of the C ABI. The extension calls it by name."""
    code = Code(status) if status in Code._value2member_map_ else status
    if code == Code.no_compiler and "no NVRTC found" in message and _comes_from_a_wheel():
        message += '. This kiln comes from a wheel, for which `pip install "kiln[nvrtc]"` adds NVRTC and its headers'
    if code in (Code.compile_failed, Code.compile_timeout, Code.compile_crashed):
        return CompileError(message, code, specialization, options, log)
    kinds: dict[int, type[Error]] = {Code.not_ready: NotReady, Code.deadline: DeadlineExceeded}
    return kinds.get(code, Error)(message, code)


def _comes_from_a_wheel() -> bool:
    import importlib.metadata  # it imports 20 modules, and most processes never need them

    try:
        importlib.metadata.distribution("kiln")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
