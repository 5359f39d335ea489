"""Draws the plots of tests/bench/plots from build/bench.json: plain SVG, without any library, for light and dark pages.

usage: plots.py [BENCH_JSON [FOLDER]]
"""

import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 130, 34, 44
LABEL_HEIGHT = 13
# Of lines: each is told from both backgrounds, and from the others by those who see few colours.
COLOURS = ("#2f81c7", "#d1603d", "#3f9d68", "#9a6fc4", "#8a8f98")
STYLE = """<style>
text { fill: #24292f } .grid { stroke: #d0d7de } .axis { stroke: #57606a }
@media (prefers-color-scheme: dark) { text { fill: #d1d7e0 } .grid { stroke: #3d444d } .axis { stroke: #9198a1 } }
</style>"""


class Axis:
    """Logarithmic from value to pixels."""

    def __init__(self, values, start, end):
        self.low, self.high = math.log10(min(values)), math.log10(max(values))
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self.start, self.end = start, end

    def at(self, value):
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)


def number(value):
    for bound, unit in ((1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:g}{unit}"
    return f"{value:.3g}"


def decades(low, high):
    """Round numbers from `low` to `high`: 1, 2, 5 of each decade, or more where those are too few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), range(1, 10), [n / 10 for n in range(10, 100)]):
        ticks = [m * 10**e for e in exponents for m in steps]
        ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
        if len(ticks) > 2:
            break
    return ticks


def plot(title, x_name, y_name, series):
    """`series`: name -> list of (x, y), x and y above 0."""
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    y_low, y_high = min(ys) / 1.1, max(ys) * 1.1
    x_axis = Axis(xs, LEFT, WIDTH - RIGHT)
    y_axis = Axis((y_low, y_high), HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        STYLE,
        f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{title}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_name}</text>',
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{y_name}</text>',
    ]
    for y in decades(y_low, y_high):
        at = y_axis.at(y)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(y)}</text>')
    for x in xs:
        at = x_axis.at(x)
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" class="axis"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{number(x)}</text>')
    lines = []
    for (name, points), colour in zip(series.items(), COLOURS):
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in sorted(points)]
        lines.append((places[-1], name, colour))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    # Names at the ends of the lines, from the top down, none over another.
    free = TOP
    for (x, y), name, colour in sorted(lines, key=lambda line: line[0][1]):
        free = max(free, y + 4)
        out.append(f'<text x="{x + 8:.1f}" y="{free:.1f}" style="fill: {colour}">{name}</text>')
        free += LABEL_HEIGHT
    return "\n".join([*out, "</svg>", ""])


def points(rows, figure, x, value="value", **where):
    """(x, value) of the figure's rows that have both and are as `where` says (None: without that field)."""
    found = {
        row[x]: row[value]
        for row in rows
        if row["figure"] == figure and x in row and row.get(value, 0) > 0
        and all(row.get(field) == wanted for field, wanted in where.items())
    }
    return sorted(found.items())


def present(series):
    return {name: at for name, at in series.items() if len(at) > 1}


def plots(rows):
    """File name -> (title, name of x, name of y, series)."""
    batches = sorted({row["batch"] for row in rows if row["figure"] == "calls_per_second"})
    usual = max((row.get("candidates", 0) for row in rows if row["figure"] == "problem_ns" and row["tunings"] > 1000),
                default=None)  # fmt: skip
    return {
        "lookups": ("BatchGet beside a ready reply", "clients", "calls a second, ratio", {
            f"{batch} problem{'s' if batch > 1 else ''}":
                points(rows, "calls_per_second", "clients", "ratio", batch=batch, state=None)
            for batch in batches}),
        "problem": ("One problem of a batch, on the server", "stored tunings", "ns", {
            "not ready": points(rows, "problem_not_ready_ns", "tunings", candidates=usual),
            "ready": points(rows, "problem_ns", "tunings", candidates=usual),
            "bare hash look-up": points(rows, "problem_ns", "tunings", "baseline", candidates=usual)}),
        "start": ("Start of the daemon", "stored tunings", "s", {
            "index whole": points(rows, "start_whole_s", "tunings"),
            "ready": points(rows, "start_s", "tunings"),
            "reading the file": points(rows, "start_s", "tunings", "baseline")}),
        "snapshot": ("A look-up in a program's process", "choices", "ns", {
            "hit": points(rows, "snapshot_hit_ns", "choices"),
            "raw table": points(rows, "snapshot_hit_ns", "choices", "baseline"),
            "miss": points(rows, "snapshot_miss_ns", "choices")}),
    }


def main():
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench.json"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests" / "bench" / "plots"
    rows = json.loads(source.read_text())["figures"]
    folder.mkdir(exist_ok=True)
    for name, (title, x_name, y_name, series) in plots(rows).items():
        if series := present(series):
            (folder / f"{name}.svg").write_text(plot(title, x_name, y_name, series))
            print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
