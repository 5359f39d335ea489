"""Each part of tests/bench/run measures something: its small form, of which no figure is of worth."""

import json
import subprocess
import sys

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
