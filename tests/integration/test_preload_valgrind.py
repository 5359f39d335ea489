"""The interposer under valgrind: no report of its own, and the program does what it does without valgrind."""

import pathlib
import shutil
import xml.etree.ElementTree as tree

import pytest

from harness.needs import missing
from harness.preload import FORMS, UNREADABLE, Candidate, Legacy, Problem, listening, neutral, read_counters, stock_field

NONDETERMINISTIC, KNOWN = 32, (0, 1, Legacy.TENSOR_CORE, 123.0)
# What stands between an error and who made it.
PLUMBING = ("vgpreload_", "libc.so", "libstdc++", "ld-linux")


@pytest.fixture
def valgrind(preload, tmp_path):
    """The command in front of a program; .reports() are those of the interposer."""
    if shutil.which("valgrind") is None:
        missing("valgrind", "valgrind")
    if preload.first:
        pytest.skip("two of their kind cannot watch one program")
    return Valgrind(tmp_path / "valgrind.xml", preload.preload)


class Valgrind:
    def __init__(self, report, library):
        self.library = library
        self.report = report
        self.command = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--num-callers=40",
                        "--xml=yes", f"--xml-file={report}"]  # fmt: skip

    def reports(self):
        return [described(e) for e in tree.parse(self.report).iter("error") if is_ours(e, self.library)]


def is_ours(error, library):
    """Whether the innermost frame that is no plumbing is in the library, in any of the error's stacks."""
    for stack in error.iter("stack"):
        for frame in stack.iter("frame"):
            name = pathlib.Path(frame.findtext("obj", "")).name
            if not name.startswith(PLUMBING):
                if name == library.name:
                    return True
                break
    return False


def described(error):
    frames = [f"{f.findtext('fn')} ({f.findtext('file')}:{f.findtext('line')})" for f in error.iter("frame")]
    return f"{error.findtext('kind')}: {' < '.join(frames[:8])}"


# Ways for a call to go wrong, each with what the counters say of it.
def a_daemon_that_was_killed(legacy):
    legacy.store(KNOWN, op="bwd_data")
    listening(legacy.folder).close()


def refused(legacy):
    legacy.store((7, 1, Legacy.TENSOR_CORE, 1.0))


def not_neutral(legacy):
    legacy.store((3, 1, NONDETERMINISTIC, 1.0))


def for_another_card(legacy):
    legacy.store(KNOWN, environment=legacy.environment("nvidia-h100"))


def switched_off(legacy):
    (legacy.folder / "disabled").touch()


def unreadable(spoil):
    return lambda legacy: spoil(legacy.folder / "current.snapshot")


ERRORS = {
    **{name: (unreadable(spoil), "snapshot", said) for name, (spoil, said) in UNREADABLE.items()},
    "a_daemon_that_was_killed": (a_daemon_that_was_killed, "dropped", 2),
    "refused": (refused, "refused", 1),
    "not_neutral": (not_neutral, "not_neutral", 1),
    "for_another_card": (for_another_card, "no_environment", 1),
    "switched_off": (switched_off, "legacy_served", 0),
}


@pytest.mark.ci
@pytest.mark.parametrize(("go_wrong", "name", "value"), ERRORS.values(), ids=ERRORS)
def test_nothing_is_reported_where_something_is_wrong(preload, valgrind, tmp_path, go_wrong, name, value):
    """Against the cuDNN that is soon loaded; every way ends in the stock program's results."""
    legacy = Legacy(preload, tmp_path)
    legacy.store(KNOWN)
    go_wrong(legacy)
    got = legacy.run("call=find", prefix=valgrind.command)
    assert got == legacy.run("call=find", preload=False)
    (counted,) = read_counters(legacy.counters)
    assert {**counted, **counted["missed"]}[name] == value, counted
    assert valgrind.reports() == []


@pytest.mark.ci
def test_nothing_is_reported_of_what_is_served(preload, valgrind, tmp_path):
    legacy = Legacy(preload, tmp_path)
    legacy.store(KNOWN)
    assert legacy.run("call=findex", prefix=valgrind.command) == legacy.run("call=findex")
    assert read_counters(legacy.counters)[0]["legacy_served"] == 1
    assert valgrind.reports() == []


# Minutes for each program: real cuDNN is large.
@pytest.mark.long
@pytest.mark.parametrize(("form", "policy"), [("fwd_f16", "reorder"), ("pytorch_fused", "truncate")])
def test_nothing_is_reported_and_results_are_the_same(preload, valgrind, tmp_path, counters, form, policy):
    """One problem that is served, and in the same program one that cuDNN refuses, one that is not neutral and one that
    nobody tuned."""
    problem = FORMS[form]
    known = preload.known(problem)
    winner = neutral(known)[0]
    folder = tmp_path / "snapshot"
    refused, not_neutral, unknown = (Problem(x=(n, 64, 56, 56)) for n in (5, 6, 7))
    preload.write_snapshot(
        folder,
        preload.choice(problem, winner.field(), stock_field(known[0])),
        preload.choice(refused, Candidate("eng9999", 0, 0).field()),
        preload.choice(not_neutral, Candidate(winner.id, 1 << 9, 1 << 40).field()),
    )
    env = preload.env(folder, policy)
    args = preload.raw_args(problem)
    for other in (refused, not_neutral, unknown):
        args += ["then", *preload.raw_args(other, "modes=a")]
    command = preload.command(args)
    watched = preload.run([*valgrind.command, *command], {**env, "CONVTUNE_PRELOAD_COUNTERS": str(counters)}, timeout=1800)
    assert watched.stdout == preload.run(command, env).stdout
    missed = read_counters(counters)[0]["missed"]
    assert missed["refused"] == missed["not_neutral"] == missed["no_entry"] == 1, missed
    assert valgrind.reports() == []
