"""The oracle's own binding of cuDNN against the rest of the project, with real cuDNN and no GPU; how it times and judges."""

import json
import random

import pytest

from harness import study
from harness.preload import Problem, ids

import graph_api
import oracle
import peers
import problem
from steps import networks

FORMS = [
    Problem(), Problem(op="bwd_data"), Problem(op="bwd_filter", type="bf16"), Problem(type="f32", nhwc=False),
    Problem(x=(32, 128, 28, 28), w=(128, 4, 3, 3)),
]  # fmt: skip


@pytest.fixture(scope="module")
def library(preload):
    return graph_api.Library(str(preload.cudnn_library))


@pytest.fixture(scope="module")
def profile():
    text = (study.REPO / "deploy/profiles/nvidia-h200.json").read_text()
    return json.dumps(json.loads(text)["properties"], separators=(",", ":"))


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.text.split(",align")[0])
def test_it_lists_what_a_program_of_raw_calls_does_and_more(preload, library, profile, form):
    graph = graph_api.Graph(library, problem.parse(form.text), profile=profile)
    raw = preload.stock(form, "build=all", "modes=abf")
    for number, mode in enumerate(("a", "b", "fallback")):
        listed = graph.heuristics(mode)
        assert [text.removeprefix("graph:") for text in listed] == ids(raw["modes"][number])
    every = graph.configs()
    assert set(graph.heuristics("a")) <= set(every) and len(set(every)) == len(every)
    engines = {problem.parse_candidate(text)[0] for text in every}
    assert engines == set(range(len(engines)))  # each engine that cuDNN has
    first = graph_api.Plan(graph, *problem.parse_candidate(graph.heuristics("a")[0]))
    assert first.workspace >= 0


def test_it_refuses_what_cudnn_refuses(library, profile):
    graph = graph_api.Graph(library, problem.parse(Problem().text), profile=profile)
    with pytest.raises(graph_api.CudnnError, match="status"):
        graph_api.Plan(graph, 9999, {})


def test_whether_mode_b_is_mode_instant_is_read_off_their_lists(library, profile):
    """On this GPU cuDNN has a list of its own for some networks' convolutions: there mode B is a peer. For others it is that of PyTorch's mode."""
    found = {
        name: [graph_api.modes_agree(library, problem.parse(text), "instant", "b", profile=profile) for text in network.problems]
        for name, network in networks().items()
    }
    assert {name for name, agree in found.items() if not all(listed for listed, _ in agree)} == set(peers.B_DIFFERS)
    assert not all(first for _, first in found["unet"])


def test_every_problem_of_the_networks_can_be_read():
    for network in networks().values():
        for text in network.problems:
            assert min(problem.parse(text).y_dims) >= 1 and problem.parse(text).nhwc
    strided = problem.parse("fwd,x=2x8x9x7,w=16x4x3x3,pad=1,stride=2,groups=2,nhwc,f16")
    assert strided.y_dims == (2, 16, 5, 4) and problem.packed_strides(strided.x_dims, True) == (504, 1, 56, 8)
    for text in ("fwd,x=1x8x9,w=8x8x3", "sideways,x=1x8x9x9,w=8x8x3x3", "fwd,x=1x8x9x9,w=8x8x3x3,epilogue=bias"):
        with pytest.raises(ValueError, match="not a problem that the oracle runs"):
            problem.parse(text)


def test_candidates_are_read_and_written_alike():
    text = "graph:eng22,k2=1,k13=0"
    assert problem.parse_candidate(text) == (22, {2: 1, 13: 0}) and problem.candidate_text(22, {13: 0, 2: 1}) == text
    with pytest.raises(ValueError, match="no candidate"):
        problem.parse_candidate("legacy:algo1,math1")


def events(*launches):
    """A profile of launches that each run kernels of these lengths in ns, with a flush in front of each and gaps of 10 ns."""
    now, found = 0, []
    for kernels in launches:
        for name, length in [("flush", 500), ("erfinv_kernel", 5), *(("conv", k) for k in kernels), ("erfinv_kernel", 5)]:
            found.append((name, now, length))
            now += length + 10
    return found


def test_a_launch_is_what_stands_between_two_ticks():
    profile = events([1000], [300, 400], [])
    assert oracle.split(profile, 3) == [1.0, 0.71, None]
    assert oracle.split(list(reversed(profile)), 3) == [1.0, 0.71, None]


def test_a_profile_that_lost_events_is_refused():
    profile = events([1000], [300])
    with pytest.raises(oracle.LostEvents, match="3 ticks in the profile, 4 were launched"):
        oracle.split([e for e in profile if e != profile[-1]], 2)


def test_the_oracle_is_chosen_on_other_rounds_than_it_is_judged_on():
    """Ten equal plans: the luckiest is chosen, and on the rounds that judge it is no better than the others."""
    names = [f"p{i}" for i in range(10)]
    taken, draw = [], random.Random(4).gauss

    def sample(asked, rounds):
        taken.append((len(asked), rounds))
        return {name: [draw(100, 2) for _ in range(rounds)] for name in asked}

    found = oracle.judge(names, "p9", None, sample)
    assert abs(found["regret"]) < 0.02 and found["stock_regret"] is None
    assert taken[0] == (10, oracle.SCREEN_ROUNDS) and taken[2][1] == oracle.JUDGE_ROUNDS and taken[2][0] <= 2


def test_a_choice_that_is_slower_has_its_regret():
    times = {"fast": 100.0, "mine": 104.0, "stock": 150.0, **{f"slow{i}": 200.0 + i for i in range(20)}}
    sample = lambda asked, rounds: {name: [times[name]] * rounds for name in asked}
    found = oracle.judge(list(times), "mine", "stock", sample)
    assert (found["oracle"], found["oracle_us"]) == ("fast", 100.0)
    assert (found["regret"], found["stock_regret"]) == pytest.approx((0.04, 0.5))
