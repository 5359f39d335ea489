"""Draws the plots of tests/bench/plots from build/bench.json: plain SVG, without any library.

usage: plots.py [BENCH_JSON [FOLDER]]
"""

import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 120, 34, 44
COLOURS = ("#1b6ca8", "#c8553d", "#3c8d5a", "#7d5ba6")


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
    ticks = [m * 10**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    return [t for t in ticks if low * 0.999 <= t <= high * 1.001]


def plot(title, x_name, y_name, series):
    """`series`: name -> list of (x, y), x and y above 0."""
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    y_low, y_high = min(ys) / 1.3, max(ys) * 1.3
    x_axis = Axis(xs, LEFT, WIDTH - RIGHT)
    y_axis = Axis((y_low, y_high), HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{title}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x_name}</text>',
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{y_name}</text>',
    ]
    for y in decades(y_low, y_high):
        at = y_axis.at(y)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(y)}</text>')
    for x in xs:
        at = x_axis.at(x)
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="#444"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{number(x)}</text>')
    for (name, points), colour in zip(series.items(), COLOURS):
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(f'<text x="{places[-1][0] + 8:.1f}" y="{places[-1][1] + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


def series_of(rows, figure, x, by=None, value="value"):
    series = {}
    for row in rows:
        if row["figure"] == figure and x in row:
            series.setdefault(f"{row[by]} {by}" if by else value, []).append((row[x], row[value]))
    return series


def main():
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench.json"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests" / "bench" / "plots"
    record = json.loads(source.read_text())
    rows, drawn = record["figures"], {}
    lookups = series_of(rows, "calls_per_second", "clients", "batch", "ratio")
    if lookups:
        drawn["lookups"] = plot("BatchGet beside a ready reply", "clients", "throughput, ratio", lookups)
    cost = {}
    for name, figure, value in (
        ("ready answer", "problem_ns", "value"),
        ("not ready", "problem_not_ready_ns", "value"),
        ("bare hash look-up", "problem_ns", "baseline"),
    ):
        for points in series_of(rows, figure, "tunings", value=value).values():
            cost[name] = points
    if cost:
        drawn["problem"] = plot("Cost of one problem on the server", "stored tunings", "ns", cost)
    commits = series_of(rows, "commits_per_second", "writers", value="ratio")
    if commits:
        drawn["commits"] = plot("Results beside a bare SQLite loop", "writers", "throughput, ratio", {"": commits["ratio"]})
    start = series_of(rows, "start_s", "tunings")
    bare = series_of(rows, "start_s", "tunings", value="baseline")
    if start:
        both = {"start": start["value"], "reading the file": bare["baseline"]}
        drawn["start"] = plot("From exec to ready", "stored tunings", "s", both)
    folder.mkdir(exist_ok=True)
    for name, svg in drawn.items():
        (folder / f"{name}.svg").write_text(svg)
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
