"""The interposer under valgrind: no report of its own, and the program does what it does without valgrind."""

import json
import pathlib
import shutil
import xml.etree.ElementTree as tree

import pytest

from harness.preload import FORMS, candidates, stock_field

# More than a minute for each program.
pytestmark = pytest.mark.long
MODE_A = 3
# What stands between an error and who made it.
PLUMBING = ("vgpreload_", "libc.so", "libstdc++", "ld-linux")


@pytest.fixture
def memcheck(preload, tmp_path):
    """memcheck(problem, env) is what the raw program printed, and valgrind's reports of the interposer."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")

    def run(problem, env, *more):
        report = tmp_path / "valgrind.xml"
        prefix = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", "--num-callers=40",
                  "--xml=yes", f"--xml-file={report}"]  # fmt: skip
        done = preload.run([*prefix, *preload.command(preload.raw_args(problem, *more))], env, timeout=1200)
        return json.loads(done.stdout), [e for e in tree.parse(report).iter("error") if is_ours(e, preload.preload)]

    return run


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


@pytest.mark.parametrize(("form", "policy"), [("fwd_f16", "reorder"), ("pytorch_fused", "truncate")])
def test_nothing_is_reported_and_results_are_the_same(preload, memcheck, tmp_path, form, policy):
    problem = FORMS[form]
    known = candidates(preload.stock(problem, "build=all")["modes"][0])
    winner = next((c for c in known[1:] if c.workspace <= known[0].workspace and c.notes == known[0].notes), known[0])
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, preload.choice(problem, winner.field(), stock_field(MODE_A, known[0])))
    env = preload.env(folder, policy)
    got, reports = memcheck(problem, env)
    assert got == preload.raw(problem, env=env)
    assert [described(e) for e in reports] == []
