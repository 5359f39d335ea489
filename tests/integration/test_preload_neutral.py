"""By default a winner changes nothing but the time."""

import dataclasses
import json

import pytest

from harness.preload import ALL, FORMS, Candidate, Problem, candidates, ids, stock_field

# cuDNN's numerical notes, as masks.
TENSOR_CORE, DOWN_CONVERT, REDUCED, NONDETERMINISTIC, STRICT_NAN = 2, 4, 8, 32, 1024


def hundred_problems():
    """(problem, how its best candidate differs from the stock choice)."""
    differences = ["notes", "workspace"]
    for i in range(100):
        base = [FORMS["fwd_f16"], FORMS["fwd_f32"], FORMS["bwd_filter_f16"], FORMS["pytorch_fused"]][i // 2 % 4]
        yield dataclasses.replace(base, x=(1 + i, *base.x[1:])), differences[i % 2]


def forbidden(known, difference):
    """A real candidate of the list that differs in that way, or one that says so."""
    first = known[0]
    for other in known[1:]:
        if difference == "notes" and other.notes & ~first.notes & ~STRICT_NAN:
            return other
        if difference == "workspace" and other.workspace > first.workspace and other.notes == first.notes:
            return other
    other = known[len(known) // 2]
    if difference == "notes":
        return Candidate(other.id, other.notes | NONDETERMINISTIC, other.workspace)
    return Candidate(other.id, first.notes, first.workspace + 1)


@pytest.mark.ci
def test_a_hundred_best_candidates_that_are_not_neutral_are_never_first(preload, tmp_path):
    problems = list(hundred_problems())
    # One process lists all of them.
    args = []
    for problem, _ in problems:
        args += [*preload.raw_args(problem, "modes=a", ALL), "then"]
    command = preload.command(args[:-1])
    stock = preload.run(command, preload.env(None)).stdout.splitlines()
    assert len(stock) == 100
    lines, real = [], 0
    for (problem, difference), line in zip(problems, stock):
        known = candidates(json.loads(line)["modes"][0])
        best = forbidden(known, difference)
        real += best in known
        lines.append(preload.choice(problem, best.field(time=0.001), stock_field(known[0])))
    print(f"{real} of 100 differ as cuDNN itself says")
    assert real >= 50
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, *lines)
    for policy in ("reorder", "truncate"):
        assert preload.run(command, preload.env(folder, policy)).stdout.splitlines() == stock


@pytest.mark.parametrize(
    ("notes", "workspace", "stock_notes", "stock_workspace", "allow", "first"),
    [
        (TENSOR_CORE, 0, TENSOR_CORE, 0, "", True),
        (0, 0, TENSOR_CORE, 0, "", True),
        (TENSOR_CORE | DOWN_CONVERT, 0, TENSOR_CORE, 0, "", False),
        (NONDETERMINISTIC, 0, TENSOR_CORE, 0, "", False),
        (REDUCED, 0, 0, 0, "workspace", False),
        (REDUCED, 0, 0, 0, "notes", True),
        (0, 1, 0, 0, "", False),
        (0, 1, 0, 0, "notes", False),
        (0, 1, 0, 0, "workspace", True),
        (REDUCED, 1, 0, 0, "notes,workspace", True),
        (0, 0, STRICT_NAN, 0, "", False),
        (STRICT_NAN, 0, STRICT_NAN, 0, "", True),
    ],
)
def test_what_is_placed_first(preload, tmp_path, notes, workspace, stock_notes, stock_workspace, allow, first):
    problem = Problem()
    known = preload.known(problem)
    winner = Candidate(known[3].id, notes, workspace)
    stock = Candidate(known[0].id, stock_notes, stock_workspace)
    folder = preload.store(tmp_path / "snapshot", problem, winner, stock=stock)
    env = preload.env(folder, **({"CONVTUNE_PRELOAD_ALLOW": allow} if allow else {}))
    got = ids(preload.raw(problem, "modes=a", env=env)["modes"][0])
    assert (got[0] == winner.id) == first


def test_the_next_neutral_one_of_the_portfolio_is_first(preload, tmp_path):
    problem = Problem()
    known = preload.known(problem)
    loud = Candidate(known[2].id, NONDETERMINISTIC, 0)
    quiet = Candidate(known[3].id, known[0].notes, 0)
    folder = preload.store(tmp_path / "snapshot", problem, loud, quiet, stock=known[0])
    assert ids(preload.raw(problem, "modes=a", env=preload.env(folder))["modes"][0])[0] == quiet.id
