"""`kiln engines`: which engines kiln knows, and what it writes for them."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys

#: the name of each adapter, the distribution that it is for, and how it is switched on
ADAPTERS = (
    ("transformers", "transformers", "kiln.engines.transformers.apply(model)"),
    ("flashinfer", "flashinfer-python", "kiln.engines.flashinfer.install()"),
    ("tvm-ffi", "apache-tvm-ffi", "kiln.tvm_ffi.function(NAME), kiln.tvm_ffi.export(DIR, PLAN)"),
    ("vllm", "vllm", "KILN_VLLM=1"),
    ("sglang", "sglang", "KILN_SGLANG=1"),
    ("kernels", "kernels", "kiln engines hf-kernel DIR"),
)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kiln engines", description="Lists the engines that kiln has adapters for.")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    kernel = parser.add_subparsers(dest="command").add_parser(
        "hf-kernel", help="write a kernel of Hugging Face's package kernels", description="Writes DIR/build/torch-cuda."
    )
    kernel.add_argument("DIR")
    given = parser.parse_args(arguments)
    if given.command == "hf-kernel":
        from . import hf_kernel

        try:
            print(hf_kernel.write(given.DIR))
        except OSError as error:
            print(f"kiln engines hf-kernel: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
            return 1
        return 0
    rows = [{"engine": name, "installed": _version(dist), "switch": switch} for name, dist, switch in ADAPTERS]
    if given.json:
        print(json.dumps({"schema": "kiln.engines/1", "engines": rows}))
        return 0
    for row in rows:
        print(f"{row['engine']:<14}{row['installed'] or 'not installed':<16}{row['switch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
