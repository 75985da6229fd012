"""Weights of 4 bits with scales: how they are quantised, packed for the operator moe_gemm_w4a16, and unpacked.

A weight is [experts, rows, K], with rows in multiples of 16. templates/moe_four_bits/codes.cuh has the layout of packed codes.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ._shapes import of_shape, of_type, refuse

E8M0 = torch.float8_e8m0fnu
#: the rows, the elements of K and the words of a tile of packed codes
ROWS, COLUMNS, WORDS = 16, 64, 128
#: elements of a row that share a scale
GROUPS = (32, 64, 128)
#: what the codes of e2m1 stand for; the next eight are their negatives
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: the places of the four pairs in each half of a word: of a code of int4, and of the three bits and the sign of e2m1
_INT4, _BITS, _SIGN = (0, 4, 8, 12), (6, 9, 3, 0), (15, 14, 12, 13)


class FourBits(NamedTuple):
    """A packed weight, as pack_int4(), pack_mxfp4(), quantize_int4() and quantize_mxfp4() make it."""

    codes: Tensor  #: i32 [experts, rows / 16, ceil(K / 64), 128]
    scales: Tensor  #: [experts, rows / 16, groups, 16]: bf16 or f16 for int4, e8m0 for MXFP4
    zeros: Tensor | None = None  #: u8, as scales: the code of 0 in each group, where it is not 8


def pack_int4(codes: Tensor, scales: Tensor, zeros: Tensor | None = None) -> FourBits:
    """Packs int4 weights: (code - zero) * scale, for codes u8 [experts, rows, K] from 0 to 15.

    scales, bf16 or f16, and zeros, u8, are [experts, rows, ceil(K / group)] with groups of 32, 64 or 128 elements. Without
    zeros the zero is 8.
    """
    _check_codes(codes)
    if scales.dtype not in (torch.bfloat16, torch.float16):
        refuse(f"scales is {scales.dtype}, expected torch.bfloat16 or torch.float16")
    group = _group(codes, scales)
    if zeros is not None:
        of_type(torch.uint8, zeros=zeros)
        of_shape(zeros, "zeros", *scales.shape)
    return FourBits(
        _packed(codes, False), _by_tile(scales, codes, group), zeros if zeros is None else _by_tile(zeros, codes, group)
    )


def pack_mxfp4(codes: Tensor, scales: Tensor) -> FourBits:
    """Packs MXFP4 weights: codes of e2m1, and scales in e8m0 (or their bits, u8) for each 32 of K.

    codes is u8 [experts, rows, K]; or [experts, rows, K / 32, 16] with two codes in a byte, the first in the low half, as
    checkpoints of gpt-oss have it. scales is [experts, rows, ceil(K / 32)].
    """
    of_type(torch.uint8, codes=codes)
    if codes.dim() == 4:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(2)
    _check_codes(codes)
    if scales.dtype not in (torch.uint8, E8M0):
        refuse(f"scales is {scales.dtype}, expected torch.uint8 or {E8M0}")
    of_shape(scales, "scales", *codes.shape[:2], -(-codes.shape[2] // 32))
    return FourBits(_packed(codes, True), _by_tile(scales.view(torch.uint8), codes, 32).view(E8M0))


def quantize_int4(weight: Tensor, group: int = 128) -> FourBits:
    """A weight [experts, rows, K] in int4, with a scale in bf16 (f16 for a weight in f16) for each `group` elements of a row."""
    if group not in GROUPS:
        refuse(f"group = {group}, expected one of {', '.join(map(str, GROUPS))}")
    codes, scales = [], []
    for one in weight:
        parts = _groups(one, group)
        scale = (parts.abs().amax(-1) / 7).to(torch.float16 if weight.dtype == torch.float16 else torch.bfloat16)
        steps = parts / scale.float().clamp(min=1e-30).unsqueeze(-1)
        codes.append((steps.round().clamp(-8, 7) + 8).to(torch.uint8).flatten(1)[:, : one.shape[1]])
        scales.append(scale)
    return pack_int4(torch.stack(codes), torch.stack(scales))


def quantize_mxfp4(weight: Tensor) -> FourBits:
    """A weight [experts, rows, K] in MXFP4, each group with the smallest scale that saturates nothing."""
    codes, scales = [], []
    steps = torch.tensor(E2M1, device=weight.device)
    for one in weight:
        parts = _groups(one, 32)
        exponent = (parts.abs().amax(-1) / E2M1[-1]).clamp(min=2.0**-126).log2().ceil()
        near = parts * torch.exp2(-exponent).unsqueeze(-1)
        code = torch.bucketize(near.abs(), (steps[1:] + steps[:-1]) / 2) + 8 * near.signbit()
        codes.append(code.to(torch.uint8).flatten(1)[:, : one.shape[1]])
        scales.append((exponent + 127).to(torch.uint8))
    return pack_mxfp4(torch.stack(codes), torch.stack(scales))


def group_of(codes: Tensor, scales: Tensor) -> int:
    """The elements of a row that share a scale."""
    tiles, groups = codes.shape[2], scales.shape[2]
    return 32 if groups == 2 * tiles else 64 if groups == tiles else 128


def groups_of(columns: int, group: int) -> int:
    """The groups of a packed row, which consists of whole tiles."""
    return -(-(-(-columns // COLUMNS) * COLUMNS) // group)


def codes_of(scales: Tensor) -> str:
    """The parameter CODES of moe_gemm_w4a16."""
    return "e2m1" if scales.dtype == E8M0 else "int4"


def unpacked(weight: FourBits, columns: int) -> Tensor:
    """The weight in f32 [experts, rows, K]."""
    codes, scales, zeros = weight
    mx = codes_of(scales) == "e2m1"
    experts, tiles, tiles_k, _ = codes.shape
    words = codes.view(experts, tiles, tiles_k, 8, 4, 2, 2)
    parts = []
    for pair in range(4):
        for half in (0, 16):
            if mx:
                parts.append((words >> (_BITS[pair] + half)) & 7 | ((words >> (_SIGN[pair] + half)) & 1) << 3)
            else:
                parts.append((words >> (_INT4[pair] + half)) & 15)
    each = torch.stack(parts, -1).unflatten(-1, (2, 2, 2)).permute(0, 1, 8, 3, 2, 5, 4, 6, 7, 9)
    each = each.reshape(experts, tiles * ROWS, tiles_k * COLUMNS)[:, :, :columns]

    def of_elements(of_groups: Tensor) -> Tensor:
        by_row = of_groups.unflatten(-1, (8, 2)).permute(0, 1, 4, 3, 2).flatten(1, 3)
        return by_row.float().repeat_interleave(group_of(codes, scales), 2)[:, :, :columns]

    if mx:
        table = torch.tensor((*E2M1, *(-x for x in E2M1)), device=codes.device)
        return table[each.long()] * torch.exp2(of_elements(scales.view(torch.uint8)) - 127)
    return (each - (8 if zeros is None else of_elements(zeros))) * of_elements(scales)


def _check_codes(codes: Tensor) -> None:
    of_type(torch.uint8, codes=codes)
    if codes.dim() != 3 or codes.shape[1] % ROWS:
        refuse(f"codes is {list(codes.shape)}, expected [experts, rows, K] with rows in multiples of {ROWS}")


def _group(codes: Tensor, scales: Tensor) -> int:
    """The elements of a group, by the shapes of unpacked codes and scales."""
    for group in GROUPS:
        if tuple(scales.shape) == (*codes.shape[:2], -(-codes.shape[2] // group)):
            return group
    groups = ", ".join(str(-(-codes.shape[2] // group)) for group in GROUPS)
    refuse(f"scales is {list(scales.shape)}, expected {list(codes.shape[:2])} and one of {groups} groups")
    raise AssertionError


def _groups(weight: Tensor, group: int) -> Tensor:
    """The rows of one expert's weight in groups, f32 [rows, groups, group], filled up with zeros."""
    return F.pad(weight.float(), (0, -weight.shape[1] % group)).unflatten(1, (-1, group))


def _packed(codes: Tensor, mx: bool) -> Tensor:
    return torch.stack([_packed_expert(one, mx) for one in codes])


def _packed_expert(codes: Tensor, mx: bool) -> Tensor:
    """The words [rows / 16, ceil(K / 64), 128] of codes [rows, K]."""
    tiles = codes.shape[0] // ROWS
    # tile, row / 8, row % 8, tile of K, and six parts of an element's place in it: 2, 4, 2, 2 and 2
    each = F.pad(codes, (0, -codes.shape[1] % COLUMNS)).view(tiles, 2, 8, -1, 2, 4, 2, 2, 2)
    each = each.permute(0, 3, 2, 5, 4, 6, 7, 1, 8).flatten(-3).long()
    words = torch.zeros_like(each[..., 0])
    for pair in range(4):
        for half in range(2):
            code = each[..., 2 * pair + half]
            if mx:
                words |= (code & 7) << (_BITS[pair] + 16 * half) | (code >> 3) << (_SIGN[pair] + 16 * half)
            else:
                words |= code << (_INT4[pair] + 16 * half)
    return words.view(torch.int32)[..., ::2].reshape(tiles, -1, WORDS)


def _by_tile(of_groups: Tensor, codes: Tensor, group: int) -> Tensor:
    """Scales or zeros [experts, rows, groups] in the order of the kernel. Groups beyond K have zeros."""
    padded = F.pad(of_groups, (0, groups_of(codes.shape[2], group) - of_groups.shape[2]))
    experts, rows, groups = padded.shape
    return padded.view(experts, rows // ROWS, 2, 8, groups).permute(0, 1, 4, 3, 2).reshape(experts, rows // ROWS, groups, ROWS)
