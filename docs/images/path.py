#!/usr/bin/env python3
"""Draws the path of a call: path-light.svg and path-dark.svg beside this script, and logo.svg.

docs/images/path.py
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

PALETTES = {
    "light": {
        "page": "none",
        "box": "#fffaf5",
        "edge": "#d6c7b8",
        "text": "#1c1917",
        "quiet": "#57534e",
        "line": "#78716c",
        "hit": "#15803d",
        "accent": "#c2410c",
        "fill": "#9a3412",
        "on_fill": "#ffffff",
        "soft": "#ffedd5",
    },
    "dark": {
        "page": "none",
        "box": "#292524",
        "edge": "#57534e",
        "text": "#f5f5f4",
        "quiet": "#c4beb8",
        "line": "#a8a29e",
        "hit": "#4ade80",
        "accent": "#fb923c",
        "fill": "#9a3412",
        "on_fill": "#ffffff",
        "soft": "#431f10",
    },
}

# Title, lines of explanation, where the step takes place.
STEPS = (
    ("memory", ("ready kernels,", "then images"), "this process"),
    ("disk", ("read-only layers,", "then the store"), "this host"),
    ("flight", ("one caller compiles,", "the others wait"), "this host"),
    ("remote", ("signed entries of", "the fleet's servers"), "optional"),
    ("compile", ("NVRTC makes", "a cubin"), "worker process"),
)

WIDTH, HEIGHT = 1000, 446
BOX, GAP, LEFT = 164, 39, 12
TOP, TALL = 118, 104
LOAD, END = 302, 388


class Drawing:
    def __init__(self, palette: dict[str, str]) -> None:
        self.colour = palette
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, edge: str, dash: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dash else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" fill="{self.colour[fill]}" '
            f'stroke="{self.colour[edge]}" stroke-width="1.5"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 14,
        colour: str = "text",
        anchor: str = "middle",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{self.colour[colour]}"{weight}{family}>{words}</text>'
        )

    def arrow(self, points: list[tuple[float, float]], colour: str, dash: bool = False) -> None:
        dashes = ' stroke-dasharray="5 4"' if dash else ""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{self.colour[colour]}" stroke-width="2" stroke-linejoin="round"{dashes} '
            f'marker-end="url(#{colour})"/>'
        )

    def svg(self) -> str:
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="6.5" markerHeight="6.5" orient="auto">'
            f'<path d="M0 0.8 L9.5 5 L0 9.2 z" fill="{self.colour[name]}"/></marker>'
            for name in ("line", "hit", "accent")
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
            f'font-family="{FONT}">\n<title>The path of a call of kiln</title>\n'
            "<desc>A call looks in memory, on disk, waits for or starts a flight, asks the remote servers, compiles, publishes and loads.</desc>\n"
            f"<defs>{heads}</defs>\n{body}\n</svg>\n"
        )


def left(step: int) -> float:
    return LEFT + step * (BOX + GAP)


def middle(step: int) -> float:
    return left(step) + BOX / 2


def picture(palette: dict[str, str]) -> str:
    d = Drawing(palette)
    memory, disk, flight, remote, compiler = range(5)

    # The caller, and the row of places that it looks in.
    d.box(left(memory), 14, BOX, 50, "soft", "accent")
    d.text(middle(memory), 35, "your program", 13, "quiet")
    d.text(middle(memory), 54, "get(bf16, 4096)", 13.5, mono=True)
    d.arrow([(middle(memory), 64), (middle(memory), TOP)], "line")
    for step, (title, lines, place) in enumerate(STEPS):
        d.box(left(step), TOP, BOX, TALL, "box", "edge", dash=place == "optional")
        d.text(middle(step), TOP + 26, f"{step + 1}  {title}", 16.5, bold=True)
        for i, line in enumerate(lines):
            d.text(middle(step), TOP + 49 + 17 * i, line, 13, "quiet")
        d.text(middle(step), TOP + TALL - 10, place, 12, "accent")
        if step:
            y = TOP + 44
            d.arrow([(left(step) - GAP, y), (left(step), y)], "line")
            if step != remote:  # the first caller goes on without a miss
                d.text(left(step) - GAP / 2, y - 7, "miss", 11.5, "quiet")

    # A compiled image is published off the caller's way.
    d.box(left(compiler), 14, BOX, 50, "box", "edge")
    d.text(middle(compiler), 36, "6  publish", 16.5, bold=True)
    d.text(middle(compiler), 54, "in the background", 12, "accent")
    d.arrow([(middle(compiler), TOP), (middle(compiler), 64)], "line")
    d.arrow([(left(compiler), 39), (middle(disk), 39), (middle(disk), TOP)], "accent", dash=True)
    d.arrow([(middle(remote), 39), (middle(remote), TOP)], "accent", dash=True)
    d.text(middle(flight), 31, "a record for every later process", 13, "quiet")

    # Hits go down to the driver.
    bar = left(memory) + 96
    d.box(bar, LOAD, left(compiler) + BOX - bar, 46, "box", "edge")
    d.text((bar + left(compiler) + BOX) / 2, LOAD + 29, "7  load", 16.5, bold=True, anchor="end")
    d.text((bar + left(compiler) + BOX) / 2 + 14, LOAD + 29, "into the current CUDA context", 13, "quiet", anchor="start")
    for step, label in ((memory, "image"), (disk, "hit"), (remote, "hit"), (compiler, "cubin")):
        x = middle(step) + (40 if step == memory else 0)
        d.arrow([(x, TOP + TALL), (x, LOAD)], "hit")
        d.text(x + 8, 284, label, 12.5, "hit", anchor="start")
    d.arrow([(left(memory) + 46, TOP + TALL), (left(memory) + 46, END)], "hit")
    d.text(left(memory) + 54, 254, "ready", 12.5, "hit", anchor="start")
    d.arrow(
        [(middle(flight), TOP + TALL), (middle(flight), 250), (middle(disk) + 46, 250), (middle(disk) + 46, TOP + TALL)],
        "line",
        dash=True,
    )
    d.text((middle(flight) + middle(disk) + 46) / 2, 267, "look again", 12.5, "quiet")

    # The result.
    d.box(left(memory), END, left(compiler) + BOX - left(memory), 46, "fill", "fill")
    d.text(
        (left(memory) + left(compiler) + BOX) / 2, END + 29, "a kernel: call it, or take its CUfunction", 15.5, "on_fill", bold=True
    )
    d.arrow([(middle(flight), LOAD + 46), (middle(flight), END)], "hit")
    return d.svg()


LOGO = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<title>kiln</title>
<path d="M4 28 V16 a12 12 0 0 1 24 0 V28 z" fill="#ffedd5" stroke="#7c2d12" stroke-width="2"/>
<path d="M11 28 v-9 a5 5 0 0 1 10 0 v9 z" fill="#c2410c"/>
<path d="M14 28 v-5 a2 2 0 0 1 4 0 v5 z" fill="#fdba74"/>
</svg>
"""


def main() -> None:
    for name, palette in PALETTES.items():
        (HERE / f"path-{name}.svg").write_text(picture(palette))
    (HERE / "logo.svg").write_text(LOGO)


if __name__ == "__main__":
    main()
