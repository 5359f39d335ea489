"""One kind of plot: points with intervals, one to a row, on a logarithmic axis. Written as SVG by hand: it is all that is needed."""

import html
import math

ROW, RIGHT, TOP, BOTTOM, PLOT = 22, 80, 50, 46, 500
LETTER = 7.2  # width of a label's letter, generously


def _ticks(low, high):
    """Round numbers between low and high on a logarithmic axis: of the finest steps that are few enough."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        found = [round(k * step, 4) for k in range(math.ceil(low / step), math.floor(high / step) + 1) if k > 0]
        if 2 <= len(found) <= 9:
            return found
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        found = [d * 10.0**e for e in decades for d in digits if low <= d * 10.0**e <= high]
        if 2 <= len(found) <= 9:
            return found
    return [low, high]


def intervals(title, axis, points, line=None):
    """An SVG document. points: [(label, value, (low, high) or None)]; a line stands at `line`."""
    ends = [v for _, value, interval in points for v in (value, *(interval or ()))] + ([line] if line else [])
    low, high = min(ends) / 1.03, max(ends) * 1.03
    left = 24 + LETTER * max(len(label) for label, *_ in points)
    width = round(left + PLOT + RIGHT)
    scale = PLOT / math.log(high / low)
    x = lambda value: left + math.log(value / low) * scale
    height = TOP + ROW * len(points) + BOTTOM
    bottom = height - BOTTOM
    text = lambda px, py, content, anchor="start", size=12: (
        f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" font-size="{size}">{html.escape(content)}</text>'
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>', text(12, 24, title, size=15),
    ]  # fmt: skip
    for tick in _ticks(low, high):
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(text(x(tick), bottom + 16, f"{tick:g}", "middle", 11))
    if line:
        parts.append(f'<line x1="{x(line):.1f}" x2="{x(line):.1f}" y1="{TOP}" y2="{bottom}" stroke="#444"/>')
    for row, (label, value, interval) in enumerate(points):
        y = TOP + ROW * row + ROW / 2
        parts.append(text(left - 10, y + 4, label, "end"))
        if interval:
            parts.append(f'<line x1="{x(interval[0]):.1f}" x2="{x(interval[1]):.1f}" y1="{y}" y2="{y}" stroke="#2060a0" stroke-width="2"/>')
        parts.append(f'<circle cx="{x(value):.1f}" cy="{y}" r="4" fill="#2060a0"/>')
        parts.append(text(width - RIGHT + 10, y + 4, f"{value:.3f}" if value < 10 else f"{value:.0f}"))
    parts.append(text(left + PLOT / 2, height - 8, axis, "middle"))
    return "\n".join([*parts, "</svg>", ""])
