"""Writes a module of tvm-ffi: a copy of libkiln_tvm_ffi.so with other names and another table. Needs no compiler."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Mapping

TEMPLATE = pathlib.Path(__file__).parent / "lib" / "libkiln_tvm_ffi.so"
MAGIC = b"kiln tvm-ffi module, format 1\0"
_SLOT = b"__tvm_ffi_kiln_slot_"
_LIBRARY, _LIBRARY_SIZE, _FUNCTIONS, _FUNCTION_SIZE = 32, 480, 512, 512  # Table in python/tvm_ffi/module.cpp
_PT_DYNAMIC, _PT_LOAD = 2, 1
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 4, 5, 6, 10


def write(path: pathlib.Path, functions: Mapping[str, str], library: str) -> None:
    """Writes a module with a function for each name. A value is a signature (python/tvm_ffi/call.hpp), or '!' and an
    error. `library` is libkiln's path, absolute or relative to the module's directory; "": the loader searches.

    The file is replaced in one step, so a process that has loaded the old one keeps it. Raises ValueError for what
    does not fit.
    """
    data = bytearray(TEMPLATE.read_bytes())
    table = data.index(MAGIC)
    _put(data, table + _LIBRARY, library, _LIBRARY_SIZE, "the path of libkiln")
    slots = _slots(data)
    if len(functions) > len(slots):
        raise ValueError(f"{len(functions)} functions: a module has at most {len(slots)}")
    for i, (name, signature) in enumerate(functions.items()):
        _put(data, slots[i][1], f"__tvm_ffi_{name}", slots[i][2], f"the name {name}")
        _put(data, table + _FUNCTIONS + i * _FUNCTION_SIZE, signature, _FUNCTION_SIZE, f"the signature of {name}")
    for symbol, _, _ in slots[len(functions) :]:
        struct.pack_into("<I", data, _dynamic(data)[_DT_SYMTAB] + 24 * symbol, 0)  # no name
    _chain(data, [symbol for symbol, _, _ in slots[: len(functions)]])
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(data)
    new.chmod(0o755)
    new.replace(path)


def loaded_library() -> str:
    """The path of the libkiln that this process has; "" when the linker has made it a part of something else."""
    with open("/proc/self/maps") as maps:
        return next((line.split(None, 5)[5].strip() for line in maps if "/libkiln.so" in line), "")


def _put(data: bytearray, at: int, text: str, size: int, what: str) -> None:
    raw = text.encode()
    if len(raw) >= size or b"\0" in raw:
        raise ValueError(f"{what} has {len(raw)} bytes, expected at most {size - 1}")
    data[at : at + size] = raw.ljust(size, b"\0")


def _dynamic(data: bytearray) -> dict[int, int]:
    """Offsets in the file of the tables that the dynamic section names, and the size of the string table."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{TEMPLATE} is no 64-bit little-endian ELF file")
    offset, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
    begin, length = next((h[2], h[5]) for h in headers if h[0] == _PT_DYNAMIC)
    entries = dict(struct.unpack_from("<QQ", data, begin + i) for i in range(0, length, 16))

    def in_file(address: int) -> int:
        return next(address - h[3] + h[2] for h in headers if h[0] == _PT_LOAD and h[3] <= address < h[3] + h[5])

    return {_DT_STRSZ: entries[_DT_STRSZ]} | {tag: in_file(entries[tag]) for tag in (_DT_HASH, _DT_STRTAB, _DT_SYMTAB)}


def _slots(data: bytearray) -> list[tuple[int, int, int]]:
    """The slots in order: the index of the symbol, the place of its name in the file, and the room for the name."""
    at = _dynamic(data)
    (symbols,) = struct.unpack_from("<I", data, at[_DT_HASH] + 4)  # nchain
    found = []
    for i in range(symbols):
        (name,) = struct.unpack_from("<I", data, at[_DT_SYMTAB] + 24 * i)
        place = at[_DT_STRTAB] + name
        if data.startswith(_SLOT, place):
            found.append((data[place : data.index(0, place)].decode(), i, place))
    return [(i, place, len(name) + 1) for name, i, place in sorted(found)]


def _chain(data: bytearray, symbols: list[int]) -> None:
    """Makes the hash table one bucket with these symbols, so that no hash is needed. Other symbols are not found.

    The table is nbucket, nchain, bucket[nbucket], chain[nchain]; an entry of a chain is the next symbol, or 0.
    """
    at = _dynamic(data)[_DT_HASH]
    _, count = struct.unpack_from("<II", data, at)
    chain = [0] * count
    for symbol, following in zip(symbols, symbols[1:]):
        chain[symbol] = following
    struct.pack_into(f"<{3 + count}I", data, at, 1, count, symbols[0] if symbols else 0, *chain)
