"""Launch overhead at decode sizes, with and without programmatic dependent launch.

A graph has ten kernels, each of which depends on the previous one.
"""

import os
import pathlib
import re

from harness import Row, add_template, kernel, normal


def without_pdl(name):
    """A copy of the template that is launched without the attribute for programmatic dependent launch."""
    for directory in os.environ["KILN_TEMPLATE_PATH"].split(":"):
        for manifest in pathlib.Path(directory).glob(f"*/{name}.toml"):
            source = manifest.with_suffix(".cu")
            text = re.sub(
                r"(?s)\[reference\].*?(?=\n\[)",
                "",
                manifest.read_text()
                .replace(f'name = "{name}"', f'name = "{name}_plain"', 1)
                .replace(f'source = "{name}.cu"', f'source = "{name}_plain.cu"', 1),
            )
            add_template(text.replace("pdl = true", "pdl = false"), source.read_text())
            return name + "_plain"
    raise FileNotFoundError(name)


def bench():
    links = 10
    plain = without_pdl("rms_norm"), without_pdl("act_and_mul")
    for rows, h in ((1, 4096), (8, 4096), (64, 4096), (64, 8192)):
        pair = kernel("rms_norm", T="bf16", H=h), kernel(plain[0], T="bf16", H=h)

        def chain(k, a, b, w, rows=rows, h=h):
            for _ in range(links // 2):
                k(b, a, w, rows, h, h, 1e-6)
                k(a, b, w, rows, h, h, 1e-6)

        yield Row(
            f"ten rms_norm bf16 {rows} x {h}",
            links * 2 * rows * h,
            links * 2 * rows * h,
            lambda rows=rows, h=h: (normal(rows, h), normal(rows, h), normal(h)),
            {
                "kiln": lambda a, b, w, k=pair[0], c=chain: c(k, a, b, w),
                "kiln without PDL": lambda a, b, w, k=pair[1], c=chain: c(k, a, b, w),
            },
            bar=0,
        )
        norm, act = (
            [kernel(n, T="bf16", H=h) for n in ("rms_norm", plain[0])],
            [kernel(n, T="bf16", D=h) for n in ("act_and_mul", plain[1])],
        )

        def mixed(n, a, x, y, w, rows=rows, h=h):
            for _ in range(links // 2):  # the norm writes the first half of y's 2 h columns
                n(y, x, w, rows, h, 2 * h, 1e-6)
                a(x, y, rows, 2 * h, h)

        yield Row(
            f"five rms_norm and act_and_mul bf16 {rows} x {h}",
            links // 2 * 5 * rows * h,
            links // 2 * 4 * rows * h,
            lambda rows=rows, h=h: (normal(rows, h), normal(rows, 2 * h), normal(h)),
            {
                "kiln": lambda x, y, w, c=mixed, n=norm[0], a=act[0]: c(n, a, x, y, w),
                "kiln without PDL": lambda x, y, w, c=mixed, n=norm[1], a=act[1]: c(n, a, x, y, w),
            },
            bar=0,
        )
