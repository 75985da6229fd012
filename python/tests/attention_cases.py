"""Calls of the attention operators, in the form of operator_cases.

Every case has the same lengths (QO, KV), which attention_references knows.
Plans are real, except for fake tensors, where nothing runs.
"""

import itertools

import torch
from kiln.torch import LatentDecode, PagedDecode, RaggedPrefill
from operator_cases import BF16, E4M3, F32, I32
from operator_cases import tensor as t
from torch._subclasses.fake_tensor import FakeTensor

#: tokens of q in prefill, of k and v in both
QO, KV, PAGE, HEADS, KV_HEADS = [5, 1, 17], [37, 20, 1300], 16, 8, 2
PAGES = [-(-n // PAGE) for n in KV]


def indptr(lengths):
    return [0, *itertools.accumulate(lengths)]


def planned(kind, d, limits, plan, **options):
    """(plan, workers, bytes of the workspace)."""
    if isinstance(torch.empty(0), FakeTensor):
        return torch.zeros(4096, dtype=I32, device=d), 264, 1 << 20
    heads = {"kv_heads": KV_HEADS} if kind is not LatentDecode else {}
    made = kind(heads=HEADS, **heads, max_requests=4, device=d, **limits, **options)
    made.plan(**plan)
    return made.plan_words, made.workers, made.workspace_bytes


def scattered(total, d):
    """A page table of `total` different pages."""
    assert total + 2 == 89  # a prime
    return torch.tensor([(7 * i + 3) % (total + 2) for i in range(total)], dtype=I32, device=d)


def slopes(d):
    return 2.0 ** (-torch.arange(1, HEADS + 1, device=d, dtype=F32))


def decode(d, size=64, values=None, kv=BF16, soft_cap=0.0, window_left=-1, alibi=False):
    options = {"soft_cap": soft_cap, "window_left": window_left, "alibi": alibi}
    plan = planned(
        PagedDecode,
        d,
        {"head_size": size, "value_size": values, "page_size": PAGE, "kv_dtype": kv},
        {"kv_indptr": indptr(PAGES), "kv_len": KV},
        **options,
    )
    total = sum(PAGES)
    caches = [t(d, total + 3, PAGE, KV_HEADS, n).to(kv) for n in (size, values or size)]
    pages = scattered(total, d)
    scales = {"k_scale": torch.full((1,), 0.9, device=d), "v_scale": torch.full((1,), 1.1, device=d)} if kv == E4M3 else {}
    named = ({"alibi_slopes": slopes(d)} if alibi else {}) | scales
    return (t(d, len(KV), HEADS, size), *caches, pages, *plan, 0.0, soft_cap, window_left), named


def latent_rows(d, count):
    """Rows of 656 bytes: codes, scales and rotated elements."""
    parts = (t(d, count, 512).to(E4M3), torch.rand(count, 4, device=d) + 0.5, t(d, count, 64))
    return torch.cat([part.view(torch.uint8) for part in parts], 1).view(E4M3)


def latent(d, kv=BF16):
    limits = {"page_size": PAGE, "sm_scale": 0.07, "kv_dtype": kv}
    plan = planned(LatentDecode, d, limits, {"kv_indptr": indptr(PAGES), "kv_len": KV})
    total = sum(PAGES)
    pages = torch.tensor([(7 * i + 3) % (total + 2) for i in range(total)], dtype=I32, device=d)
    rows = (total + 3) * PAGE
    cache = t(d, rows, 576) if kv == BF16 else latent_rows(d, rows)
    return (t(d, len(KV), HEADS, 576), cache.view(total + 3, PAGE, 1, -1), pages, *plan, 0.07), {}


def prefill(
    d,
    size=64,
    values=None,
    causal=True,
    soft_cap=0.0,
    window_left=-1,
    alibi=False,
    mask=False,
    template="attn_prefill",
    page=0,
    right=-1,
    sinks=False,
):
    options = {"soft_cap": soft_cap, "window_left": window_left, "alibi": alibi, "template": template, "page_size": page}
    options |= {"window_right": right, "sinks": sinks}
    options |= {"q_dtype": E4M3, "kv_dtype": E4M3} if template == "attn_sm90_e4m3" else {}
    rows = [-(-n // page) for n in KV] if page else KV
    plan = planned(
        RaggedPrefill,
        d,
        {"head_size": size, "value_size": values, "max_tokens": 64, "causal": causal, "mask": mask},
        {"qo_indptr": indptr(QO), "kv_indptr": indptr(rows), "kv_len": KV},
        **options,
    )
    bits = {}
    if mask:
        begins = indptr([-(-a * b // 8) for a, b in zip(QO, KV)])
        bits = {"mask": t(d, begins[-1] + 4, dtype=torch.uint8, high=256), "mask_indptr": torch.tensor(begins, dtype=I32, device=d)}
    more = ({"alibi_slopes": slopes(d)} if alibi else {}) | bits
    more |= ({"window_right": right} if right >= 0 else {}) | ({"sinks": slopes(d) * 8} if sinks else {})
    q, sizes = t(d, sum(QO), HEADS, size), (size, values or size)
    if page:
        caches = [t(d, sum(rows) + 3, page, KV_HEADS, n) for n in sizes]
        return (q, *caches, scattered(sum(rows), d), *plan, causal, 0.0, soft_cap, window_left), more
    return (q, *(t(d, sum(KV), KV_HEADS, n) for n in sizes), *plan, causal, 0.0, soft_cap, window_left), more


def prefill_codes(d, scales=1, **options):
    """A call of attn_sm90_e4m3, with `scales` scales each of q, k and v."""
    (q, k, v, *rest), named = prefill(d, template="attn_sm90_e4m3", **options)
    named |= {f"{x}_scale": torch.rand(scales, device=d) + 0.5 for x in "qkv"}
    return (q.to(E4M3), k.to(E4M3), v.to(E4M3), *rest), named


def words_of(made, before):
    """The words of a plan that `made` holds, laid over the words that the buffer had before.

    The first items of workers without items, and what follows the plan, are not written.
    """
    words, out = made.plan_words.tolist(), before.tolist()
    workers, first = words[1], 16 + 2 * ((words[1] + 4) // 4 * 4)
    idle = {i for i in range(workers) if words[16 + i] == words[17 + i]}
    for i in range(words[8] + 4 * words[4]):
        if not (first <= i < first + 12 * workers and (i - first) // 12 in idle):
            out[i] = words[i]
    return torch.tensor(out, dtype=I32, device=before.device)


def device_module(kind, d):
    """A module whose plan the operator attn_work_list writes."""
    more = {"page_size": PAGE} if kind is PagedDecode else {"max_tokens": 64}
    return kind(heads=HEADS, kv_heads=KV_HEADS, head_size=64, max_requests=4, device=d, **more)


def work_list(d, kind):
    """A call of attn_work_list, for a plan that holds the plan of no requests."""

    def i32(values):
        return torch.tensor(values, dtype=I32, device=d)

    if isinstance(torch.empty(0), FakeTensor):
        words, workers = torch.zeros(4096, dtype=I32, device=d), 264
    else:
        module = device_module(kind, d)
        words, workers = module.plan_words, module.workers
    if kind is PagedDecode:
        return (words, i32(indptr(PAGES)), workers, PAGE), {"kv_len": i32(KV)}
    return (words, i32(indptr(KV)), workers), {"qo_indptr": i32(indptr(QO))}


def cases():
    return [
        ("attn_work_list", lambda d: work_list(d, PagedDecode)),
        ("attn_work_list", lambda d: work_list(d, RaggedPrefill)),
        ("attn_decode_paged", lambda d: decode(d)),
        ("attn_decode_paged", lambda d: decode(d, 128, kv=E4M3)),
        ("attn_decode_paged", lambda d: decode(d, 192, 128, soft_cap=20.0, window_left=50, alibi=True)),
        ("mla_decode", latent),
        ("mla_decode", lambda d: latent(d, E4M3)),
        ("attn_prefill", lambda d: prefill(d)),
        ("attn_prefill", lambda d: prefill(d, 128, soft_cap=20.0, window_left=50, alibi=True)),
        ("attn_prefill", lambda d: prefill(d, 192, 128, causal=False, mask=True)),
        ("attn_prefill", lambda d: prefill(d, causal=False, window_left=9, right=20, sinks=True)),
        ("attn_sm90", lambda d: prefill(d, causal=False, window_left=9, right=20, sinks=True, template="attn_sm90")),
        ("attn_prefill_paged", lambda d: prefill(d, page=PAGE)),
        ("attn_prefill_paged", lambda d: prefill(d, 192, 128, causal=False, mask=True, page=PAGE)),
        ("attn_sm90_paged", lambda d: prefill(d, template="attn_sm90", page=PAGE)),
        ("attn_sm90_paged", lambda d: prefill(d, 128, soft_cap=20.0, window_left=50, template="attn_sm90", page=PAGE)),
        ("attn_sm90", lambda d: prefill(d, template="attn_sm90")),
        ("attn_sm90", lambda d: prefill(d, 128, soft_cap=20.0, window_left=50, template="attn_sm90")),
        ("attn_sm90", lambda d: prefill(d, 192, 128, causal=False, template="attn_sm90")),
        ("attn_sm90_e4m3", lambda d: prefill_codes(d, size=128)),
        ("attn_sm90_e4m3", lambda d: prefill_codes(d, KV_HEADS, causal=False, window_left=9, right=20, sinks=True)),
        ("attn_sm90_e4m3_paged", lambda d: prefill_codes(d, KV_HEADS, size=128, soft_cap=20.0, page=PAGE)),
    ]
