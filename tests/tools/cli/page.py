#!/usr/bin/env python3
"""page.py KILN [PAGE]: runs the commands in docs/reference/command.md and puts their output in its place.

A block of the page that begins with ```console is replaced. bash runs each line "$ COMMAND" in order, in one scratch
directory with a cache of a few hundred kernels. The command's output follows the line, and its exit status when that is
not 0. Keys in a command are the keys of the listing before it, in the same order. Text outside of these blocks stays.
The program takes a minute or two and needs NVRTC.
"""

import pathlib
import re
import shutil
import subprocess
import sys

PLAN = """[[prewarm]]
template = "rms_norm"
arch = ["sm_80", "sm_90a"]
T = ["bf16", "f16"]
H = { from = 1024, to = 16384, step = 512 }
[[prewarm]]
template = "rms_norm"
arch = "sm_90a"
T = "bf16"
H = { from = 1024, to = 8192, step = 1024 }
FUSED_ADD = true
OUT = ["bf16", "e4m3"]
[[prewarm]]
template = "act_and_mul"
arch = ["sm_80", "sm_90a", "sm_100a"]
T = ["bf16", "f16"]
D = { from = 1024, to = 14336, step = 1024 }
[[prewarm]]
template = "softmax"
arch = ["sm_90a", "sm_100a"]
T = ["bf16", "f32"]
H = { from = 64, to = 131072, times = 2 }
"""

KERNEL = """#pragma once
#include <cuda_fp16.h>

#include <cstdint>

namespace engine {
/// out[row, i] = in[row, i] * by, rows of `columns` elements.
template <typename T, int Threads = 256>
__global__ void __launch_bounds__(Threads) scale_rows(T* out, const T* in, float by, int64_t columns) {
  const int64_t row = blockIdx.x * columns;
  for (int64_t i = threadIdx.x; i < columns; i += Threads) out[row + i] = T(float(in[row + i]) * by);
}
}  // namespace engine
"""


def main():
    kiln = pathlib.Path(sys.argv[1]).resolve()
    page = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parents[3] / "docs/reference/command.md")
    home = pathlib.Path("/tmp/kiln-demo")
    shutil.rmtree(home, ignore_errors=True)
    # A separate installation, because the page edits a header.
    (home / "bin").mkdir(parents=True)
    for name in ("kiln", "kiln-worker"):
        shutil.copy(kiln.parent / name, home / "bin")
    shutil.copytree(kiln.parent / "share/kiln/templates", home / "bin/share/kiln/templates")
    (home / "plan.toml").write_text(PLAN)
    (home / "scale.cuh").write_text(KERNEL)
    environment = {
        "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "KILN_CACHE_DIR": f"{home}/cache",
        "LANG": "C.UTF-8",
    }

    def run(command):
        done = subprocess.run(
            ["bash", "-c", command], cwd=home, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out = done.stdout.replace(str(kiln.parent), "/opt/kiln/bin")
        return out + (f"[exit status {done.returncode}]\n" if done.returncode else "")

    listed = []

    def fill(block):
        out = ""
        for command in re.findall(r"^\$ (.*)$", block.group(1), re.M):
            keys = iter(listed)
            command = re.sub(r"\b[0-9a-f]{12}\b", lambda key: next(keys, key.group()), command)
            print("$", command, flush=True)
            printed = run(command)
            if command.startswith("kiln ls"):
                listed[:] = re.findall(r"^([0-9a-f]{12}) ", printed, re.M)
            out += f"$ {command}\n" + printed
        return "```console\n" + out + "```"

    text = re.sub(r"```console\n(.*?)```", fill, page.read_text(), flags=re.S)
    page.write_text(text)
    shutil.rmtree(home)


main()
