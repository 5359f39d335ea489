"""The real worker on the simulated GPU, before it measures: its start, the check of its own instruments, and its program.

Each test asserts that the fault that it scripted did fire.
"""

import json
import os
import socket
import struct
import subprocess

import pytest

from conftest import REPO, find_program
from harness.api import API
from harness.daemon import wait_until
from harness.simgpu import OTHER, PROBLEM, TIMED, Tuning

UNJUDGED = "CANDIDATE_STATUS_UNJUDGED"
CONTEXT, HANDLE, KERNELS, PLAN = "create a CUDA context", "create a cuDNN handle", "load the worker's kernels", "plan a first convolution"
# Where each step of the self-check is met. Of blocking kernels the start runs one, the first step
# one, and the clock's twenty.
STEPS = {
    "blocking_kernel": "kernel:convtune_blocking nth:2",
    "clock": "kernel:convtune_stamp nth:2",
    "caches": "kernel:convtune_blocking nth:23",
    "checker": "kernel:convtune_gather nth:2",
    "captures": "operation:fwd launch:capture nth:1",
}


def refused(it, words):
    """No worker can be started, the tuning and doctor say why, and a GPU that is mended is used again."""
    result = it.tune()
    assert result.code != 0 and "no worker can be started" in result.err and words in result.err, result
    assert it.gpu.fired()
    assert it.device()["state"] == "DEVICE_STATE_UNAVAILABLE" and words in it.device()["reason"], it.device()
    doctor = it.cli("doctor")
    assert doctor.code != 0 and "gpu:0 cannot be used" in doctor.out and words in doctor.out, doctor
    it.gpu.script()
    # Not at once: a start that failed is not tried again before its time.
    wait_until(lambda: it.tune().code == 0, 20, "a worker")
    assert Tuning(it.cli, PROBLEM).evidence == "MEASURED" and "READY" in it.device()["state"]


@pytest.mark.parametrize(
    "fault, step",
    [
        pytest.param("call:cudaStreamCreateWithFlags = abort", CONTEXT, marks=pytest.mark.ci),
        pytest.param("call:cudnnCreate = abort", HANDLE, marks=pytest.mark.ci),
        ("kernel:convtune_scan nth:1 = abort", KERNELS),
        pytest.param("call:cudaMemGetInfo nth:1 = abort", PLAN, marks=pytest.mark.ci),
    ],
)
def test_a_step_of_the_start_that_dies_leaves_no_device_and_is_named(bench, fault, step):
    refused(bench(fault), f'the worker does not start, at "{step}": the worker died')


@pytest.mark.parametrize(
    "fault, words",
    [
        pytest.param("call:cudaSetDevice = fail", "select the GPU: cudaErrorUnknown", marks=pytest.mark.ci),
        pytest.param("call:cudaStreamCreateWithFlags = fail", "create a stream: cudaErrorUnknown", marks=pytest.mark.ci),
        pytest.param("call:cudnnCreate = fail", "NOT_INITIALIZED", marks=pytest.mark.ci),
        ("jit = fail", "compile the timer's kernels: the compiler of PTX was not found"),
        pytest.param("kernel:convtune_scan nth:1 = fail", "scan an output: cudaErrorLaunchOutOfResources", marks=pytest.mark.ci),
        pytest.param("kernel:convtune_stamp nth:1 = sticky", "run the timer's kernels: cudaErrorLaunchFailure", marks=pytest.mark.ci),
        pytest.param("call:cudaHostAlloc = fail", "allocate memory that the GPU sees: cudaErrorUnknown", marks=pytest.mark.ci),
        pytest.param("malloc:100000000 = fail", "cudaErrorMemoryAllocation", marks=pytest.mark.ci),
    ],
)
def test_an_error_in_the_start_is_the_reason_that_people_read(bench, fault, words):
    refused(bench(fault), words)


@pytest.mark.long
@pytest.mark.parametrize("fault, step", [("call:cudnnCreate = hang", HANDLE), ("jit = hang", KERNELS)])
def test_a_step_of_the_start_that_hangs_leaves_no_device_and_is_named(bench, fault, step):
    # Three attempts of a minute each: libraries may come from a cold disk.
    refused(bench(fault), f'the worker does not start, at "{step}": it gave no sign of life for 1m')


def test_without_a_compiler_of_ptx_there_is_no_worker(bench, monkeypatch):
    monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", "1")
    it = bench()
    result = it.tune()
    assert result.code != 0 and "cudaErrorJitCompilationDisabled" in result.err, result
    assert "cudaErrorJitCompilationDisabled" in it.cli("doctor").out


@pytest.mark.ci
def test_a_first_plan_that_fails_is_a_line_in_the_log_and_no_more(bench):
    it = bench("call:cudaMemGetInfo nth:1 times:1 = fail")
    assert it.tuned().evidence == "MEASURED"
    assert it.gpu.fired() and "warming up: " in it.daemon.log()


def check_limits(it, failed):
    """A worker without these instruments concludes no more than it may, and everybody says so."""
    result = it.tune()
    tuning = Tuning(it.cli, PROBLEM)
    assert tuning.failed_self_check() == failed, tuning.tuning["conditions"]
    assert it.device()["selfCheck"]["failed"] == failed
    explained = it.cli.ok("explain", PROBLEM).out
    doctor = it.cli("doctor").out
    for instrument in failed:
        assert f"does not work on this GPU: {', '.join(failed)}" in explained and f"{instrument} (" in doctor, (explained, doctor)
    timed = [tuning.candidates[text] for text in tuning.with_status(TIMED)]
    ways = {(way["launch"], way["cacheState"]) for each in timed for way in each.get("otherTimes", [])}
    if "clock" in failed:
        assert tuning.evidence == "HEURISTIC" and not timed
    elif "checker" in failed:
        # The stock choices are the answer, as they are without convtune.
        assert tuning.evidence == "HEURISTIC" and not timed and tuning.with_status(UNJUDGED)
        assert "no result could be judged" in explained
    else:
        assert result.code == 0 and timed, result
    if timed:
        replays = any(launch == "LAUNCH_MODE_GRAPH_CAPTURE" for launch, _ in ways)
        assert replays == ("captures" not in failed), ways
        assert all(bool(each.get("smClockMhz")) == ("blocking_kernel" not in failed) for each in timed)
        cold = any(state != "CACHE_STATE_HOT" for _, state in ways) or tuning.tuning["cacheState"] != "CACHE_STATE_HOT"
        assert cold == ("caches" not in failed), (ways, tuning.tuning["cacheState"])
    if "captures" in failed:
        assert all("capture" not in each or each["capture"].endswith("UNSPECIFIED") for each in timed), timed
    return tuning


@pytest.mark.parametrize("instrument", ["caches", "blocking_kernel", "clock", "checker"])
@pytest.mark.ci
def test_an_instrument_that_fails_limits_what_is_concluded_until_a_worker_finds_it_mended(bench, instrument):
    it = bench(f"{STEPS[instrument]} = fail")
    check_limits(it, [instrument])
    assert it.gpu.fired() and int(it.device().get("workerDeaths", 0)) == 0
    # Found anew by the next worker, and gone where nothing is wrong any more.
    fired = len(it.gpu.fired())
    it.cli.ok("delete", PROBLEM)
    it.daemon.stop()
    it.daemon.start()
    check_limits(it, [instrument])
    assert len(it.gpu.fired()) > fired
    it.gpu.script()
    it.cli.ok("delete", PROBLEM)
    it.daemon.stop()
    it.daemon.start()
    tuning = it.tuned()
    assert tuning.evidence == "MEASURED" and tuning.failed_self_check() == []
    assert "found nothing wrong" in it.cli("doctor").out


def test_a_failed_capture_that_spoils_what_follows_turns_captures_off(bench):
    it = bench("operation:fwd launch:eager nth:1 = wrong")
    check_limits(it, ["captures"])
    assert it.gpu.fired() and "the result is off by" in it.device()["selfCheck"]["details"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "fault, instrument, words",
    [
        ("kernel:convtune_sweep = slow", "caches", "a flush at 0.0"),
        ("kernel:convtune_blocking = slow", "clock", "events do not agree with delays of known length"),
    ],
)
def test_a_reading_that_cannot_be_right_fails_its_instrument(bench, fault, instrument, words):
    it = bench(fault)
    it.tune()
    assert it.gpu.fired()
    check = it.device()["selfCheck"]
    assert instrument in check["failed"] and f"{instrument}: {words}" in check["details"], check


@pytest.mark.parametrize("instrument", ["clock", *(pytest.param(each, marks=pytest.mark.ci) for each in STEPS if each != "clock")])
def test_a_step_that_takes_a_worker_down_is_left_out_by_the_next(bench, instrument):
    it = bench(f"{STEPS[instrument]} times:1 = abort")
    check_limits(it, [instrument])
    lost(it)


@pytest.mark.parametrize("instrument", STEPS)
@pytest.mark.ci
def test_a_step_that_hangs_is_left_out_by_the_next_worker(bench, instrument):
    it = bench(f"{STEPS[instrument]} times:1 = hang")
    check_limits(it, [instrument])
    lost(it)


def lost(it):
    """One worker fell, the next left the step out, and so does no other daemon."""
    assert len(it.gpu.fired()) == 1 and int(it.device()["workerStarts"]) == 2, it.device()
    assert "a worker died or hung in this step" in it.device()["selfCheck"]["details"]
    it.daemon.stop()
    it.daemon.start()
    assert it.tuned(OTHER).failed_self_check() == []


def test_with_two_lost_steps_there_is_a_worker_and_with_three_there_is_none(bench):
    three = [f"{STEPS[each]} times:1 = abort" for each in ("clock", "checker", "captures")]
    it = bench(*three[:2])
    check_limits(it, ["clock", "checker"])
    assert int(it.device()["workerStarts"]) == 3
    it.daemon.stop()
    it.gpu.forget()
    it.gpu.script(*three)
    it.daemon.start()
    result = it.tune(OTHER)
    assert result.code != 0 and "no worker can be started: workers died or hung in these steps of their self-check: clock, checker, captures" in result.err, result
    assert len(it.gpu.fired()) == 3
    assert "gpu:0 cannot be used" in it.cli("doctor").out


def run(*args):
    done = subprocess.run([find_program("convtune-worker-sim"), *args], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_properties_of_a_card_that_are_dumped_are_those_that_it_has(simulated_gpu):
    code, out, _ = run("--dump-profile", "--device", "gpu:0")
    profile = json.loads((REPO / "deploy/profiles/nvidia-h200.json").read_text())["properties"]
    assert code == 0 and json.loads(out) == {**profile, "deviceName": "SIMULATED H200"}


def test_a_dumped_profile_stands_in_for_its_card(simulated_gpu, tmp_path):
    dumped = tmp_path / "card.json"
    dumped.write_text(run("--dump-profile", "--device", "gpu:0")[1])
    (card,) = map(json.loads, run("--probe", "--devices", "all")[1].splitlines())
    (profile,) = map(json.loads, run("--probe", "--profile", str(dumped))[1].splitlines())
    assert (card["error"], card["gpu_model"], card["pci_bus_id"]) == ("", "SIMULATED H200", "0000:01:00.0")
    assert profile["error"] == "" and profile["memory_bytes"] == card["memory_bytes"]


@pytest.mark.parametrize(
    "args, words",
    [
        (["--dump-profile"], "--device: must be gpu:N, N from 0"),
        (["--dump-profile", "--device", "gpu:-1"], "--device: must be gpu:N, N from 0"),
        (["--dump-profile", "--device", "gpu:1"], "there is no such GPU: they are numbered from 0 to 0"),
        (["--probe", "--devices", "0,x"], "--devices: must be all, none or numbers with commas between"),
        ([], "one of --fd, --probe, --dump-profile and --libraries must be given"),
        (["--fd", "1000"], "read: Bad file descriptor"),
    ],
)
def test_wrong_arguments_are_named(simulated_gpu, args, words):
    code, _, err = run(*args)
    assert code == 1 and words in err


def test_a_probe_has_a_line_for_a_gpu_that_is_not_there(simulated_gpu):
    there, missing = map(json.loads, run("--probe", "--devices", "0,1")[1].splitlines())
    assert there["error"] == "" and missing["error"] == "there is no such GPU: they are numbered from 0 to 0"


class Worker:
    """The worker without a daemon, asked as by one."""

    def __init__(self, gpu):
        self.socket, theirs = socket.socketpair()
        command = [find_program("convtune-worker-sim"), "--device", "gpu:0", "--fd", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **gpu.env()}, stderr=subprocess.DEVNULL)
        theirs.close()
        self.version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def replies(self, **request):
        message = API.of_worker("Request")(**request).SerializeToString()
        self.socket.sendall(struct.pack("<I", len(message)) + message)
        replies = []
        while not replies or not replies[-1].last:
            (size,) = struct.unpack("<I", self._read(4))
            replies.append(API.of_worker("Reply").FromString(self._read(size)))
        return replies

    def ask(self, **request):
        return self.replies(**request)[-1]

    def _read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the worker hung up"
            data += more
        return data

    def end(self):
        self.socket.close()
        return self.process.wait(20)


@pytest.fixture
def worker_alone(simulated_gpu):
    worker = Worker(simulated_gpu)
    yield worker
    worker.process.kill()
    worker.end()


def greet(worker):
    hello = worker.ask(hello={"version": worker.version}).hello
    assert hello.has_gpu and hello.environment_text.startswith("simulated-h200,") and list(hello.self_check.failed) == []


BOTH = {"problem_text": PROBLEM, "listing": "LISTING_HEURISTICS", "graph_api": True, "legacy_api": True}
GRAPH = {"problem_text": PROBLEM, "listing": "LISTING_HEURISTICS", "graph_api": True}


def test_each_request_ends_with_its_time_budget(worker_alone):
    greet(worker_alone)
    indexes = [reply.index for reply in worker_alone.replies(open_problem=GRAPH)[:-1]]
    everything = worker_alone.replies(indexes=indexes, prepare={})
    ready = [reply.index for reply in everything if reply.HasField("prepared") and reply.prepared.ok]
    for request in ({"indexes": indexes, "prepare": {}}, {"indexes": ready, "check": {}}, {"indexes": ready, "measure": {"rounds": 1000}}):
        replies = worker_alone.replies(**request, time_budget_ms=1)
        assert replies[-1].outcome.ok and replies[-1].outcome.out_of_time, (request, replies[-1])
        assert len([reply for reply in replies if reply.HasField("touching")]) < len(indexes)
    assert worker_alone.end() == 0


def test_a_listing_has_what_was_asked_for_and_no_more(worker_alone):
    greet(worker_alone)

    def listed(**options):
        *candidates, last = worker_alone.replies(open_problem={**BOTH, **options})
        found = [reply.listed for reply in candidates]
        return [(each.WhichOneof("kind"), str(getattr(each, each.WhichOneof("kind")))) for each in found], last.outcome

    everything, outcome = listed()
    assert outcome.ok and not outcome.truncated
    few, outcome = listed(max_candidates=3)
    assert outcome.truncated and few == everything[:3]
    first, _ = listed(listing="LISTING_FIRST_CONFIGS")
    assert {"engine_config", "legacy_algorithm"} == {kind for kind, _ in first} and len(first) < len(everything)
    asked, _ = listed(candidate_texts=["graph:eng28", "graph:eng99,k1=2"])
    assert asked[:-1] == everything and "engine_index: 99" in asked[-1][1]
    _, outcome = listed(problem_text=PROBLEM + ",sms=100")
    assert "the legacy API has no SM-count target" in outcome.message, outcome
    assert worker_alone.replies(read_conditions={})[0].HasField("conditions")
    assert worker_alone.end() == 0


def test_a_candidate_that_fails_while_it_is_timed_is_a_sample_with_words(worker_alone, simulated_gpu):
    greet(worker_alone)
    worker_alone.ask(open_problem={**GRAPH, "problem_text": "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f16,epilogue=add+bias+relu"})
    worker_alone.ask(indexes=[0], prepare={})
    assert worker_alone.ask(indexes=[0], check={}).outcome.ok
    simulated_gpu.script("launch:eager = fail")
    samples = [reply.sample for reply in worker_alone.replies(indexes=[0], measure={"rounds": 3}) if reply.HasField("sample")]
    assert len(samples) == 1 and "EXECUTION_FAILED" in samples[0].error_message and simulated_gpu.fired()
    assert worker_alone.end() == 0
