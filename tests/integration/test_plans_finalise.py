"""Answers stand alone: engine and knobs are all that a fresh process needs."""

import subprocess

import pytest

from conftest import PROGRAMS, REPO
from harness.problems import VARIED

PLANS = 50
PROFILE = REPO / "deploy" / "profiles" / "nvidia-h200.json"

# Beside VARIED, so that there are 50 answers.
MORE = [
    f"{op},x={n}x{c}x28x28,w=128x{c}x{r}x{r},pad={r // 2},nhwc,f16"
    for op in ("fwd", "bwd_data", "bwd_filter")
    for n, c, r in ((1, 64, 1), (8, 128, 3), (32, 64, 5), (2, 256, 3))
]


@pytest.fixture(scope="module")
def finalise_plans(worker):
    program = PROGRAMS / "convtune-finalise-plans"
    assert program.exists(), f"{program} is not built, though convtune-worker is"
    return program


def finalise(program, lines):
    done = subprocess.run(
        [program, PROFILE], input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_fifty_answers_finalise_without_the_daemon(daemons, worker, finalise_plans):
    daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker).start()
    texts = (VARIED + MORE)[:PLANS]
    with daemon.client() as client:
        results = client.get(*texts, on_miss="ON_MISS_HEURISTIC", timeout=300)
    assert daemon.stop() == 0
    assert {r.WhichOneof("outcome") for r in results} == {"answer"}
    lines = [f"{r.problem_text}\t{r.answer.winner.text}" for r in results]
    assert len(set(lines)) == PLANS
    outcomes = finalise(finalise_plans, lines)
    assert len(outcomes) == PLANS
    for line, result, outcome in zip(lines, results, outcomes, strict=True):
        state, _, workspace = outcome.partition("\t")
        assert state == "ok", f"{line}: {outcome}"
        assert int(workspace) == result.answer.winner.workspace_bytes, line


def test_what_is_no_plan_is_told(finalise_plans):
    good = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
    outcomes = finalise(finalise_plans, [f"{good}\tgraph:eng99999", f"{good}\tnonsense", "no tab"])
    assert [o.split("\t")[0] for o in outcomes] == ["error"] * 3
