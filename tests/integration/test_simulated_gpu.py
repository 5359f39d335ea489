"""The real worker on the simulated GPU: what a fault on the GPU comes to, through the daemon, to its end.

Bench.tuned() asserts that a fault did fire; where a test tunes in another way, it asserts that itself.
"""

import contextlib
import json
import statistics
import sys
import threading

import pytest

from conftest import PROGRAMS, REPO
from harness.daemon import wait_until
from harness.simgpu import F32, LARGE, OTHER, PROBLEM, QUARANTINED, TIMED, Tuning, fault_name

sys.path.insert(0, str(REPO / "tests" / "bench"))
import tuning_cost  # noqa: E402


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
        pytest.param("fwd,x=2x16x14x14,w=16x8x3x3,pad=1,dilation=2,groups=2,nchw,f16", {"graph", "legacy"}, marks=pytest.mark.ci),
        pytest.param("fwd,x=2x16x9x12x12,w=16x16x3x3x3,pad=1,nchw,f32", {"graph", "legacy"}, marks=pytest.mark.ci),
        ("fwd,x=2x16x14x14,w=16x16x3x3,pad=1,nhwc,bf16,epilogue=bias+relu", {"graph"}),
        pytest.param("fwd,x=2x16x14x14,w=16x16x3x3,pad=1:0x1:0,mode=conv,nhwc,f16", {"graph"}, marks=pytest.mark.ci),
        pytest.param("fwd,x=2x16x14x14,w=16x16x3x3,pad=1,nchw,f64", {"legacy"}, marks=pytest.mark.ci),
        ("fwd,x=4x32x14x14,w=32x32x3x3,pad=1,nhwc,i8,out=i8", {"graph"}),
        pytest.param("fwd,x=2x32x14x14,w=32x32x3x3,pad=1,nhwc,i8,out=i32", {"graph"}, marks=pytest.mark.ci),
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


def test_fp8_has_no_engine_without_scales_and_the_reason_is_cudnns(bench):
    it = bench()
    result = it.tune("fwd,x=2x32x14x14,w=32x32x3x3,pad=1,nhwc,e4m3,out=f16")
    assert result.code == 1 and "list no engine for this problem; the legacy API has no fp8" in result.err, result


@pytest.mark.ci
def test_every_config_is_listed_where_it_is_asked_for(bench):
    it = bench()
    few = len(it.tuned(F32, "--api", "graph").candidates)
    result = it.cli("tune", F32, "--budget", "30s", "--api", "graph", "--force", "--search", "exhaustive")
    assert result.code == 0, result
    assert len(Tuning(it.cli, F32).candidates) > few


@pytest.mark.ci
def test_the_same_seed_gives_the_same_samples(bench):
    seen = []
    for seed in (7, 7, 8):
        it = bench(seed=seed)
        # Host times are the host's, and break ties only.
        seen.append({text: each.get("samplesNs") for text, each in it.tuned().candidates.items()})
        it.daemon.stop()
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]


def test_a_winner_that_turns_out_wrong_is_an_answer_no_more(bench):
    it = bench()
    before = it.tuned()
    winner = before.winner
    it.gpu.script(f"{fault_name(before.candidates[winner])} = wrong")
    tuning = it.tuned(PROBLEM, "--force")
    assert tuning.with_status(QUARANTINED) == [winner] and tuning.winner != winner
    assert winner not in json.dumps(it.cli.ok("get", PROBLEM, "--json").json()["results"][0]["answer"]["winner"])


@pytest.mark.ci
def test_a_legacy_algorithm_that_computes_nonsense_is_quarantined(bench):
    it = bench()
    algorithm = lambda each: each["legacyAlgorithm"].get("algorithm", 0)
    stock = algorithm(it.stock("legacy"))
    ran = [each for each in Tuning(it.cli, PROBLEM).of_api("legacy") if each["status"] == TIMED]
    other = next(each for each in ran if algorithm(each) != stock)
    it.gpu.script(f"{fault_name(other)} = wrong")
    tuning = it.tuned(OTHER)
    assert "QUARANTINED" in tuning.statuses(str(algorithm(other))) and tuning.evidence == "MEASURED"


@pytest.mark.parametrize(
    "action, reason",
    [
        ("wrong", "wrong"),
        ("beyond_workspace", "workspace"),
        pytest.param("nan", "NaN", marks=pytest.mark.ci),
        pytest.param("beyond_output", "output", marks=pytest.mark.ci),
    ],
)
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


@pytest.mark.ci
def test_a_fault_of_most_engines_is_not_believed(bench):
    it = bench()
    it.tuned(F32)
    it.gpu.script("launch:eager operation:fwd = wrong")
    it.tune()
    tuning = Tuning(it.cli, PROBLEM)
    assert it.gpu.fired()
    assert tuning.with_status(QUARANTINED) == [] and tuning.with_status(TIMED) == []
    assert tuning.evidence == "HEURISTIC" and tuning.candidates[tuning.winner]["modeAPlace"] == 1
    assert "no result could be judged" in it.cli.ok("explain", PROBLEM).out
    assert it.unpublished() == 1
    # Nobody is to blame, so all are tried again.
    it.gpu.script()
    assert it.tuned(PROBLEM, "--force").evidence == "MEASURED"


@pytest.mark.ci
def test_a_fault_of_a_stock_choices_engine_is_not_believed_of_that_engine(bench):
    it = bench()
    stock = it.stock("graph")
    engine = int(stock["text"].split(",")[0].removeprefix("graph:eng"))
    it.gpu.script(f"engine:{engine} = wrong")
    tuning = it.tuned(OTHER)
    assert tuning.with_status(QUARANTINED) == []
    # Programs run the stock choice anyway, so it is timed; its engine's others are not.
    assert tuning.statuses(engine) == {"TIMED", "UNJUDGED"} and [each["text"] for each in tuning.of_engine(engine) if each["status"] == TIMED] == [stock["text"]]
    assert tuning.evidence == "INCOMPLETE" and tuning.with_status(TIMED) != [stock["text"]]
    assert "among them the graph API's stock choice" in it.cli.ok("explain", OTHER).out


@pytest.mark.ci
def test_a_fault_of_a_whole_api_is_not_believed_of_it(bench):
    it = bench()
    it.gpu.script(*{f"{fault_name(each)} = nan" for each in it.tuned().of_api("legacy")})
    tuning = it.tuned(OTHER)
    assert {each["status"] for each in tuning.of_api("legacy")} <= {TIMED, "CANDIDATE_STATUS_UNJUDGED", "CANDIDATE_STATUS_UNSUPPORTED"}
    assert len([each for each in tuning.of_api("legacy") if each["status"] == TIMED]) == 1, "the stock choice"
    assert tuning.statuses(62) == {"TIMED"} and tuning.winner.startswith("graph:")
    assert tuning.evidence == "INCOMPLETE"
    assert "among them the legacy API's stock choice" in it.cli.ok("explain", OTHER).out


@pytest.mark.parametrize("action", ["fail", pytest.param("not_supported", marks=pytest.mark.ci)])
def test_an_engine_that_fails_at_run_is_failed_and_costs_nobody_else(bench, action):
    tuning = bench(f"engine:22 = {action}").tuned()
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


def test_a_candidate_that_fails_twice_is_failed_and_tried_by_the_next_tuning(bench):
    it = bench("engine:28 launch:eager times:2 = fail")
    tuning = it.tuned()
    assert len(it.gpu.fired()) == 2
    (failed,) = [each for each in tuning.of_engine(28) if each["status"] == "CANDIDATE_STATUS_FAILED"]
    assert "EXECUTION_FAILED" in failed["errorMessage"] and tuning.tuning["conditions"]["retriedRuns"] == 1
    assert tuning.evidence == "MEASURED"
    assert it.tuned(PROBLEM, "--force").candidates[failed["text"]]["status"] == TIMED


@pytest.mark.parametrize(
    "fault, retried",
    [
        ("call:cudaEventRecord nth:3000 = fail", 1),
        pytest.param("call:cudaEventElapsedTime nth:1500 = fail", 1, marks=pytest.mark.ci),
        pytest.param("kernel:convtune_stamp nth:1000 = fail", 1, marks=pytest.mark.ci),
        pytest.param("load_code nth:9 = fail", 1, marks=pytest.mark.ci),
        ("call:cudaGraphUpload nth:3 = fail", 0),
        ("kernel:convtune_gather nth:7 = fail", 0),
    ],
)
def test_an_error_of_cuda_costs_a_run_or_a_capture_and_no_more(bench, fault, retried):
    it = bench(fault)
    tuning = it.tuned()
    assert it.gpu.fired() == [fault]
    assert tuning.evidence in ("MEASURED", "INCOMPLETE") and tuning.with_status(QUARANTINED) == []
    assert tuning.tuning["conditions"].get("retriedRuns", 0) == retried
    assert int(it.device().get("workerDeaths", 0)) == 0
    timed = [tuning.candidates[text] for text in tuning.with_status(TIMED)]
    assert len(timed) > 40 and sum(each["capture"] == "CAPTURE_SUPPORT_NO" for each in timed) <= 1


@pytest.mark.ci
@pytest.mark.parametrize("fault", ["call:cudaGraphUpload = fail", "call:cudaGraphInstantiateWithFlags = fail", "call:cudaGraphLaunch = fail"])
def test_where_no_graph_can_be_made_nothing_answers_for_graphs(bench, fault):
    it = bench(fault)
    tuning = it.tuned()
    assert tuning.evidence == "MEASURED" and {tuning.candidates[text]["capture"] for text in tuning.with_status(TIMED)} == {"CAPTURE_SUPPORT_NO"}
    assert "winner" not in it.cli("get", PROBLEM, "--launch", "graph", "--json").json()["results"][0].get("answer", {})


def test_a_candidate_that_fails_in_a_capture_is_no_answer_for_graphs(bench):
    it = bench("engine:45 launch:capture = fail")
    tuning = it.tuned()
    assert tuning.statuses(45) == {"TIMED"}
    assert all(each["capture"] == "CAPTURE_SUPPORT_NO" for each in tuning.of_engine(45))
    assert all(each["capture"] == "CAPTURE_SUPPORT_YES" for each in tuning.of_engine(62))
    graphs = it.cli.ok("get", PROBLEM, "--launch", "graph", "--json").out
    assert "eng45" not in json.dumps(json.loads(graphs)["results"][0]["answer"]["winner"]), graphs


@pytest.mark.parametrize("fault", ["engine:45 launch:replay = wrong", pytest.param("engine:45 launch:capture = fork", marks=pytest.mark.ci), "engine:45 launch:capture = synchronize"])
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
    assert tuning.statuses(1) == {"FAILED"}, tuning.of_engine(1)
    assert tuning.with_status(QUARANTINED) == []
    assert int(it.device().get("workerDeaths", 0)) == 0, it.device()
    assert tuning.evidence == "MEASURED"


@pytest.mark.parametrize(
    "api, action",
    [
        ("graph", "abort"),
        pytest.param("legacy", "fail", marks=pytest.mark.ci),
        pytest.param("graph", "fail", marks=pytest.mark.ci),
        pytest.param("legacy", "abort", marks=pytest.mark.ci),
    ],
)
@pytest.mark.ci
def test_where_a_stock_choice_fails_or_is_quarantined_the_next_stands_in_for_it(bench, api, action):
    it = bench()
    stock = it.stock(api)
    it.gpu.script(f"{fault_name(stock)} = {action}")
    tuning = it.tuned(OTHER)
    assert tuning.candidates[stock["text"]]["status"] == ("CANDIDATE_STATUS_FAILED" if action == "fail" else QUARANTINED)
    assert tuning.evidence == "INCOMPLETE" and f"lists first for the {api} API failed" in it.cli.ok("explain", OTHER).out
    assert any(each["status"] == TIMED for each in tuning.of_api(api))


@pytest.mark.ci
def test_a_slow_stock_choice_is_checked_first_and_never_given_up(bench):
    it = bench()
    stock = it.stock("graph")
    it.gpu.script(f"{fault_name(stock)} = slow")
    tuning = it.tuned(OTHER)
    slow = tuning.candidates[stock["text"]]
    assert slow["status"] == TIMED and slow["sampleCount"] > 8
    assert tuning.evidence == "MEASURED" and tuning.winner != stock["text"]


def test_a_slow_engine_is_given_up_after_one_run(bench):
    tuning = bench("engine:28 = slow", "engine:1 = slow").tuned(LARGE)
    slow = tuning.of_engine(1) + tuning.of_engine(28)
    assert slow and all(each["status"] == TIMED and each["sampleCount"] == 1 for each in slow), slow


# A capture that is left open within another is on a stream of cuDNN's own, which nobody can end.
@pytest.mark.parametrize("fault", ["abort", "sticky", pytest.param("launch:capture = leave_capture_open", marks=pytest.mark.ci)])
@pytest.mark.ci
def test_what_takes_the_worker_down_twice_is_quarantined(bench, fault):
    it = bench("config:eng28 " + (fault if "=" in fault else f"= {fault}"))
    tuning = it.tuned()
    assert len(it.gpu.fired()) >= 2
    assert "its workers died 2 times" in it.cli("doctor").out
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
    assert "hung with a budget of 1m" in Tuning(it.cli, PROBLEM).candidates["graph:eng28"]["errorMessage"]


@pytest.mark.ci
def test_a_budget_that_ends_before_the_race_leaves_the_second_runs_times(bench):
    # The stock choices, of other engines, are checked before it.
    it = bench("engine:62 = hang", hang_timeout="30s")
    assert it.cli("tune", PROBLEM, "--budget", "8s").code == 0
    tuning = Tuning(it.cli, PROBLEM)
    assert it.gpu.fired() and tuning.evidence == "INCOMPLETE"
    timed = [tuning.candidates[text] for text in tuning.with_status(TIMED)]
    assert timed and all(each["sampleCount"] == 1 for each in timed)
    assert "the budget ended" in it.cli.ok("explain", PROBLEM).out


@pytest.mark.ci
@pytest.mark.parametrize("action", ["hang", "abort"])
def test_a_search_of_cudnnfind_that_does_not_come_back_costs_the_legacy_api(bench, action):
    it = bench()
    it.gpu.script(f"{fault_name(it.stock('legacy')).replace('legacy', 'find')} = {action}")
    result = it.cli("tune", OTHER, "--budget", "12s")
    assert it.gpu.fired() and result.code == 0, result
    tuning = Tuning(it.cli, OTHER)
    assert tuning.evidence == "INCOMPLETE" and tuning.of_api("legacy") == [] and tuning.winner.startswith("graph:")
    assert "only one of cuDNN's APIs was searched" in it.cli.ok("explain", OTHER).out


@pytest.mark.ci
def test_where_the_legacy_api_ranks_nothing_its_algorithms_are_tried_all_the_same(bench):
    tuning = bench("call:cudnnGetAlgorithm_v7 = fail").tuned()
    # Whoever is restricted to the legacy API has no stock choice to be guarded by.
    assert all(each.get("heuristicRank", 0) == -1 for each in tuning.of_api("legacy"))
    assert any(each["status"] == TIMED for each in tuning.of_api("legacy")) and tuning.evidence == "MEASURED"


@pytest.mark.long
def test_a_problem_that_is_too_large_for_cudnnfind_has_what_the_legacy_heuristic_lists(bench):
    it = bench(hang_timeout="600s")
    large = "fwd,x=64x128x112x112,w=128x128x3x3,pad=1,nhwc,f16"
    assert it.cli("tune", large, "--budget", "240s", timeout=600).code == 0
    tuning = Tuning(it.cli, large)
    assert tuning.evidence == "INCOMPLETE" and tuning.of_api("legacy")
    assert "too large for cudnnFind" in it.cli.ok("explain", large).out


@pytest.mark.parametrize(
    "fault",
    [
        "call:cudaMemGetInfo nth:5 times:1 = lost",
        pytest.param("malloc:400000 nth:3 times:1 = lost", marks=pytest.mark.ci),
        pytest.param("call:cudaStreamSynchronize nth:900 times:1 = lost", marks=pytest.mark.ci),
        pytest.param("call:cudaGraphUpload nth:4 times:1 = lost", marks=pytest.mark.ci),
    ],
)
def test_a_context_lost_outside_a_run_ends_the_worker_and_not_the_device(bench, fault):
    it = bench(fault)
    outcomes = [it.tune(problem).code for problem in (PROBLEM, OTHER, F32)]
    assert it.gpu.fired() == [fault], it.gpu.fired()
    # At most the one that met it: the next worker is sound.
    assert outcomes.count(0) >= 2 and outcomes[-1] == 0, outcomes
    assert it.tuned(F32, "--force").evidence == "MEASURED"
    assert it.tuned(PROBLEM, "--force").evidence == "MEASURED"


@pytest.mark.parametrize("action", ["synchronize", pytest.param("allocate", marks=pytest.mark.ci)])
def test_one_engine_that_waits_in_its_launch_costs_itself_alone(bench, action):
    it = bench(f"engine:22 = {action}")
    tuning = it.tuned()
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
    assert tuning.with_status(QUARANTINED) == []
    assert tuning.tuning["conditions"]["unblocked"], tuning.tuning["conditions"]
    assert "blocking kernel" in it.cli.ok("explain", PROBLEM).out and "blocking kernel" in it.cli("doctor").out


@pytest.mark.ci
def test_relaunches_that_block_the_host_are_timed_all_the_same(bench):
    it = bench(relaunch_blocks=1)
    tuning = it.tuned()
    assert tuning.evidence == "MEASURED"
    replays = [way for each in tuning.candidates.values() for way in each.get("otherTimes", []) if way["launch"] == "LAUNCH_MODE_GRAPH_CAPTURE"]
    assert replays
    # Launches from the stream are not touched by it.
    after = it.tuned(OTHER)
    assert after.evidence == "MEASURED" and clocks(after)


@pytest.mark.ci
def test_runs_that_share_a_flush_take_as_long_as_runs_with_one_each(bench):
    """Where there is no memory for copies of y, each run has a flush of its own."""
    problem, y_bytes = "fwd,x=16x16x56x56,w=256x16x1x1,nhwc,f16", 16 * 256 * 56 * 56 * 2
    it = bench(hang_timeout="20s")
    shared = it.tuned(problem, "--api", "graph").candidates
    it.gpu.script(*(f"malloc:{y_bytes} nth:{nth} = fail" for nth in range(2, 100)))
    alone = it.tuned(problem, "--api", "graph", "--force").candidates
    # The larger workspaces, and the first copy: what did not fit is not tried again.
    assert 1 <= len(it.gpu.fired()) <= 8, it.gpu.fired()
    sampled = [text for text in shared if min(each.get("sampleCount", 0) for each in (shared[text], alone[text])) >= 12]
    ratios = [shared[text]["medianUs"] / alone[text]["medianUs"] for text in sampled]
    assert len(ratios) >= 3 and all(0.95 < ratio < 1.05 for ratio in ratios), ratios


def samples_of(trace, candidate=None):
    """The race's samples in a worker's trace."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    return [line for line in lines if tuning_cost.step_of(line) == "race" and candidate in (None, line["candidate"])]


def test_the_candidates_of_a_race_share_flushes_alike_whatever_their_workspaces(bench, monkeypatch, tmp_path):
    trace, usage_path = tmp_path / "trace", tmp_path / "usage"
    monkeypatch.setenv("CONVTUNE_TRACE", str(trace))
    it = bench(usage=usage_path)
    # Engine 62 has configs with workspaces of a few bytes, and with some of a megabyte.
    it.tuned("fwd,x=32x2048x7x7,w=512x2048x1x1,nhwc,f16", "--api", "graph")
    usage = tuning_cost.usage_by_time(usage_path)
    workspaces, besides, before = {}, {}, None
    for line in map(json.loads, trace.read_text().splitlines()):
        if line["kind"] == "prepared":
            workspaces[line["candidate"]] = line.get("workspace_bytes", 0)
        # The first rounds find copies that are new.
        if tuning_cost.step_of(line) == "race" and line["round"] >= 3 and line["runs"] >= 6 and before["kind"] == "sample":
            busy = (tuning_cost.busy_at(usage, line["unix_us"]) - tuning_cost.busy_at(usage, before["unix_us"])) / 1e3
            besides.setdefault(line["candidate"], []).append(busy / line["runs"] - line["gpu_us"])
        before = line
    per_run = {candidate: statistics.median(each) for candidate, each in besides.items()}
    sizes = [workspaces[candidate] for candidate in per_run]
    assert min(sizes) < 1000 and max(sizes) > 1_000_000, workspaces
    assert max(per_run.values()) < 1.15 * min(per_run.values()), per_run


def test_a_copy_that_cannot_be_captured_does_not_cost_the_times_of_replays(bench):
    it = bench()
    before = it.tuned(PROBLEM, "--api", "legacy")
    winner = before.winner
    name = fault_name(before.candidates[winner])
    # The first capture is the check's, the second that of the same copy with a larger workspace.
    it.gpu.script(*(f"{name} launch:capture nth:{nth} = fail" for nth in (3, 4)))
    tuning = it.tuned(PROBLEM, "--force", "--api", "legacy")
    ways = {way["launch"] for way in tuning.candidates[winner].get("otherTimes", [])}
    assert "LAUNCH_MODE_GRAPH_CAPTURE" in ways, tuning.candidates[winner]


@pytest.mark.ci
def test_what_is_done_late_at_the_first_launch_on_a_copy_is_not_behind_a_blocking_kernel(bench, monkeypatch, tmp_path):
    trace = tmp_path / "trace"
    monkeypatch.setenv("CONVTUNE_TRACE", str(trace))
    it = bench()
    before = it.tuned()
    winner = before.winner
    trace.write_text("")
    # The first two launches are the check's.
    fault = f"{fault_name(before.candidates[winner])} launch:eager nth:3 = allocate"
    it.gpu.script(fault)
    it.tuned(PROBLEM, "--force")
    samples = samples_of(trace, winner)
    assert it.gpu.fired() == [fault] and samples
    assert all(line["blocked"] and line["gave_up"] == 0 for line in samples), samples


def test_work_that_runs_early_is_measured_all_the_same(bench):
    tuning = bench(runs_early=1).tuned()
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
    tuning = bench(timer_step_ns=1000).tuned()
    assert tuning.failed_self_check() == [] and tuning.evidence == "MEASURED"


def test_a_failing_entry_of_cudnnfind_does_not_replace_the_legacy_stock_choice(bench):
    it = bench()
    stock = it.stock("legacy")
    fault = f"{fault_name(stock).replace('legacy', 'find')} = fail"
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


def test_what_needs_more_than_the_memory_budget_is_not_run(bench):
    it = bench()
    # Flushing the cache takes 126 MB of it, the tensors and their check 2.
    result = it.tune(PROBLEM, "--memory-budget", "128MB")
    assert result.code == 0, result
    tuning = Tuning(it.cli, PROBLEM)
    skipped = tuning.with_status("CANDIDATE_STATUS_SKIPPED_MEMORY")
    assert skipped and tuning.with_status(TIMED) and tuning.evidence == "INCOMPLETE"
    assert "skipped for memory" in it.cli.ok("explain", PROBLEM).out
    refused = it.tune(OTHER, "--memory-budget", "100MB")
    assert refused.code != 0 and "flushing the GPU's cache needs 125829120" in refused.err, refused
    refused = it.tune(OTHER, "--memory-budget", "126MB")
    assert refused.code != 0 and "the tensors and the check of the output need" in refused.err, refused


def test_what_fails_is_in_the_trace_with_its_words(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("CONVTUNE_TRACE", str(tmp_path / "trace"))
    it = bench("engine:22 = fail", "engine:45 launch:capture = fail", "engine:1 launch:eager nth:20 = sticky")
    it.tuned()
    lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert {"worker", "problem", "prepared", "check", "sample", "conditions"} == {line["kind"] for line in lines}
    failed = [line for line in lines if line["kind"] == "check" and line["candidate"].startswith("graph:eng22")]
    assert failed and all("EXECUTION_FAILED" in line["failure"] for line in failed)
    assert any(line["kind"] == "check" and line["candidate"].startswith("graph:eng45") and "failed" in line["capture_refusal"] for line in lines)


def test_a_trace_that_cannot_be_written_keeps_workers_from_starting(bench, monkeypatch):
    monkeypatch.setenv("CONVTUNE_TRACE", "/nowhere/trace")
    with pytest.raises(AssertionError, match="convtuned ended with 1(.|\n)*/nowhere/trace"):
        bench()


def test_tf32_in_silence_is_noted(bench):
    # Engine 0 computes in f32 and says nothing of tensor cores.
    it = bench("engine:0 = tf32")
    tuning = it.tuned(F32)
    (engine,) = tuning.of_engine(0)
    assert engine["status"] == TIMED and "NUMERICAL_NOTE_TENSOR_CORE" in engine.get("numericalNotes", []), engine
    assert "eng0" not in json.dumps(it.cli.ok("get", F32, "--no-tf32", "--json").json()["results"][0]["answer"]["winner"])


def test_a_clock_that_falls_for_a_while_does_not_decide(bench):
    it = bench()
    it.gpu.clock(0.6)
    slow = it.tuned()
    assert all(abs(mhz - 0.6 * 1980) < 60 for mhz in clocks(slow)), clocks(slow)[:3]
    it.gpu.clock(1)
    assert all(abs(mhz - 1980) < 60 for mhz in clocks(it.tuned(OTHER)))


@pytest.mark.ci
def test_samples_under_a_low_clock_are_dropped(bench):
    it = bench()
    over = threading.Event()

    def throttle():
        while not over.wait(0.06):
            it.gpu.clock(0.5)
            over.wait(0.02)
            it.gpu.clock(1)

    thread = threading.Thread(target=throttle)
    thread.start()
    # In one race the low clocks may meet other candidates alone.
    for _ in range(30):
        tuning = it.tuned(LARGE, "--force")
        winner = tuning.candidates[tuning.winner]
        assert abs(winner["smClockMhz"] - 1980) < 60
        if winner["sampleCount"] < tuning.tuning["rounds"]:
            break
    over.set()
    thread.join()
    assert 8 <= winner["sampleCount"] < tuning.tuning["rounds"], tuning.tuning


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
