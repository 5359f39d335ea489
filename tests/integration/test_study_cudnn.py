"""The referee's own binding of cuDNN against the rest of the project, with real cuDNN and no card."""

import ctypes
import json

import pytest

from harness import study
from harness.preload import Candidate, Problem, candidates, ids

import graph_api
import legacy_api
import observed
import problem
import tuning
from lab import Lab

FORMS = [
    Problem(), Problem(op="bwd_data"), Problem(op="bwd_filter", type="bf16"), Problem(type="f32", nhwc=False),
    Problem(x=(32, 128, 28, 28), w=(128, 4, 3, 3)), Problem(x=(2, 32, 16, 28, 28), w=(64, 32, 3, 3, 3)),
]  # fmt: skip


@pytest.fixture(scope="module")
def library(preload):
    return graph_api.Library(str(preload.cudnn_library))


@pytest.fixture(scope="module")
def profile():
    text = (study.REPO / "deploy/profiles/nvidia-h200.json").read_text()
    return json.dumps(json.loads(text)["properties"], separators=(",", ":"))


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.text.split(",align")[0])
def test_it_lists_and_builds_what_a_program_of_raw_calls_does(preload, library, profile, form):
    graph = graph_api.Graph(library, problem.parse(form.text), profile=profile)
    raw = preload.stock(form, "build=all", "modes=abf")
    for number, mode in enumerate(("a", "b", "fallback")):
        listed = graph.heuristics(mode)
        assert [text.removeprefix("graph:") for text in listed] == ids(raw["modes"][number])
    first = candidates(raw["modes"][0])[0]
    assert graph.first_that_builds("a") == (f"graph:{first.id}", first.workspace)


def test_it_refuses_what_cudnn_refuses(library, profile):
    graph = graph_api.Graph(library, problem.parse(Problem().text), profile=profile)
    with pytest.raises(graph_api.CudnnError, match="status"):
        graph_api.Plan(graph, 9999, {})


@pytest.mark.parametrize("operation", ["fwd", "bwd_data", "bwd_filter"])
def test_legacy_choices_and_workspaces(preload, operation):
    """The fake cuDNN's Get_v7 names algorithm 1 with tensor cores first, which needs 1 MiB."""
    fake = graph_api.Library(str(preload.lib / "fakes-cudnn" / "libcudnn.so.9"))
    handle = ctypes.c_void_p()
    assert fake.c.cudnnCreate(ctypes.byref(handle)) == 0
    convolution = legacy_api.LegacyConvolution(fake, problem.parse(Problem(op=operation).text), handle)
    assert convolution.get_v7() == (1, 1)
    assert convolution.plan(1, 1).workspace == 1 << 20
    with pytest.raises(graph_api.CudnnError, match="WorkspaceSize"):
        convolution.plan(7, 1)


def test_legacy_is_refused_where_it_has_no_form(preload, library):
    with pytest.raises(graph_api.CudnnError, match="2-D problems of symmetric pads only"):
        legacy_api.LegacyConvolution(library, problem.parse("fwd,x=1x8x9x9,w=8x8x3x3,pad=0:1"), None)


def test_a_snapshot_of_the_study_reaches_an_unmodified_program(preload, tmp_path):
    """Also a choice that is not neutral, under the environment that the study sets."""
    stock = preload.stock(Problem(), "build=all")
    known = candidates(stock["modes"][0])
    choice = known[len(known) // 2]
    folder = tuning.write_snapshot(
        preload.bin / "convtune-make-snapshot", tmp_path / "snapshot", preload.environment,
        {Problem().text: {"text": f"graph:{choice.id}", "notes": choice.notes | 1 << 5, "workspace": choice.workspace}},
    )  # fmt: skip
    lab = Lab.__new__(Lab)
    lab.library = preload.preload
    env = lab.preload_env(folder, "truncate", allow="notes,workspace")
    got = preload.raw(Problem(), "modes=a", "build=first", env=preload.env(None, **env))
    assert ids(got["modes"][0])[0] == choice.id
    assert got["chosen"] == choice.id


def test_a_snapshot_that_cannot_be_written_says_why(preload, tmp_path):
    with pytest.raises(tuning.TuningError, match="convtune-make-snapshot"):
        tuning.write_snapshot(preload.bin / "convtune-make-snapshot", tmp_path, "no environment", {Problem().text: vars(Candidate("eng1", 0, 0)) | {"text": "graph:eng1"}})


def test_the_plan_that_a_program_settles_on_is_heard(preload):
    """Execution needs a card: a cuDNN that is real but for that."""
    known = candidates(preload.stock(Problem(), "build=all")["modes"][0])
    with observed.Listener() as listener:
        env = {**preload.env(listener.folder, "observe"), "LD_LIBRARY_PATH": str(preload.lib / "fakes-cudnn")}
        preload.raw(Problem(), "build=all", "modes=a", "execute=30", env=env)
    plans = [(found, text) for kind, found, text in listener.found if kind == "plan"]
    assert plans == [(observed.signature(problem.parse(Problem().text)), f"graph:{known[-1].id}")]
