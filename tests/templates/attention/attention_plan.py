"""Plans of attention launches as an engine makes them: on the host, through the C ABI, copied
to a fixed device buffer.

    plan = AttentionPlan(kernel("attn_prefill", ...), max_requests=4, max_tokens=4096, kv_heads=8)
    plan(qo_indptr=[0, 100, 300], kv_indptr=[0, 100, 900])
    attn_prefill(out, lse, q, k, v, plan.words, plan.workspace, plan.workers, ...)
"""

import ctypes

import kiln_library
import torch

_I32 = ctypes.c_int32
_ARRAY = ctypes.POINTER(ctypes.c_int32)


class _Limits(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("max_requests", _I32),
        ("max_tokens", _I32),
        ("kv_heads", _I32),
        ("workers", _I32),
    ]


class _Sizes(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("plan_bytes", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_uint64),
        ("workers", _I32),
    ]


class _Lengths(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("requests", _I32),
        ("page_size", _I32),
        ("window_left", _I32),
        ("qo_indptr", _ARRAY),
        ("kv_indptr", _ARRAY),
        ("kv_len", _ARRAY),
        ("last_page_len", _ARRAY),
        ("window_right", _I32),
    ]


class _Plan(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("bytes", ctypes.c_uint64),
        ("items", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
    ]


def _array(values):
    return None if values is None else (_I32 * len(values))(*[int(v) for v in values])


class AttentionPlan:
    """The buffers for one kernel and its limits. A call writes a plan into them.

    `items`, `parts` and `used` (workers) describe the last plan.
    """

    def __init__(self, kernel, max_requests, kv_heads, max_tokens=0, workers=0):
        self._kernel = kernel
        self._limits = _Limits(ctypes.sizeof(_Limits), max_requests, max_tokens, kv_heads, workers)
        sizes = _Sizes(struct_size=ctypes.sizeof(_Sizes))
        kiln_library.check(
            kiln_library.library().kiln_kernel_attention_sizes(kernel.handle, ctypes.byref(self._limits), ctypes.byref(sizes))
        )
        self.workers = sizes.workers
        self.host = torch.empty(sizes.plan_bytes // 4, dtype=torch.int32).pin_memory()
        self.words = torch.empty(sizes.plan_bytes // 4, dtype=torch.int32, device="cuda")
        # NaN, so that a read of unwritten memory shows.
        self.workspace = torch.full((max(1, sizes.workspace_bytes // 4),), float("nan"), device="cuda")

    def __call__(self, kv_indptr, qo_indptr=None, kv_len=None, last_page_len=None, page_size=0, window_left=-1, window_right=-1):
        """Makes a plan for these lengths and copies it to the device in the current stream."""
        arrays = [_array(a) for a in (qo_indptr, kv_indptr, kv_len, last_page_len)]
        lengths = _Lengths(
            ctypes.sizeof(_Lengths),
            len(kv_indptr) - 1,
            page_size,
            window_left,
            *[ctypes.cast(a, _ARRAY) if a is not None else None for a in arrays],
            window_right,
        )
        plan = _Plan(struct_size=ctypes.sizeof(_Plan))
        torch.cuda.current_stream().synchronize()  # the last plan may still be copied from the host's buffer
        kiln_library.check(
            kiln_library.library().kiln_kernel_attention_plan(
                self._kernel.handle,
                ctypes.byref(self._limits),
                ctypes.byref(lengths),
                ctypes.c_void_p(self.host.data_ptr()),
                ctypes.c_size_t(self.host.numel() * 4),
                ctypes.byref(plan),
            )
        )
        self.items, self.parts, self.used = plan.items, plan.parts, plan.workers
        words = plan.bytes // 4
        self.words[:words].copy_(self.host[:words], non_blocking=True)
        return self
