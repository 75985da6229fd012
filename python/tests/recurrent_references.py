"""The expected results of the recurrent operators, in the form of operator_references."""

import torch


def _pieces(x, cu_seqlens):
    """(batch, from, to) of each sequence."""
    if cu_seqlens is None:
        return [(b, 0, x.shape[1]) for b in range(x.shape[0])]
    ends = cu_seqlens.tolist()
    return [(0, a, b) for a, b in zip(ends, ends[1:])]


# ---- RWKV7


def rwkv7_shift_mix(x, mu, cache=None, cu_seqlens=None):
    v = x.double()
    out, last = torch.zeros(mu.shape[0], *x.shape, dtype=torch.float64, device=x.device), []
    for n, (b, start, end) in enumerate(_pieces(x, cu_seqlens)):
        before = cache[n].double() if cache is not None else torch.zeros_like(v[0, 0])
        previous = torch.cat([before.unsqueeze(0), v[b, start:end]])[:-1] if end > start else v[b, start:end]
        out[:, b, start:end] = v[b, start:end] + (previous - v[b, start:end]) * mu.double().unsqueeze(1)
        last.append(v[b, end - 1] if end > start else before)
    return (out, torch.stack(last)), {}


def rwkv7_kprep(k, a, k_k, k_a, eps=1e-6):
    k, a, k_k, k_a = (t.double() for t in (k, a, k_k, k_a))
    kk = k * k_k
    return (k + k * (a - 1) * k_a, kk * torch.rsqrt(kk.square().sum(-1, keepdim=True) + eps)), {}


def rwkv7_kvprep(k, a, k_k, k_a, v, v_first, v_rate, eps=1e-6):
    return (*rwkv7_kprep(k, a, k_k, k_a, eps)[0], torch.lerp(v.double(), v_first.double(), v_rate.double())), {}


def rwkv7_out(o, r, k, v, g, r_k, norm_weight=None, norm_bias=None, eps=0.00064, norm=False):
    o, r, k, v, g, r_k = (t.double() for t in (o, r, k, v, g, r_k))
    if norm:
        o = (o - o.mean(-1, keepdim=True)) * torch.rsqrt(o.var(-1, keepdim=True, unbiased=False) + eps)
        o = o * (1 if norm_weight is None else norm_weight.double()) + (0 if norm_bias is None else norm_bias.double())
    return ((o + (r * k * r_k).sum(-1, keepdim=True) * v) * g,), {}


def wkv7_recurrent(r, w, k, v, a, b=None, kk=None, scale=1.0, initial_state=None, cu_seqlens=None, after=None):
    r, w, k, v, a = (t.double() for t in (r, w, k, v, a))
    a, b = (a, b.double()) if kk is None else (-kk.double(), kk.double() * a)
    out, states = torch.zeros_like(v), []
    for n, (i, start, end) in enumerate(_pieces(r, cu_seqlens)):
        s = (
            initial_state[n].double()
            if initial_state is not None
            else torch.zeros(*k.shape[2:], v.shape[3], dtype=torch.float64, device=v.device)
        )
        for t in range(start, end):
            s = (
                w[i, t].exp().unsqueeze(-1) * s
                + b[i, t].unsqueeze(-1) * (a[i, t].unsqueeze(-1) * s).sum(1, keepdim=True)
                + k[i, t].unsqueeze(-1) * v[i, t].unsqueeze(1)
            )
            out[i, t] = scale * (r[i, t].unsqueeze(-1) * s).sum(1)
            if after is not None:
                after[i, t] = s
        states.append(s)
    return (out, torch.stack(states)), {}


# ---- the delta rule


def _gates(beta, g, beta_input, gate_input, a_log, dt_bias):
    """beta and the decay's logarithm in float64, from what a call's beta and g are."""
    if beta is not None:
        beta = beta.double()
        if beta_input != "plain":
            beta = torch.sigmoid(beta) * (2 if beta_input == "twice_sigmoid" else 1)
    if g is not None:
        g = g.double()
        if gate_input == "softplus":
            g = -a_log.double().exp() * torch.nn.functional.softplus(g + (0 if dt_bias is None else dt_bias.double()))
    return beta, g


def delta_recurrent(
    q,
    k,
    v,
    beta=None,
    g=None,
    scale=0.0,
    initial_state=None,
    cu_seqlens=None,
    l2norm=False,
    beta_input="plain",
    gate_input="log_decay",
    a_log=None,
    dt_bias=None,
    after=None,
):
    group = v.shape[2] // q.shape[2]
    beta, g = _gates(beta, g, beta_input, gate_input, a_log, dt_bias)
    q, k = (t.double() for t in (q, k))
    if l2norm:
        q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    q, k, v = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2), v.double()
    out, states = torch.zeros_like(v), []
    for n, (i, start, end) in enumerate(_pieces(q, cu_seqlens)):
        s = (
            initial_state[n].double()
            if initial_state is not None
            else torch.zeros(*k.shape[2:], v.shape[3], dtype=torch.float64, device=v.device)
        )
        for t in range(start, end):
            if g is not None:
                gate = g[i, t].double().exp()
                s = s * (gate.unsqueeze(-1) if gate.dim() == 2 else gate.view(-1, 1, 1))
            u = v[i, t] - (k[i, t].unsqueeze(-1) * s).sum(1)
            if beta is not None:
                u = u * (beta[i, t].double() if beta.dim() == 4 else beta[i, t].double().unsqueeze(-1))
            s = s + k[i, t].unsqueeze(-1) * u.unsqueeze(1)
            out[i, t] = (scale or k.shape[3] ** -0.5) * (q[i, t].unsqueeze(-1) * s).sum(1)
            if after is not None:
                after[i, t] = s
        states.append(s)
    return (out, torch.stack(states)), {}


# ---- pools of states


def _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices):
    """Calls recurrence(initial states, states after the tokens), and puts the states into their slots of a copy of the pool."""
    slots, lives, after = state_indices.long(), state_indices >= 0, {}
    layout = lambda s: s.transpose(-1, -2) if v_first else s
    starts = lives if has_initial_state is None else lives & (has_initial_state != 0)
    initial = torch.where(starts.view(-1, 1, 1, 1), layout(state[slots.clamp(min=0)]).double(), 0.0)
    (out, states), _ = recurrence(initial, after)
    written = state.clone()
    for n, (i, start, end) in enumerate(_pieces(out, cu_seqlens)):
        if not lives[n]:
            out[i, start:end] = 0
        elif state_out_indices is None:
            written[slots[n]] = layout(states[n]).to(state.dtype)
        else:
            for t in range(start, end):
                if state_out_indices[i, t] >= 0:
                    written[state_out_indices[i, t].long()] = layout(after[i, t]).to(state.dtype)
    return (out,), {"state": written}


def wkv7_recurrent_pool(
    r,
    w,
    k,
    v,
    a,
    state,
    state_indices,
    b=None,
    kk=None,
    scale=1.0,
    has_initial_state=None,
    cu_seqlens=None,
    v_first=False,
    state_out_indices=None,
):
    recurrence = lambda initial, after: wkv7_recurrent(r, w, k, v, a, b, kk, scale, initial, cu_seqlens, after)
    return _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices)


def delta_recurrent_pool(
    q,
    k,
    v,
    state,
    state_indices,
    beta=None,
    g=None,
    scale=0.0,
    has_initial_state=None,
    cu_seqlens=None,
    l2norm=False,
    v_first=False,
    state_out_indices=None,
    beta_input="plain",
    gate_input="log_decay",
    a_log=None,
    dt_bias=None,
):
    gates = (beta_input, gate_input, a_log, dt_bias)
    recurrence = lambda initial, after: delta_recurrent(q, k, v, beta, g, scale, initial, cu_seqlens, l2norm, *gates, after)
    return _with_pool(recurrence, state, state_indices, has_initial_state, v_first, cu_seqlens, state_out_indices)


# ---- the convolution


def _conv1d(x, weight, bias, initial, cu_seqlens, silu):
    """(out, final states [sequences, taps, D], states after the tokens by place) in float64."""
    x, weight, taps = x.double(), weight.double(), weight.shape[1] - 1
    out, finals, after = torch.zeros_like(x), [], {}
    for n, (i, start, end) in enumerate(_pieces(x, cu_seqlens)):
        before = torch.zeros_like(x[0, :1]).expand(taps, -1) if initial is None else initial[n]
        inputs = torch.cat([before, x[i, start:end]])
        for tap in range(taps + 1):
            out[i, start:end] += weight[:, tap] * inputs[tap : tap + end - start]
        finals.append(inputs[end - start :])
        after |= {(i, start + t): inputs[t + 1 : t + 1 + taps] for t in range(end - start)}
    out = out if bias is None else out + bias.double()
    return (out * torch.sigmoid(out) if silu else out), torch.stack(finals), after


def conv1d(x, weight, bias=None, cu_seqlens=None, silu=False):
    return (_conv1d(x, weight, bias, None, cu_seqlens, silu)[0],), {}


def conv1d_pool(
    x,
    weight,
    conv_state,
    state_indices,
    bias=None,
    has_initial_state=None,
    cu_seqlens=None,
    silu=False,
    taps_first=False,
    state_out_indices=None,
):
    def recurrence(initial, after):
        out, finals, states = _conv1d(x, weight, bias, initial[..., 0], cu_seqlens, silu)
        after.update({place: state[..., None] for place, state in states.items()})
        return (out, finals[..., None]), {}

    # The states as [pool, taps, D, 1], which is what _with_pool() knows.
    pool = conv_state if taps_first else conv_state.transpose(-1, -2)
    results, written = _with_pool(
        recurrence, pool[..., None], state_indices, has_initial_state, False, cu_seqlens, state_out_indices
    )
    states = written["state"][..., 0]
    return results, {"conv_state": states if taps_first else states.transpose(-1, -2)}


# ---- operators that choose one of these

delta_chunk = delta_chunk_mma = delta_rule = delta_recurrent
delta_chunk_pool = delta_chunk_mma_pool = delta_rule_pool = delta_recurrent_pool
dplr_chunk = wkv7 = wkv7_recurrent
dplr_chunk_pool = wkv7_pool = wkv7_recurrent_pool
