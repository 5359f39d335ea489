"""The real worker on the simulated GPU: what a fault on the GPU comes to, through the daemon, to its end.

Each test asserts that the fault that it scripted did fire.
"""

import contextlib
import json
import sys

import pytest

from conftest import PROGRAMS, REPO
from harness.daemon import wait_until

sys.path.insert(0, str(REPO / "tests" / "bench"))
import tuning_cost  # noqa: E402

# Mode A lists engines 62 (most configs), 22, 45 and others for it; each tuning takes about half a second.
PROBLEM = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f16"
OTHER = "fwd,x=4x64x28x28,w=64x64x3x3,pad=1,nhwc,f16"
LARGE = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
F32 = "fwd,x=4x32x14x14,w=32x32x3x3,pad=1,nhwc,f32"
TIMED = "CANDIDATE_STATUS_TIMED"
QUARANTINED = "CANDIDATE_STATUS_QUARANTINED"


class Tuning:
    """What `convtune explain` says of a problem."""

    def __init__(self, cli, problem):
        self.told = cli.ok("explain", problem, "--json").json()
        self.tuning = self.told["tuning"]
        self.evidence = self.tuning["evidence"].removeprefix("EVIDENCE_")
        self.candidates = {each["text"]: each for each in self.tuning["candidates"]}
        self.winner = self.tuning.get("winner", "")

    def of_engine(self, number):
        """Candidates of a graph engine, or of a legacy algorithm where it is a text."""
        start = f"legacy:algo{number}" if isinstance(number, str) else f"graph:eng{number}"
        return [each for text, each in self.candidates.items() if text.split(",")[0] == start]

    def statuses(self, number):
        return {each["status"].removeprefix("CANDIDATE_STATUS_") for each in self.of_engine(number)}

    def with_status(self, status):
        return [text for text, each in self.candidates.items() if each["status"] == status]

    def failed_self_check(self):
        return self.tuning["conditions"].get("selfCheck", {}).get("failed", [])


class Bench:
    """A daemon, the command line, and the GPU."""

    def __init__(self, daemon, cli, gpu):
        self.daemon, self.cli, self.gpu = daemon, cli, gpu

    def tune(self, problem=PROBLEM, *args):
        return self.cli("tune", problem, "--budget", "20s", *args)

    def tuned(self, problem=PROBLEM, *args):
        result = self.tune(problem, *args)
        assert result.code == 0, result
        return Tuning(self.cli, problem)

    def device(self):
        (found,) = self.cli.ok("environments", "--json").json()["devices"]
        return found


@pytest.fixture
def bench(simulated_daemon, simulated_gpu, cli):
    """bench(*faults, args=(), **settings) starts a daemon on a GPU with these faults."""

    def make(*faults, args=(), **settings):
        simulated_gpu.script(*faults)
        daemon = simulated_daemon("--hang-timeout", "2s", *args, **settings).start()
        return Bench(daemon, cli(daemon), simulated_gpu)

    return make


def test_a_tuning_of_both_apis_is_measured_published_and_named_for_what_it_is(bench):
    it = bench()
    tuning = it.tuned(LARGE)
    assert tuning.evidence == "MEASURED" and not tuning.failed_self_check(), tuning.tuning["conditions"]
    assert len(tuning.with_status(TIMED)) > 40
    assert {"graph", "legacy"} == {text.split(":")[0] for text in tuning.with_status(TIMED)}
    assert tuning.tuning["environment"]["gpuModel"] == "SIMULATED H200"
    ways = {(way["launch"], way["cacheState"]) for way in tuning.candidates[tuning.winner]["otherTimes"]}
    assert ways == {("LAUNCH_MODE_GRAPH_CAPTURE", "CACHE_STATE_INPUT_HOT"), ("LAUNCH_MODE_EAGER", "CACHE_STATE_COLD")}
    assert all(each["capture"] == "CAPTURE_SUPPORT_YES" for each in tuning.candidates.values() if each["status"] == TIMED)
    wait_until(lambda: "1 choices" in it.daemon.log(), 20, "a published choice")
    assert "READY" in it.device()["state"]
    assert it.gpu.fired() == []


@pytest.mark.parametrize(
    "problem, apis",
    [
        ("fwd,x=2x16x14x14,w=16x16x3x3,pad=1,stride=2,nchw,f32", {"graph", "legacy"}),
        ("bwd_data,x=2x16x14x14,w=16x16x3x3,pad=1,nhwc,f16", {"graph", "legacy"}),
        ("bwd_filter,x=2x16x14x14,w=16x16x3x3,pad=1,nchw,f32", {"graph", "legacy"}),
        ("fwd,x=2x16x14x14,w=16x8x3x3,pad=1,dilation=2,groups=2,nchw,f16", {"graph", "legacy"}),
        ("fwd,x=2x16x9x12x12,w=16x16x3x3x3,pad=1,nchw,f32", {"graph", "legacy"}),
        ("fwd,x=2x16x14x14,w=16x16x3x3,pad=1,nhwc,bf16,epilogue=bias+relu", {"graph"}),
        ("fwd,x=2x16x14x14,w=16x16x3x3,pad=1:0x1:0,mode=conv,nhwc,f16", {"graph"}),
        ("fwd,x=2x16x14x14,w=16x16x3x3,pad=1,nchw,f64", {"legacy"}),
        ("fwd,x=4x32x14x14,w=32x32x3x3,pad=1,nhwc,i8,out=i8", {"graph"}),
    ],
)
def test_every_form_of_a_problem_is_measured(bench, problem, apis):
    it = bench()
    tuning = it.tuned(problem, "--all-timings")
    assert tuning.evidence in ("MEASURED", "INCOMPLETE") and tuning.with_status(QUARANTINED) == []
    assert apis <= {text.split(":")[0] for text in tuning.with_status(TIMED)}, tuning.candidates
    ways = {(way["launch"], way["cacheState"]) for each in tuning.candidates.values() for way in each.get("otherTimes", [])}
    assert len(ways) == 5, ways
    # All that could be compared was right, and close.
    assert all(each.get("error", 0) < 0.03 for each in tuning.candidates.values()), tuning.candidates
    assert it.daemon.stop() == 0


def test_every_config_is_listed_where_it_is_asked_for(bench):
    it = bench()
    few = len(it.tuned(F32, "--api", "graph").candidates)
    result = it.cli("tune", F32, "--budget", "30s", "--api", "graph", "--force", "--search", "exhaustive")
    assert result.code == 0, result
    assert len(Tuning(it.cli, F32).candidates) > few


def test_the_same_seed_gives_the_same_samples(bench, simulated_daemon, simulated_gpu, cli):
    seen = []
    for seed in (7, 7, 8):
        daemon = simulated_daemon(seed=seed).start()
        tuning = Bench(daemon, cli(daemon), simulated_gpu).tuned()
        # Host times are the host's, and break ties only.
        seen.append({text: each.get("samplesNs") for text, each in tuning.candidates.items()})
        daemon.stop()
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]


@pytest.mark.parametrize("action, reason", [("wrong", "wrong"), ("nan", "NaN"), ("beyond_output", "output"), ("beyond_workspace", "workspace")])
def test_an_engine_that_computes_nonsense_is_quarantined_and_never_an_answer(bench, action, reason):
    # Engine 1 has a workspace, and is nobody's stock choice.
    it = bench(f"engine:1 = {action}")
    tuning = it.tuned()
    assert f"engine:1 = {action}" in it.gpu.fired()
    assert tuning.statuses(1) == {"QUARANTINED"}, tuning.of_engine(1)
    assert all(reason in each["errorMessage"] for each in tuning.of_engine(1)), tuning.of_engine(1)
    assert tuning.evidence == "MEASURED" and tuning.winner in tuning.with_status(TIMED)
    # The next tuning does not run it.
    before = len(it.gpu.fired())
    again = it.tuned(PROBLEM, "--force")
    assert again.statuses(1) == {"QUARANTINED"} and len(it.gpu.fired()) == before


def test_a_fault_of_most_engines_is_not_believed(bench):
    it = bench("launch:eager operation:fwd = wrong")
    it.tune()
    tuning = Tuning(it.cli, PROBLEM)
    assert it.gpu.fired()
    assert tuning.with_status(QUARANTINED) == [] and tuning.with_status(TIMED) == []
    assert tuning.evidence == "HEURISTIC"


@pytest.mark.parametrize("action", ["fail", "not_supported"])
def test_an_engine_that_fails_at_run_is_failed_and_costs_nobody_else(bench, action):
    it = bench(f"engine:22 = {action}")
    tuning = it.tuned()
    assert it.gpu.fired()
    assert tuning.statuses(22) == {"FAILED"}, tuning.of_engine(22)
    assert all(each["errorMessage"] for each in tuning.of_engine(22))
    assert tuning.evidence == "MEASURED" and tuning.statuses(62) == {"TIMED"}


def test_a_run_that_fails_once_is_tried_again(bench):
    it = bench("engine:45 launch:eager nth:1 = fail", "engine:62 launch:eager nth:90 = fail", "legacy:0/0 nth:1 = fail")
    tuning = it.tuned()
    assert len(it.gpu.fired()) == 3, it.gpu.fired()
    assert tuning.statuses(45) == {"TIMED"} and tuning.statuses(62) == {"TIMED"} and tuning.of_engine("0")[0]["status"] == TIMED
    assert tuning.tuning["conditions"]["retriedRuns"] == 3, tuning.tuning["conditions"]
    assert "runs that failed and were tried once more: 3" in it.cli.ok("explain", PROBLEM).out


def test_a_candidate_that_fails_in_a_capture_is_no_answer_for_graphs(bench):
    it = bench("engine:45 launch:capture = fail")
    tuning = it.tuned()
    assert it.gpu.fired()
    assert tuning.statuses(45) == {"TIMED"}
    assert all(each["capture"] == "CAPTURE_SUPPORT_NO" for each in tuning.of_engine(45))
    assert all(each["capture"] == "CAPTURE_SUPPORT_YES" for each in tuning.of_engine(62))
    graphs = it.cli.ok("get", PROBLEM, "--launch", "graph", "--json").out
    assert "eng45" not in json.dumps(json.loads(graphs)["results"][0]["answer"]["winner"]), graphs


@pytest.mark.parametrize("fault", ["engine:45 launch:replay = wrong", "engine:45 launch:capture = fork", "engine:45 launch:capture = synchronize"])
def test_what_spoils_a_capture_or_differs_in_a_replay_is_not_captured(bench, fault):
    it = bench(fault)
    tuning = it.tuned()
    assert fault in it.gpu.fired()
    assert tuning.statuses(45) == {"TIMED"}
    assert all(each["capture"] == "CAPTURE_SUPPORT_NO" for each in tuning.of_engine(45)), tuning.of_engine(45)
    assert tuning.statuses(62) == {"TIMED"} and tuning.evidence == "MEASURED"
    assert all(each["capture"] == "CAPTURE_SUPPORT_YES" for each in tuning.of_engine(62))


def test_a_capture_left_open_is_the_candidates_failure_and_no_crash(bench):
    it = bench("engine:1 launch:eager = leave_capture_open")
    tuning = it.tuned()
    assert it.gpu.fired()
    assert tuning.statuses(1) == {"FAILED"}, tuning.of_engine(1)
    assert tuning.with_status(QUARANTINED) == []
    assert int(it.device().get("workerDeaths", 0)) == 0, it.device()
    assert tuning.evidence == "MEASURED"


def test_a_stock_choice_that_fails_makes_the_tuning_incomplete(bench):
    it = bench()
    stock = next(text for text, each in it.tuned().candidates.items() if each.get("modeAPlace") == 1)
    fault = f"config:{stock.removeprefix('graph:')} = fail"
    it.gpu.script(fault)
    tuning = it.tuned(OTHER)
    assert fault in it.gpu.fired()
    assert tuning.candidates[stock]["status"] == "CANDIDATE_STATUS_FAILED" and tuning.evidence == "INCOMPLETE"
    assert "lists first for the graph API failed" in it.cli.ok("explain", OTHER).out


def test_a_slow_engine_is_given_up_after_one_run(bench):
    it = bench("engine:28 = slow", "engine:1 = slow")
    tuning = it.tuned(LARGE)
    assert it.gpu.fired()
    slow = tuning.of_engine(1) + tuning.of_engine(28)
    assert slow and all(each["status"] == TIMED and each["sampleCount"] == 1 for each in slow), slow


@pytest.mark.parametrize("action", ["abort", "sticky"])
def test_what_takes_the_worker_down_twice_is_quarantined(bench, action):
    it = bench(f"config:eng28 = {action}")
    tuning = it.tuned()
    assert len(it.gpu.fired()) >= 2
    text = "graph:eng28"
    assert text in tuning.with_status(QUARANTINED), tuning.candidates[text]
    assert tuning.with_status(QUARANTINED) == [text]
    assert tuning.evidence == "MEASURED"
    # The worker that follows is sound.
    assert it.tuned(OTHER).evidence == "MEASURED"
    assert "READY" in it.device()["state"], it.device()


def test_a_hang_is_noticed_long_before_the_budget_and_quarantined(bench):
    it = bench("config:eng28 = hang")
    result = it.cli("tune", PROBLEM, "--budget", "60s", timeout=40)
    assert result.code == 0, result
    assert it.gpu.fired()
    wait_until(lambda: Tuning(it.cli, PROBLEM).candidates["graph:eng28"]["status"] == QUARANTINED, 30, "its quarantine")


@pytest.mark.parametrize("fault", ["call:cudaMemGetInfo nth:5 times:1 = lost", "malloc:400000 nth:3 times:1 = lost"])
def test_a_context_lost_outside_a_run_ends_the_worker_and_not_the_device(bench, fault):
    it = bench(fault)
    outcomes = [it.tune(problem).code for problem in (PROBLEM, OTHER, F32)]
    assert it.gpu.fired() == [fault], it.gpu.fired()
    # At most the one that met it: the next worker is sound.
    assert outcomes.count(0) >= 2 and outcomes[-1] == 0, outcomes
    assert it.tuned(F32, "--force").evidence == "MEASURED"
    assert it.tuned(PROBLEM, "--force").evidence == "MEASURED"


def test_one_engine_that_waits_in_its_launch_costs_itself_alone(bench):
    it = bench("engine:22 = synchronize")
    tuning = it.tuned()
    assert it.gpu.fired()
    assert tuning.statuses(22) == {"FAILED"}, tuning.of_engine(22)
    assert tuning.statuses(62) == {"TIMED"} and tuning.evidence == "MEASURED"
    it.gpu.script()
    fired = len(it.gpu.fired())
    # Gone with the problem, and nothing of it is left.
    after = it.tuned(OTHER)
    assert len(it.gpu.fired()) == fired
    assert after.statuses(22) == {"TIMED"} and after.evidence == "MEASURED"
    # Behind blocking kernels again, all of it.
    assert len(clocks(after)) == len(after.with_status(TIMED)) and "unblocked" not in after.tuning["conditions"]


def clocks(tuning):
    """SM clocks, which only samples behind a blocking kernel have."""
    return [each["smClockMhz"] for each in tuning.candidates.values() if each["status"] == TIMED and each.get("smClockMhz")]


def test_without_blocking_kernels_tunings_say_so(bench):
    it = bench("launch:eager = synchronize")
    tuning = it.tuned()
    assert it.gpu.fired()
    assert tuning.with_status(QUARANTINED) == []
    assert tuning.tuning["conditions"]["unblocked"], tuning.tuning["conditions"]
    assert "blocking kernel" in it.cli.ok("explain", PROBLEM).out and "blocking kernel" in it.cli("doctor").out


def test_relaunches_that_block_the_host_are_timed_all_the_same(bench):
    it = bench(relaunch_blocks=1)
    tuning = it.tuned()
    assert tuning.evidence == "MEASURED"
    replays = [way for each in tuning.candidates.values() for way in each.get("otherTimes", []) if way["launch"] == "LAUNCH_MODE_GRAPH_CAPTURE"]
    assert replays
    # Launches from the stream are not touched by it.
    after = it.tuned(OTHER)
    assert after.evidence == "MEASURED" and clocks(after)


def test_work_that_runs_early_is_measured_all_the_same(bench):
    it = bench(runs_early=1)
    tuning = it.tuned()
    assert tuning.failed_self_check() == [] and tuning.evidence == "MEASURED"
    assert tuning.with_status(QUARANTINED) == []


def test_no_block_on_sm_0_fails_the_clock(bench):
    it = bench(no_sm_0=1)
    it.tune()
    tuning = Tuning(it.cli, PROBLEM)
    assert "clock" in tuning.failed_self_check(), tuning.tuning["conditions"]
    assert tuning.evidence == "HEURISTIC" and tuning.with_status(TIMED) == []
    assert "clock" in it.cli("doctor").out


def test_a_clock_that_fails_may_be_used_all_the_same_and_marks_what_it_measured(bench, monkeypatch):
    monkeypatch.setenv("CONVTUNE_MEASURE_DESPITE_SELF_CHECK", "1")
    it = bench(no_sm_0=1)
    it.tune()
    tuning = Tuning(it.cli, PROBLEM)
    assert "clock" in tuning.failed_self_check() and tuning.evidence == "INCOMPLETE" and tuning.with_status(TIMED)
    assert "what is measured may be wrong" in it.cli.ok("explain", PROBLEM).out


def test_a_timer_of_coarse_steps_is_good_enough(bench):
    it = bench(timer_step_ns=1000)
    tuning = it.tuned()
    assert tuning.failed_self_check() == [] and tuning.evidence == "MEASURED"


def test_kernels_that_the_driver_refuses_leave_no_device_and_say_why(bench):
    it = bench("jit = fail")
    result = it.tune()
    assert result.code != 0
    assert "jit = fail" in it.gpu.fired()
    assert "compile the timer's kernels" in result.err + it.cli("doctor").out + it.daemon.log(), result


def test_a_failing_entry_of_cudnnfind_does_not_replace_the_legacy_stock_choice(bench):
    it = bench()
    clean = it.tuned()
    stock = min((each for text, each in clean.candidates.items() if text.startswith("legacy:") and each.get("heuristicRank", 0) >= 0 and each["status"] == TIMED), key=lambda each: each.get("heuristicRank", 0))
    name = f"{stock['legacyAlgorithm'].get('algorithm', 0)}/{stock['legacyAlgorithm'].get('mathType', 0)}"
    fault = f"find:{name} = fail"
    it.gpu.script(fault)
    it.cli.ok("delete", PROBLEM)
    tuning = it.tuned()
    assert fault in it.gpu.fired()
    assert tuning.candidates[stock["text"]]["status"] == TIMED, tuning.candidates[stock["text"]]


def test_memory_that_runs_out_costs_the_largest_workspaces(bench):
    fault = "malloc:4000000 = fail"
    it = bench()
    it.tuned(OTHER)
    it.gpu.script(fault)
    # x and y have 1.6 MB each, the largest workspaces more than 4 MB.
    tuning = it.tuned("fwd,x=8x128x28x28,w=128x128x3x3,pad=1,nchw,f16")
    assert fault in it.gpu.fired()
    statuses = {each["status"].removeprefix("CANDIDATE_STATUS_") for each in tuning.candidates.values()}
    assert "SKIPPED_MEMORY" in statuses or "FAILED" in statuses, statuses
    assert tuning.with_status(TIMED)


def test_tf32_in_silence_is_noted(bench):
    # Engine 0 computes in f32 and says nothing of tensor cores.
    it = bench("engine:0 = tf32")
    tuning = it.tuned(F32)
    assert it.gpu.fired()
    (engine,) = tuning.of_engine(0)
    assert engine["status"] == TIMED and "NUMERICAL_NOTE_TENSOR_CORE" in engine.get("numericalNotes", []), engine


def test_a_clock_that_falls_for_a_while_does_not_decide(bench):
    it = bench()
    it.gpu.clock(0.6)
    slow = it.tuned()
    assert all(abs(mhz - 0.6 * 1980) < 60 for mhz in clocks(slow)), clocks(slow)[:3]
    it.gpu.clock(1)
    assert all(abs(mhz - 1980) < 60 for mhz in clocks(it.tuned(OTHER)))


def test_the_benchmark_of_a_tunings_cost_finds_every_step(simulated_gpu, daemons, tmp_path):
    @contextlib.contextmanager
    def daemon_in(folder, *args, env):
        yield daemons(*args, env=env).start()

    rows = tuning_cost.measure(tmp_path, PROGRAMS, daemon_in, batch=1, most=2)
    gpu = {row["step"]: row["value"] for row in rows if row["figure"] == "tuning_gpu_s"}
    host = {row["step"]: row["value"] for row in rows if row["figure"] == "tuning_host_s"}
    assert all(gpu[step] > 0 for step in ("list", "check", "race", "secondary")), gpu
    assert all(host[step] > 0 for step in ("list", "plan", "check", "race", "secondary")), host
    assert abs(sum(gpu.values()) - 2 * gpu["all"]) < 1e-9
    assert 0 < rows[-1]["value"] < 1
