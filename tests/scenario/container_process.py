"""Run by container.sh inside the image: takes every kernel of the plan from the layer, and compiles nothing.

With KILN_LIBCUDA, the path of tests' fake driver, kernels are loaded as on a GPU. Else only their images are taken.
"""

import ctypes
import os

import kiln

PLAN = (("rms_norm", {"T": "bf16", "H": 2048}), ("rms_norm", {"T": "bf16", "H": 4096}), ("softmax", {"T": "f32", "H": 32000}))


def make_context_current(driver: str) -> None:
    """An engine does this before it calls kiln."""
    library = ctypes.CDLL(driver)

    def call(name: str, *arguments: object) -> None:
        entry, status = ctypes.c_void_p(), ctypes.c_int()
        library.cuGetProcAddress_v2(name.encode(), ctypes.byref(entry), 12000, ctypes.c_uint64(0), ctypes.byref(status))
        assert ctypes.CFUNCTYPE(ctypes.c_int)(entry.value)(*arguments) == 0, name

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


driver = os.environ.get("KILN_LIBCUDA")
if driver:
    make_context_current(driver)
service = kiln.Service()
for template, values in PLAN:
    if driver:
        outcome = service.open(template).get(**values).info.outcome
    else:
        outcome = service.compile(template, arch="sm_90a", **values).outcome
    print(template, values, outcome)
    assert outcome == "layer", outcome
stats = service.stats()
print({name: stats[name] for name in ("disk_hits", "layer_hits", "foreign_toolchain", "compiles")})
assert stats["compiles"] == 0, stats
assert stats["disk_hits"] + stats["layer_hits"] + stats["foreign_toolchain"] == len(PLAN), stats
