"""The parts of a plain hot call of gpu_launch.py, on a GPU: each part in a loop in C, and whole calls.

python python/tests/gpu_launch_parts.py
"""

import ctypes

import gpu_launch as whole
import torch

C = """#include <stddef.h>
typedef struct { unsigned x, y, z, bx, by, bz, shared; void *stream, *attributes; unsigned count; } config;
int driver(int (*launch)(const config*, void*, void**, void**), void* function, void* stream, void** parameters, int count) {
  config c = {1, 1, 1, 128, 1, 1, 0, stream, 0, 0};
  for (int i = 0; i < count; ++i) if (launch(&c, function, parameters, 0)) return 1;
  return 0;
}
int ours(int (*launch)(void*, void*, const void*, void**, size_t), void* kernel, void* stream, const void* types, void** data, int count) {
  for (int i = 0; i < count; ++i) if (launch(kernel, stream, types, data, 7)) return 1;
  return 0;
}
int gil(void* (*save)(void), void (*restore)(void*), int count) {
  for (int i = 0; i < count; ++i) restore(save());
  return 0;
}
int tensors(int (*type)(void*, int*), int (*data)(void*, void**), int (*index)(void*, int*), void** handles, int count) {
  int bad = 0, t, d; void* address;
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < 3; ++k) bad |= type(handles[k], &t) | data(handles[k], &address) | index(handles[k], &d);
  return bad;
}
int current(int (*stream)(int, int, void**), int count) {
  void* out; int bad = 0;
  for (int i = 0; i < count; ++i) bad |= stream(2, 0, &out);
  return bad;
}
"""


class ArgumentType(ctypes.Structure):
    """kiln_arg_type"""

    _fields_ = [("kind", ctypes.c_uint32), ("size", ctypes.c_uint32)]


def entry(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p)


def kernel_handle(kernel):
    """The kiln_kernel* of a kiln.Kernel, which follows the object's header and its vectorcall
    (kernel_type.hpp).
    """
    return ctypes.c_void_p.from_address(id(kernel) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p))


def pointers(values):
    out = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    out.keep = values
    return out


def checked(call, *arguments):
    """A function batch(count) that makes the call and checks its result. It keeps the arguments alive."""

    def batch(count):
        assert call(*arguments, count) == 0, call.__name__

    return batch


kept = {}


def parts():
    c, python, cuda = whole.c_library(C, ctypes.PyDLL), ctypes.pythonapi, ctypes.CDLL("libcuda.so.1")
    library = ctypes.CDLL("libkiln.so.0")  # loaded with the package
    torch_cpu = ctypes.CDLL("libtorch_cpu.so")
    kernel = kept.setdefault("kernel", whole.service.open("nothing").get(0))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    tensors = [whole.out, whole.x, whole.w]
    addresses = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    narrow = addresses + [
        ctypes.c_int(whole.ROWS),
        ctypes.c_longlong(whole.WIDTH),
        ctypes.c_longlong(whole.WIDTH),
        ctypes.c_float(1e-6),
    ]
    wide = addresses + [*map(ctypes.c_longlong, (whole.ROWS, whole.WIDTH, whole.WIDTH)), ctypes.c_double(1e-6)]
    types = (ArgumentType * 7)(*[(0, 8)] * 3, *[(1, 8)] * 3, (3, 8))  # as Python's numbers arrive
    handles = (ctypes.c_void_p * 3)(*[id(t) + object.__basicsize__ for t in tensors])
    rows = [
        ("whole: plain call", whole.plain_nothing()),
        ("whole: plain call, stream= given", whole.plain_nothing_given_stream()),
        ("whole: DevicePtr and stream=", whole.plain_addresses()),
        (
            "driver: cuLaunchKernelEx",
            checked(c.driver, entry(cuda, "cuLaunchKernelEx"), ctypes.c_void_p(kernel.function), stream, pointers(narrow)),
        ),
        (
            "driver and kiln_kernel_launch",
            checked(c.ours, entry(library, "kiln_kernel_launch"), kernel_handle(kernel), stream, types, pointers(wide)),
        ),
        ("GIL, given up and taken", checked(c.gil, entry(python, "PyEval_SaveThread"), entry(python, "PyEval_RestoreThread"))),
        (
            "three tensors read",
            checked(
                c.tensors, *(entry(torch_cpu, f"aoti_torch_get_{n}") for n in ("device_type", "data_ptr", "device_index")), handles
            ),
        ),
        (
            "Python's own call, to a Python function",
            whole.hot(f"nothing({whole.arguments})", nothing=lambda out, x, w, a, b, c, d: None, **whole.tensors),
        ),
        ("the loop alone", whole.hot("pass")),
    ]
    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if api is not None:
        python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        table = python.PyCapsule_GetPointer(ctypes.py_object(api), b"dlpack_exchange_api")
        rows.append(
            ("current stream found", checked(c.current, ctypes.c_void_p.from_address(table + 48)))
        )  # dlpack.hpp: ExchangeApi
    return rows


if __name__ == "__main__":
    whole.table(parts())
