"""moe_align, exactly: against stable sorts in PyTorch, over several runs and numbers of
blocks; its time beside a sort.
"""

import itertools

import torch
from harness import Guarded, Row, compiled, expect_refused, expect_same_bits, kernel, peers, prefetch

SANITIZE = [
    "moe_align E=256 BLOCK=64 tokens=1",
    "moe_align E=256 BLOCK=64 tokens=1000",
    "moe_align E=97 BLOCK=16 ID=i64 LOCAL_ONLY=true tokens=2049 k=3",
    "moe_align E=512 BLOCK=128 tokens=5000 CLUSTER=1",
    "moe_align E=256 BLOCK=64 tokens=9001 CLUSTERS=4",
]


def capacity_of(n, experts, block):
    return -(-(n + min(n, experts) * (block - 1)) // block) * block


def reference(ids, experts, block, capacity, expert_map=None, local_only=False):
    n = ids.numel()
    flat = ids.reshape(-1).long()
    sorted_ = (flat >= 0) & (flat < experts)
    if local_only:
        sorted_ &= expert_map.long()[flat.clamp(0, experts - 1)] >= 0
    counts = torch.bincount(flat[sorted_], minlength=experts)
    padded = -(-counts // block) * block
    ends, starts = padded.cumsum(0), padded.cumsum(0) - padded
    order = torch.where(sorted_, flat, experts).sort(stable=True).indices[: int(counts.sum())]
    expert = flat[order]
    place = starts[expert] + torch.arange(len(order), device=ids.device) - (counts.cumsum(0) - counts)[expert]
    out = torch.full((capacity,), n, device=ids.device, dtype=torch.int32)
    out[place] = order.int()
    inverse = torch.full((n,), -1, device=ids.device, dtype=torch.int32)
    inverse[order] = place.int()
    total = int(ends[-1])
    of_block = torch.full((capacity // block,), -1, device=ids.device, dtype=torch.int32)
    owners = torch.repeat_interleave(torch.arange(experts, device=ids.device), padded // block).int()
    of_block[: total // block] = owners if expert_map is None else expert_map[owners.long()]
    return out, of_block, total, inverse


def run(ids, experts, block, expert_map=None, capacity=None, **parameters):
    tokens, k = ids.shape
    capacity = capacity_of(ids.numel(), experts, block) if capacity is None else capacity
    outs = [Guarded(size, dtype="i32") for size in (capacity, capacity // block, 1, tokens * k)]
    dtype = "i64" if ids.dtype == torch.int64 else "i32"
    align = kernel("moe_align", ID=dtype, E=experts, BLOCK=block, **parameters)
    align(*(o.view for o in outs), ids, tokens, k, ids.stride(0) if tokens > 1 else k, capacity, expert_map)
    return outs


def expect_right(ids, experts, block, expert_map=None, capacity=None, what="", **parameters):
    outs = run(ids, experts, block, expert_map, capacity, **parameters)
    size = capacity_of(ids.numel(), experts, block) if capacity is None else capacity
    want, of_block, total, inverse = reference(ids, experts, block, size, expert_map, parameters.get("LOCAL_ONLY", False))
    assert int(outs[2].view[0]) == total, f"{what}: num_tokens_post_padded {int(outs[2].view[0])}, wanted {total}"
    for name, got, right in (("sorted_token_ids", outs[0], want), ("expert_ids", outs[1], of_block), ("inverse", outs[3], inverse)):
        wrong = (got.view != right).nonzero().flatten()
        assert len(wrong) == 0, (
            f"{what}: {name} has {len(wrong)} wrong of {len(right)}, first at {int(wrong[0])}: {int(got.view[wrong[0]])}, wanted {int(right[wrong[0]])}"
        )
    for o in outs:
        o.check(what)


def topk_ids(tokens, k, experts, dtype=torch.int32):
    return torch.rand(tokens, experts, device="cuda").topk(k, -1).indices.to(dtype)


def test_every_size():
    kinds = [
        (256, 64, 8),
        (256, 128, 8),
        (128, 16, 8),
        (8, 64, 2),
        (8, 1, 8),
        (1, 16, 1),
        (7, 5, 3),
        (33, 32, 6),
        (160, 64, 6),
        (384, 64, 8),
        (512, 128, 10),
        (257, 1024, 4),
    ]
    for experts, block, _ in kinds:
        prefetch("moe_align", ID="i32", E=experts, BLOCK=block)
    for (experts, block, k), tokens in itertools.product(kinds, (1, 2, 7, 8, 64, 127, 255, 256, 257, 509, 1024, 2047, 4096, 8192)):
        expect_right(topk_ids(tokens, k, experts), experts, block, what=f"E={experts} BLOCK={block} k={k} tokens={tokens}")
    expect_right(topk_ids(4099, 8, 256, torch.int64), 256, 64, what="i64")
    expect_right(topk_ids(65537, 8, 256), 256, 64, what="65537 tokens")


def skewed(tokens, k, experts):
    yield "all to one", torch.full((tokens, k), experts // 2, device="cuda", dtype=torch.int32)
    yield "all to the last", torch.full((tokens, k), experts - 1, device="cuda", dtype=torch.int32)
    yield "two experts", torch.randint(0, 2, (tokens, k), device="cuda", dtype=torch.int32) * (experts - 1)
    yield "ascending", (torch.arange(tokens * k, device="cuda", dtype=torch.int32) * experts // (tokens * k)).view(tokens, k)
    yield (
        "descending",
        (experts - 1 - torch.arange(tokens * k, device="cuda", dtype=torch.int32) * experts // (tokens * k)).view(tokens, k),
    )
    yield "normal", (torch.randn(tokens, k, device="cuda") * experts / 8 + experts / 2).clamp(0, experts - 1).int()


def test_skewed_ids():
    for experts, tokens in itertools.product((8, 256, 512), (1, 63, 1000, 4096)):
        for what, ids in skewed(tokens, 8, experts):
            expect_right(ids, experts, 64, what=f"{what}, E={experts} tokens={tokens}")


def test_ids_out_of_range_are_left_out():
    for dtype, tokens in itertools.product((torch.int32, torch.int64), (1, 100, 4096)):
        ids = torch.randint(-40, 300, (tokens, 8), device="cuda", dtype=dtype)
        expect_right(ids, 256, 64, what=f"{dtype} {tokens}")
        expect_right(torch.full_like(ids, -1), 256, 64, what="nothing but -1")
    far = torch.randint(0, 256, (100, 8), device="cuda")
    far[::3] += 1 << 32  # must not be taken for their lower 32 bits
    expect_right(far, 256, 64, what="beyond 32 bits")


def test_expert_map():
    for tokens in (1, 64, 4096, 9001):
        local = torch.full((256,), -1, device="cuda", dtype=torch.int32)
        local[64:96] = torch.arange(32, device="cuda", dtype=torch.int32)
        ids = topk_ids(tokens, 8, 256)
        expect_right(ids, 256, 64, local, what=f"blocks of -1, {tokens}")
        expect_right(ids, 256, 64, local, LOCAL_ONLY=True, what=f"LOCAL_ONLY, {tokens}")


def test_strides_and_capacity():
    for dtype in (torch.int32, torch.int64):
        wide = torch.randint(0, 128, (1001, 13), device="cuda", dtype=dtype)
        expect_right(wide[:, 1:7], 128, 32, what="row stride 13")
    far = Guarded(3, 8, dtype="i32", strides=((1 << 31) + 8, 1))
    far.view.copy_(topk_ids(3, 8, 256))
    expect_right(far.view, 256, 64, what="a stride beyond 2^31")
    del far
    ids = topk_ids(64, 8, 256)
    expect_right(ids, 256, 64, capacity=64 * 8 + 256 * 63, what="vLLM's capacity")
    expect_right(ids, 256, 64, capacity=100003, what="an odd capacity")
    expect_refused(lambda: run(ids, 256, 64, capacity=64), "capacity")


def test_identical_over_runs_and_blocks():
    for tokens in (64, 1000, 4096, 8192):
        ids = topk_ids(tokens, 8, 256)
        first = run(ids, 256, 64)
        for more in ({},) * 20 + tuple({"CLUSTER": c} for c in (1, 2, 4, 8, 16)) + tuple({"THREADS": t} for t in (256, 512, 1024)):
            for a, b in zip(run(ids, 256, 64, **more), first):
                expect_same_bits(a.view, b.view, f"{tokens} tokens, {more}")
    for cluster in (1, 2, 4, 8, 16):
        for what, ids in skewed(1500, 8, 256):
            expect_right(ids, 256, 64, CLUSTER=cluster, what=f"{what}, CLUSTER={cluster}")


def test_several_clusters():
    """The result does not depend on the number of clusters. A cluster of one block needs fewer pairs to be one of several."""
    for tokens, k, cluster in ((1, 8, 8), (4096, 8, 8), (4097, 8, 8), (20011, 8, 8), (65537, 8, 8), (1500, 8, 1), (9001, 5, 2)):
        ids = topk_ids(tokens, k, 256)
        first = run(ids, 256, 64, CLUSTER=cluster)
        for clusters in (2, 4, 8, 16):
            what = f"{tokens} tokens, CLUSTER={cluster}, CLUSTERS={clusters}"
            expect_right(ids, 256, 64, CLUSTER=cluster, CLUSTERS=clusters, what=what)
            for a, b in zip(run(ids, 256, 64, CLUSTER=cluster, CLUSTERS=clusters), first):
                expect_same_bits(a.view, b.view, what)
    local = torch.full((256,), -1, device="cuda", dtype=torch.int32)
    local[::5] = torch.arange(52, device="cuda", dtype=torch.int32)
    for dtype, cluster in itertools.product((torch.int32, torch.int64), (1, 8)):
        for what, ids in skewed(17000, 8, 256):
            expect_right(ids.to(dtype), 256, 64, CLUSTER=cluster, CLUSTERS=8, what=f"{what}, CLUSTER={cluster}")
        wide = torch.randint(-40, 300, (17000, 13), device="cuda", dtype=dtype)[:, 2:10]
        expect_right(wide, 256, 64, local, CLUSTER=cluster, CLUSTERS=8, LOCAL_ONLY=True, what=f"LOCAL_ONLY, CLUSTER={cluster}")
        expect_right(wide, 256, 16, local, 200003, CLUSTER=cluster, CLUSTERS=8, what=f"an odd capacity, CLUSTER={cluster}")


def test_no_tokens_and_refusals():
    outs = [Guarded(size, dtype="i32") for size in (128, 2, 1, 8)]
    kernel("moe_align", ID="i32", E=256, BLOCK=64)(
        *(o.view for o in outs), torch.empty(1, 8, device="cuda", dtype=torch.int32), 0, 8, 8, 128
    )
    assert (
        int(outs[2].view[0]) == 0
        and bool((outs[0].view == 0).all())
        and bool((outs[1].view == -1).all())
        and bool((outs[3].view == -1).all())
    )
    for o in outs:
        o.check("no tokens")
    ids = torch.zeros(1, 8, device="cuda", dtype=torch.int32)
    expect_refused(
        lambda: kernel("moe_align", ID="i32", E=256, BLOCK=64, LOCAL_ONLY=True)(*(o.view for o in outs), ids, 1, 8, 8, 128),
        "LOCAL_ONLY",
        "expert_map",
    )
    expect_refused(
        lambda: kernel("moe_align", ID="i32", E=256, BLOCK=64)(*(o.view for o in outs), ids, 1, 8, 8, (1 << 31) - 1),
        "capacity",
        "2147483647",
    )
    expect_refused(lambda: kernel("moe_align", E=513, BLOCK=64), "E")
    expect_refused(lambda: kernel("moe_align", E=512, BLOCK=64, THREADS=256), "THREADS")


def sort_based(ids, experts, block, capacity):
    """moe_align by a sort in PyTorch. It has static shapes and no host sync, as a graph needs."""
    n = ids.numel()
    flat = ids.reshape(-1)
    by_expert, order = flat.sort(stable=True)
    counts = torch.zeros(experts, device=ids.device, dtype=torch.int32).scatter_add_(0, flat.long(), torch.ones_like(flat))
    padded = (counts + block - 1) // block * block
    ends = padded.cumsum(0)
    shift = (ends - padded) - (counts.cumsum(0) - counts)
    place = torch.arange(n, device=ids.device) + shift[by_expert.long()]
    out = torch.full((capacity,), n, device=ids.device, dtype=torch.int32).scatter_(0, place, order.int())
    inverse = torch.empty(n, device=ids.device, dtype=torch.int32).scatter_(0, order, place.int())
    first = torch.arange(capacity // block, device=ids.device) * block
    of_block = torch.where(first < ends[-1], torch.searchsorted(ends, first, right=True), -1).int()
    return out, of_block, ends[-1:], inverse


def bench():
    for tokens, experts, block, k in [(t, 256, 64, 8) for t in (1, 8, 64, 512, 4096, 8192)] + [
        (4096, 256, 128, 8),
        (1, 128, 64, 8),
        (64, 128, 16, 8),
        (4096, 128, 128, 8),
        (4096, 384, 64, 8),
        (4096, 8, 128, 2),
        (65536, 256, 128, 8),
    ]:
        capacity, n = capacity_of(tokens * k, experts, block), tokens * k
        align = kernel("moe_align", ID="i32", E=experts, BLOCK=block)
        launches = {
            "kiln": lambda s, e, p, i, ids, align=align, tokens=tokens, k=k, capacity=capacity: align(
                s, e, p, i, ids, tokens, k, k, capacity
            ),
            "eager": lambda s, e, p, i, ids, experts=experts, block=block, capacity=capacity: sort_based(
                ids, experts, block, capacity
            ),
        }
        if tokens >= 512 and experts == 256:
            # A candidate only, as not every GPU has clusters of 16.
            wide = kernel("moe_align", ID="i32", E=experts, BLOCK=block, CLUSTER=16)
            launches["kiln CLUSTER=16"] = lambda s, e, p, i, ids, align=wide, tokens=tokens, k=k, capacity=capacity: align(
                s, e, p, i, ids, tokens, k, k, capacity
            )
        if tokens >= 8192:
            for clusters in (4, 8):
                many = kernel("moe_align", ID="i32", E=experts, BLOCK=block, CLUSTERS=clusters)
                launches[f"kiln CLUSTERS={clusters}"] = lambda s, e, p, i, ids, align=many, tokens=tokens, k=k, capacity=capacity: (
                    align(s, e, p, i, ids, tokens, k, k, capacity)
                )
        if tokens in (64, 4096) and block == 64:
            launches["compile"] = compiled(launches["eager"])
        for label, peer in peers.get("moe_align").items():
            launches[label] = lambda s, e, p, i, ids, peer=peer, experts=experts, block=block: peer(ids, experts, block, s, e, p)

        def make(tokens=tokens, k=k, experts=experts, block=block, capacity=capacity):
            # The size that peers need, and fill.
            room = max(capacity, -(-(tokens * k + (experts + 1) * (block - 1)) // block) * block)
            return (
                *(torch.empty(size, device="cuda", dtype=torch.int32) for size in (room, room // block, 1, tokens * k)),
                topk_ids(tokens, k, experts),
            )

        yield Row(
            f"moe_align {tokens} tokens k {k} E {experts} BLOCK {block}",
            n * 4,
            capacity * 4 + capacity // block * 4 + n * 4,
            make,
            launches,
            bar=0.0,
            bar_us=10.0 if tokens <= 4096 else 0.0,
        )
