"""Tables of a report, as Markdown."""

import dataclasses


@dataclasses.dataclass
class Table:
    title: str
    note: str
    header: list
    rows: list

    def markdown(self):
        """A heading, the note, and the table; a line that says so where there are no rows."""
        lines = [f"### {self.title}", "", self.note, ""]
        if not self.rows:
            return "\n".join([*lines, "Nothing measured yet.", ""])
        cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [self.header, *self.rows]]
        lines += ["| " + " | ".join(row) + " |" for row in cells[:1]]
        lines.append("|" + "---|" * len(self.header))
        lines += ["| " + " | ".join(row) + " |" for row in cells[1:]]
        return "\n".join([*lines, ""])


def number(value, digits=3):
    """To so many significant digits; an empty cell for None."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    import math

    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def ratio(estimate):
    """A ratio with its interval; without one where too few processes ran."""
    if estimate is None:
        return ""
    if not estimate.known:
        return f"{estimate.value:.3f} (n={estimate.count})"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def percent(value, digits=2):
    return "" if value is None else f"{100 * value:.{digits}f}%"
