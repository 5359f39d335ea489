"""Writes what the records say: report.md and one SVG for each plot."""

import pathlib

import analysis_networks
import analysis_serving
import analysis_shapes
import svg

PARTS = (
    ("Whole networks", analysis_networks),
    ("Shape by shape", analysis_shapes),
    ("Unmodified programs", analysis_serving),
)
FIELDS = ("at", "commit", "changed_files", "gpu", "driver", "torch", "cuda", "cudnn", "machine", "cores", "forked")


def markdown(records, plots):
    """The page. `plots` are the names of the SVG files beside it, by part."""
    runs = records.of("run")
    lines = ["# The study's results", ""]
    if any(r["simulated"] for r in runs):
        lines += ["**Simulated: no card was there. These numbers say nothing of any GPU.**", ""]
    lines += ["| run | " + " | ".join(FIELDS) + " |", "|" + "---|" * (len(FIELDS) + 1)]
    lines += ["| " + " | ".join([str(r["run"]), *(str(r.get(f)) for f in FIELDS)]) + " |" for r in runs]
    lines += ["", f"{len(records.done)} steps are done.", ""]
    stuck = {name: failures for name, failures in records.failures.items() if name not in records.done}
    for name, failures in stuck.items():
        lines.append(f"- failed {len(failures)} times: `{name}`: {failures[-1]['reason'][:200]}")
    for title, part in PARTS:
        lines += ["", f"## {title}", ""]
        lines += [f"![{name}]({name}.svg)\n" for name in plots[title]]
        lines += [table.markdown() for table in part.tables(records)]
    return "\n".join(lines)


def write(records, folder):
    """Replaces the files of an earlier report in the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for title, part in PARTS:
        written[title] = []
        for name, (heading, axis, points) in part.plots(records).items():
            if points:
                (folder / f"{name}.svg").write_text(svg.intervals(heading, axis, points))
                written[title].append(name)
    (folder / "report.md").write_text(markdown(records, written))
