"""kiln: CUDA kernels compiled at run time, kept, and launched.

    import kiln, torch

    service = kiln.Service()                                 # KILN_* and defaults; no GPU touched yet
    rms_norm = service.open("rms_norm").get(T="bf16", H=4096)  # memory, disk or compiler
    rms_norm(out, x, w, rows, 4096, 4096, 1e-6)              # on torch's (or CuPy's) current stream

A kernel takes arrays of torch and CuPy, and any object with DLPack or __cuda_array_interface__, as pointers.
None is a null pointer. Compiling and prewarming need no GPU.
kiln.ops has the operators of the templates for arrays, and kiln.torch those that torch.compile and CUDA graphs know.
"""

import importlib

from ._arrays import DeviceArray
from ._blobs import Blobs, Lease
from ._default import service, use_service
from ._errors import Code, CompileError, DeadlineExceeded, Error, NotReady
from ._fingerprint import Fingerprint, RanksDiffer, fingerprint
from ._kiln import Family, Image, Kernel, Template, attention_plan, attention_sizes, library_version, process_seal
from ._service import CaptureScope, Service
from ._values import AttentionPlan, AttentionSizes, DeviceFault, DevicePtr, KernelInfo, Progress

__version__ = library_version()
__all__ = [
    "AttentionPlan",
    "AttentionSizes",
    "Blobs",
    "CaptureScope",
    "Code",
    "CompileError",
    "DeadlineExceeded",
    "DeviceArray",
    "DeviceFault",
    "DevicePtr",
    "Error",
    "Family",
    "Fingerprint",
    "Image",
    "Kernel",
    "KernelInfo",
    "Lease",
    "NotReady",
    "Progress",
    "RanksDiffer",
    "Service",
    "Template",
    "attention_plan",
    "attention_sizes",
    "fingerprint",
    "library_version",
    "process_seal",
    "service",
    "use_service",
]


def __getattr__(name: str):
    """Imports kiln.ops when it is first used. kiln.torch is imported by name alone, because it imports torch."""
    if name == "ops":
        return importlib.import_module("kiln.ops")
    raise AttributeError(f"module 'kiln' has no attribute {name!r}")
