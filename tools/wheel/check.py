"""Checks a wheel: its size, its files, its tag, and what its programs and libraries need and export: check.py WHEEL

Fails with one line for each breach.
"""

import io
import pathlib
import re
import sys
import zipfile

MOST_BYTES = 8_000_000
NEEDED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
FILES = (
    r"kiln/_kiln\.(cpython-311-.*|abi3)\.so",
    r"kiln/__main__\.py",
    r"kiln/bin/kiln",
    r"kiln/lib/libkiln\.so\.0",
    r"kiln/lib/libkiln_tvm_ffi\.so",
    r"kiln/lib/pkgconfig/kiln\.pc",
    r"kiln/lib/cmake/kiln/kilnConfig\.cmake",
    r"kiln/lib/cmake/kiln/kiln-shared\.cmake",
    r"kiln/lib/cmake/kiln/kiln-headers\.cmake",
    r"kiln/libexec/kiln/kiln-worker",
    r"kiln/include/kiln/kiln\.h",
    r"kiln/share/kiln/templates/norm/rms_norm\.cu",
    r"kiln-.*\.data/data/share/bash-completion/completions/kiln",
    r"kiln-.*\.data/data/share/man/man1/kiln\.1",
    r"kiln-.*\.dist-info/entry_points\.txt",
    r"kiln-.*\.dist-info/licenses/LICENSE",
    *(
        rf"kiln-.*\.dist-info/licenses/{library}\.txt"
        for library in ("lmdb", "libsodium", "libfmt-dev", "libcxx", "nanobind", "robin-map")
    ),
)
EXPORTS = {  # what each file must export; every other file exports nothing
    r"kiln/_kiln\..*": r"PyInit__kiln",
    r"kiln/lib/libkiln\.so\.0": r"kiln_\w+",
    r"kiln/lib/libkiln_tvm_ffi\.so": r"__tvm_ffi_\w+",
    r"kiln/libexec/kiln/kiln-worker": r"mmap",  # NVRTC's heap comes from it
}


def exports(elf) -> set[str]:
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    return {s.name for s in symbols if s.name and s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"}


def breaches_of_exports(name: str, symbols: set[str]) -> list[str]:
    wanted = next((symbol for file, symbol in EXPORTS.items() if re.fullmatch(file, name)), None)
    other = sorted(symbols) if wanted is None else sorted(s for s in symbols if not re.fullmatch(wanted, s))
    if other:
        return [f"exports {', '.join(other[:5])}"]
    return [f"exports no {wanted}"] if wanted and not symbols else []


def breaches_of_elf(name: str, content: bytes, glibc: tuple[int, int], machine: str) -> list[str]:
    from elftools.elf.elffile import ELFFile  # a tool of tools/wheel.sh, which the test of this file does without

    elf = ELFFile(io.BytesIO(content))
    out = []
    if elf.get_machine_arch() != machine:
        out.append(f"is for {elf.get_machine_arch()}")
    libraries = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
    if wrong := libraries - NEEDED - {"libkiln.so.0"}:
        out.append(f"needs {', '.join(sorted(wrong))}")
    versions = elf.get_section_by_name(".gnu.version_r")
    wanted = {part.name for _, parts in versions.iter_versions() for part in parts} if versions else set()
    for version in sorted(wanted):
        number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
        if not number or (int(number[1]), int(number[2])) > glibc:
            out.append(f"needs {version}")
    out += breaches_of_exports(name, exports(elf))
    return [f"{name} {breach}" for breach in out]


def breaches_of(path: pathlib.Path) -> list[str]:
    tag = re.search(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)\.whl$", path.name)
    if not tag:
        return [f"{path.name} has no tag of manylinux"]
    out = []
    if (size := path.stat().st_size) > MOST_BYTES:
        out.append(f"{path.name} has {size} bytes, and may have {MOST_BYTES}")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        out += [f"no file {pattern}" for pattern in FILES if not any(re.fullmatch(pattern, name) for name in names)]
        for name in names:
            content = wheel.read(name)
            if name.endswith("/kiln.pc") and b" -l:libkiln.so.0" not in content:
                out.append(f"{name} links to another file than libkiln.so.0, which the wheel does not have")
            if content[:4] == b"\x7fELF":
                machine = {"x86_64": "x64", "aarch64": "AArch64"}[tag[3]]
                out += breaches_of_elf(name, content, (int(tag[1]), int(tag[2])), machine)
    return out


def main() -> int:
    path = pathlib.Path(sys.argv[1])
    found = breaches_of(path)
    for breach in found:
        print(f"{path.name}: {breach}", file=sys.stderr)
    if not found:
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, as it should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
