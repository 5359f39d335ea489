"""Each part of tests/bench/run measures something: its small form, of which no figure is of worth."""

import json
import re
import subprocess
import sys
import warnings

import pytest

from conftest import PROGRAMS, REPO
from harness.needs import missing

sys.path.insert(0, str(REPO / "tests" / "bench"))
import figures  # noqa: E402

FIGURES = REPO / "tests" / "bench" / "figures.py"


@pytest.mark.ci
@pytest.mark.parametrize("part", figures.PARTS)
def test_the_part_runs(part):
    if PROGRAMS.parent != REPO / "build":
        pytest.skip("it measures the plain build")
    make_bundle = ["ninja", "-C", PROGRAMS.parent, "convtune-make-bundle"]  # not built with the rest
    assert part not in ("start", "bundles") or subprocess.run(make_bundle, capture_output=True).returncode == 0
    done = subprocess.run([sys.executable, FIGURES, "--small", "--part", part], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    if "left out: built without cuDNN" in done.stderr:
        pytest.skip("built without cuDNN")
    if "left out: " in done.stderr:
        missing("PostgreSQL", "postgresql")
    # A short look may see no work: a step of a tuning, CPU time of a daemon.
    assert rows and all(row["value"] > 0 or row["figure"].startswith(("idle_", "tuning_", "bundle_")) for row in rows), rows
    assert any(row["value"] > 0 for row in rows)
    print(figures.table(rows))


def test_a_part_that_fails_costs_its_own_rows_alone(monkeypatch, tmp_path):
    """Each part is a process of its own; here one of them dies."""
    (tmp_path / "build").mkdir()
    real = subprocess.run

    def run(command, **more):
        if "--part" not in command:
            return real(command, **more)
        part = command[command.index("--part") + 1]
        ends = "import os; os.abort()" if part == "commits" else f"""print('[{{"figure": "{part}", "value": 1}}]')"""
        return real([sys.executable, "-c", ends], **more)

    monkeypatch.setattr(figures.subprocess, "run", run)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["figures.py", "--only", "index", "--only", "commits", "--only", "bans"])
    with pytest.raises(SystemExit, match="failed: commits"):
        figures.main()
    record = json.loads((tmp_path / "build/bench.json").read_text())
    assert record["failed"] == ["commits"] and [row["figure"] for row in record["figures"]] == ["index", "bans"]


def test_the_page_admits_every_figure_that_is_short_of_its_goal():
    rows = json.loads((REPO / "tests/bench/results.json").read_text())["figures"]
    page = (REPO / "tests/bench/README.md").read_text()
    section = page.partition("## What is short of its goal\n")[2].partition("\n\n#")[0]
    admitted = {name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert admitted == {row["figure"] for row in rows if figures.judged(row)[1] == "no"}
    assert {row["part"] for row in rows} == set(figures.PARTS) == set(figures.MEASURES)


def test_results_say_which_of_them_are_older_than_what_they_measure():
    results = json.loads((REPO / "tests/bench/results.json").read_text())
    page = (REPO / "tests/bench/README.md").read_text()
    assert f"{results['date'][:10]}, commit {results['commit'][:8]}," in page
    for paths in figures.MEASURES.values():
        assert all((REPO / path).is_dir() for path in paths), paths
    older = figures.older_parts(results)
    if older is None:
        pytest.skip(f"this checkout has no history as far as {results['commit'][:8]}")
    if older:
        warnings.warn(f"tests/bench/results.json is older than what it measures: {', '.join(older)}", stacklevel=1)
