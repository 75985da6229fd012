"""attn_prefill against float64: ragged batches with every option and their combinations, parts of tiles merged, plans replaced under a graph."""
import itertools
import math

import torch

from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

TOLERANCE = {"f16": 1e-3, "bf16": 4e-3}
TILE_ROWS = 128


def workers_of(blocks):
    return torch.cuda.get_device_properties(0).multi_processor_count * blocks


def tile_kv_of(d):
    return 64


def make_plan(lengths, kv_heads, group, tile_kv, causal, window_left, workers, kv_begin=None, tile_rows=TILE_ROWS, cost=2):
    """A plan as kiln_attention_plan() makes one: equal shares of a line of tiles."""
    tiles, requests, qb, kb = [], [], 0, 0
    for r, (qo, kv) in enumerate(lengths):
        base = kb if kv_begin is None else kv_begin[r]
        requests.append((qb, qo, base, kv))
        for h in range(kv_heads):
            for first in range(0, qo * group, tile_rows):
                t0, t1 = first // group, (min(qo * group, first + tile_rows) - 1) // group
                high = max(0, min(kv, t1 + kv - qo + 1)) if causal else kv
                low = max(0, t0 + kv - qo - window_left) // tile_kv * tile_kv if window_left >= 0 else 0
                if high <= low:
                    low = high = 0
                tiles.append([r, h, first, qb, qo, kv, base, low, high, -1, 0, 1])
        qb, kb = qb + qo, kb + kv
    blocks = [-(-(t[8] - t[7]) // tile_kv) for t in tiles]
    share = max(4, -(-(sum(blocks) + cost * len(tiles)) // workers))
    items, begins, position, slots = [], [0] * (workers + 1), 0, 0
    per = [[] for _ in range(workers)]
    for t, n in zip(tiles, blocks):
        first, last = min(position // share, workers - 1), min((position + max(n, 1) - 1) // share, workers - 1)
        if first == last:
            per[first].append(t)
        else:
            cuts = [0] + [w * share - position for w in range(first + 1, last + 1)] + [n]
            for i, (a, b) in enumerate(zip(cuts, cuts[1:])):
                per[first + i].append(t[:7] + [t[7] + a * tile_kv, min(t[8], t[7] + b * tile_kv), slots, i, len(cuts) - 1])
            slots += len(cuts) - 1
        position += n + cost
    assert slots <= 2 * workers
    for w in range(workers):
        begins[w + 1] = begins[w] + len(per[w])
    items = [x for one in per for t in one for x in t]
    table = (workers + 1 + 3) // 4 * 4
    words = [0x4b415450, workers, len(lengths), qb, len(items) // 12, slots, 16 + 2 * table + len(items), kv_heads, tile_rows, tile_kv, group] + [0] * 5
    words += begins + [0] * (table - workers - 1) + [0] * table + items
    words += [x for r in requests for x in r]
    return torch.tensor(words, dtype=torch.int32, device="cuda")


def reference(q, k, v, lengths, causal=False, window_left=-1, cap=0.0, slopes=None, mask=None, sm_scale=0.0, kv_begin=None):
    """o [nnz, HQ, DV] and lse (base 2) [nnz, HQ] in float64."""
    group = q.shape[1] // k.shape[1]
    scale = sm_scale or q.shape[2] ** -0.5
    o = torch.zeros(q.shape[0], q.shape[1], v.shape[2], device="cuda", dtype=torch.float64)
    lse = torch.full((q.shape[0], q.shape[1]), -math.inf, device="cuda", dtype=torch.float64)
    qb, kb = 0, 0
    for r, (qo, kv) in enumerate(lengths):
        base = kb if kv_begin is None else kv_begin[r]
        i, j = torch.arange(qo, device="cuda")[:, None], torch.arange(kv, device="cuda")[None, :]
        sees = torch.ones(qo, kv, device="cuda", dtype=torch.bool)
        if mask is not None:
            sees &= mask[r]
        elif causal:
            sees &= j <= i + kv - qo
        if window_left >= 0:
            sees &= j + qo + window_left >= kv + i
        for h in range(q.shape[1]):
            if not qo or not kv:
                continue
            x = q[qb:qb + qo, h].double() @ k[base:base + kv, h // group].double().T * scale
            if slopes is not None:
                x += slopes[h].double() * (j - i)
            if cap:
                x = cap * torch.tanh(x / cap)
            x.masked_fill_(~sees, -math.inf)
            sums = torch.logsumexp(x, 1)
            lse[qb:qb + qo, h] = sums / math.log(2)
            weights = torch.exp(x - sums.nan_to_num(neginf=0.0)[:, None])
            o[qb:qb + qo, h] = weights @ v[base:base + kv, h // group].double()
        qb, kb = qb + qo, kb + kv
    return o, lse


def pack_mask(mask):
    """Bits of each request, the lowest first, each request from a byte of its own; and where they begin."""
    parts, begins = [], [0]
    for m in mask:
        bits = m.flatten().to(torch.uint8)
        bits = torch.nn.functional.pad(bits, (0, -len(bits) % 8)).view(-1, 8)
        parts.append((bits << torch.arange(8, device="cuda", dtype=torch.uint8)).sum(1).to(torch.uint8))
        begins.append(begins[-1] + len(parts[-1]))
    return torch.cat(parts), torch.tensor(begins, device="cuda", dtype=torch.int32)
