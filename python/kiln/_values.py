"""Values that callers pass and get: element types, device addresses, facts about a kernel, counters."""

from __future__ import annotations

from typing import Any, NamedTuple

#: other libraries' names of element types, and kiln's names
dtype_names = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float64": "f64",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float8_e8m0fnu": "ue8m0",
    "float": "f32",
    "half": "f16",
    "double": "f64",
}


class DevicePtr(int):
    """An address in device memory that a program keeps as a number.

    A plain int is refused where a kernel takes a pointer.
    """


class KernelInfo(NamedTuple):
    """Facts about a loaded kernel: see kiln_kernel_info in kiln.h."""

    #: how the kernel was obtained: "memory", "disk", "layer", "remote", "compiled" or "waited"
    outcome: str
    #: 64 hex digits
    key: str
    #: per thread
    registers: int
    #: stores plus loads, bytes per thread
    spill_bytes: int
    #: static, bytes per block
    shared_bytes: int
    #: threads of a block; 0: not bounded by the source
    max_threads: int
    argument_count: int
    #: "rms_norm T=bf16 H=4096"
    specialization: str
    lowered_name: str
    #: of the image: "sm_90a", or "sm_100f" where that serves a device of 10.3
    arch: str


class Progress(NamedTuple):
    """Counts of a plan's specialisations while they are made ready: see kiln_progress in kiln.h."""

    total: int
    done: int
    ready: int
    disk: int
    compiled: int
    waited: int
    failed: int
    skipped: int


class DeviceFault(NamedTuple):
    """Launches of one kernel that could not do their work: see kiln_device_fault in kiln.h."""

    template: str
    specialization: str
    #: of the last of these launches
    reason: str
    code: int
    device: int
    #: launches that failed since the last call of device_faults()
    launches: int


class AttentionSizes(NamedTuple):
    """Sizes of an attention kernel's plan and workspace: see kiln_attention_sizes in kiln.h."""

    #: of the plan, on the host and on the device; 16-byte aligned there
    plan_bytes: int
    #: of the workspace, on the device; 16-byte aligned
    workspace_bytes: int
    #: blocks of the grid, an argument of the launch
    workers: int


class AttentionPlan(NamedTuple):
    """Counts of a plan that was written: see kiln_attention_plan in kiln.h."""

    #: bytes to copy to the device, from the start of the buffer
    bytes: int
    items: int
    parts: int
    workers: int


OUTCOMES = ("memory", "disk", "layer", "remote", "compiled", "waited")


def kernel_info(outcome: int, *rest: Any) -> KernelInfo:
    return KernelInfo(OUTCOMES[outcome], *rest)


def parameter_text(value: Any) -> str:
    """kiln's name of an element type such as torch.bfloat16, numpy.dtype("float16") or numpy.float32.

    A str is returned as it is. Raises TypeError for a value that is neither.
    """
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None) or getattr(value, "__name__", None) or str(value).rpartition(".")[2]
    if name not in dtype_names:
        raise TypeError(f"{value!r} is no value of a parameter: expected an int, a bool, text, or an element type that kiln has")
    return dtype_names[name]


def plan_text(rows: Any) -> str:
    """The text of a plan with the rows [{"template": "rms_norm", "T": "bf16", "H": [2048, 4096]}, ...].

    A str is returned as it is.
    """
    if isinstance(rows, str):
        return rows

    def toml(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int):
            return str(value)
        if isinstance(value, (list, tuple, range)):
            return "[" + ", ".join(toml(v) for v in value) + "]"
        text = parameter_text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{text}"'

    return "".join("[[prewarm]]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in row.items()) for row in rows)
