"""kiln's C ABI (include/kiln/kiln.h) through ctypes. Kernels are launched on torch's
tensors and current stream.

    rms_norm = kernel("rms_norm", T="bf16", H=4096)
    rms_norm(out, x, w, rows, stride_x, stride_out, 1e-6)

Tensors are pointers, and None is a null pointer. Ints and floats take the manifest's width.
Errors are KilnError with the library's message.
"""

import ctypes
import functools
import os

import torch


class KilnError(RuntimeError):
    pass


class _Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("status", ctypes.c_int32),
        ("message", ctypes.c_char_p),
        ("specialization", ctypes.c_char_p),
        ("options", ctypes.c_char_p),
        ("log", ctypes.c_char_p),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("hermetic", ctypes.c_int32),
        ("mode", ctypes.c_int32),
        ("cache_dir", ctypes.c_char_p),
        ("template_path", ctypes.c_char_p),
    ]


class _Value(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("text_size", ctypes.c_int32), ("integer", ctypes.c_int64), ("text", ctypes.c_char_p)]


class _Type(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("size", ctypes.c_uint32)]


class _Info(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("outcome", ctypes.c_int32),
        ("key", ctypes.c_char * 65),
        ("registers", ctypes.c_uint32),
        ("spill_bytes", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
        ("specialization", ctypes.c_char_p),
        ("lowered_name", ctypes.c_char_p),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in [
            "memory_hits",
            "disk_hits",
            "foreign_toolchain",
            "compiles",
            "compile_failures",
            "remembered_failures",
            "waits",
            "miss_absent",
            "miss_damaged",
            "miss_other_key_text",
            "miss_gate_timeout",
            "miss_unreadable",
            "miss_no_store",
            "puts",
            "puts_present",
            "puts_skipped",
            "skipped_read_only",
            "skipped_gate_timeout",
            "skipped_full",
            "skipped_failed",
            "skipped_queue_full",
            "convoy_left",
            "flight_timeouts",
            "unpublishable",
            "sealed_misses",
            "loads",
            "device_bytes",
        ]
    ]


_TEXT = 4
_POINTER, _SIGNED, _FLOAT = _Type(0, 8), _Type(1, 8), _Type(3, 8)


@functools.cache
def library():
    found = ctypes.CDLL(os.environ.get("KILN_LIBRARY", "libkiln.so.0"))
    found.kiln_last_error.restype = ctypes.POINTER(_Error)
    return found


def version():
    """The library's version, as `kiln --version` prints it."""
    library().kiln_version.restype = ctypes.c_char_p
    return library().kiln_version().decode()


def check(status):
    """Raises KilnError with the library's message for any status but success."""
    if status:
        error = library().kiln_last_error().contents
        raise KilnError(b"\n".join(part for part in (error.message, error.log) if part).decode())


@functools.cache
def service():
    """The process's service, from KILN_* and defaults."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes the primary context current in this thread
    out = ctypes.c_void_p()
    check(library().kiln_service_create(None, ctypes.byref(out)))
    return out


def seal():
    """Seals the process: from now on it only gets kernels that are loaded. There is no way back."""
    check(library().kiln_process_seal())


def stats():
    out = _Stats(struct_size=ctypes.sizeof(_Stats))
    check(library().kiln_service_stats(service(), ctypes.byref(out)))
    return out


def add_template(manifest, source):
    """Adds a template from memory. Its headers are searched in the directories of the installed templates."""
    check(library().kiln_service_add_template(service(), manifest.encode(), source.encode(), None))


@functools.cache
def _open(name):
    out = ctypes.c_void_p()
    check(library().kiln_service_open(service(), name.encode(), -1, None, ctypes.byref(out)))
    return out


def _values(parameters):
    texts = [("true" if v else "false") if isinstance(v, bool) else str(v) for v in parameters.values()]
    names = (ctypes.c_char_p * len(texts))(*[n.encode() for n in parameters])
    values = (_Value * len(texts))(*[_Value(_TEXT, len(t), 0, t.encode()) for t in texts])
    return names, values, ctypes.c_size_t(len(texts))


def prefetch(name, **parameters):
    """Begins to compile the kernel on threads of kiln's; a later kernel() finds it ready. Errors
    are kernel()'s to report.
    """
    library().kiln_template_prefetch(_open(name), *_values(parameters))


class Kernel:
    def __init__(self, name, parameters):
        self.handle = ctypes.c_void_p()
        check(library().kiln_template_get(_open(name), *_values(parameters), None, ctypes.byref(self.handle)))

    def entry(self, name):
        """Another [[kernel]] of the same image."""
        other = Kernel.__new__(Kernel)
        other.handle = ctypes.c_void_p()
        check(library().kiln_kernel_entry(self.handle, name.encode(), ctypes.byref(other.handle)))
        return other

    @property
    def info(self):
        out = _Info(struct_size=ctypes.sizeof(_Info))
        check(library().kiln_kernel_get_info(self.handle, ctypes.byref(out)))
        return out

    def __call__(self, *arguments):
        types, boxes = [], []
        for a in arguments:
            if a is None or isinstance(a, torch.Tensor):
                types.append(_POINTER)
                boxes.append(ctypes.c_uint64(0 if a is None else a.data_ptr()))
            elif isinstance(a, float):
                types.append(_FLOAT)
                boxes.append(ctypes.c_double(a))
            else:
                types.append(_SIGNED)
                boxes.append(ctypes.c_int64(a))
        n = len(boxes)
        data = (ctypes.c_void_p * n)(*[ctypes.addressof(b) for b in boxes])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(library().kiln_kernel_launch(self.handle, stream, (_Type * n)(*types), data, ctypes.c_size_t(n)))


@functools.cache
def _kernel(name, items):
    return Kernel(name, dict(items))


def kernel(name, **parameters):
    """The kernel of these parameters, compiled at first use. Other parameters take the manifest's defaults."""
    return _kernel(name, tuple(parameters.items()))
