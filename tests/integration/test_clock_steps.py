"""The wall clock is set by an hour or a month, either way, while programs work and wait: nothing is killed, nothing stalls."""

import json
import signal
import subprocess
import threading
import time

import pytest

from conftest import PROGRAMS
from harness.api import API
from harness.clock import MONTH, STEPS, WallClock
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered
from test_example_server import PROFILE

NOTICED = 5  # seconds; Abseil looks at the system's clock every two or so
SLOW = script(measure_delay_ms=300, prepare_delay_ms=20)  # a tuning of ten seconds or so
STEPS_BACK = pytest.mark.parametrize("seconds", (-3600, pytest.param(-MONTH, marks=pytest.mark.ci)))


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


@pytest.fixture
def problems(tmp_path):
    """A list of one problem, in a file."""
    path = tmp_path / "problems.txt"
    path.write_text(numbered(0) + "\n")
    return path


def tune_over_a_step(daemon, clock, seconds):
    """Tunes for longer than it takes to notice that the clock was set meanwhile; the job, and how long it took."""
    jobs = []
    began = time.monotonic()
    with daemon.client() as client:
        work = threading.Thread(
            target=lambda: jobs.append(client.tune(numbered(0), options={"time_budget": {"seconds": 600}}))
        )
        work.start()
        wait_until(lambda: client.info().worker_starts, 20, "a worker")
        time.sleep(0.5)
        clock.step(seconds)
        stepped = time.monotonic()
        work.join(120)
        assert time.monotonic() - stepped > NOTICED, "the tuning was over before the step could be noticed"
    return jobs[0], time.monotonic() - began


@STEPS
def test_a_worker_at_work_is_left_to_it_and_its_tuning_took_as_long_as_it_did(fake_daemon, clock, seconds):
    daemon = fake_daemon(env={**SLOW, **clock.env}).start()
    job, took = tune_over_a_step(daemon, clock, seconds)
    assert API.enum_name("JobState", job.state) == "JOB_STATE_SUCCEEDED", job
    assert job.end_time.ToNanoseconds() >= job.create_time.ToNanoseconds()
    with daemon.client() as client:
        (device,) = client.tuning.ListDevices().devices
        assert (client.info().worker_starts, device.worker_deaths) == (1, 0)
        tuning = client.tuning.GetTuning(problem={"text": numbered(0)})
    assert NOTICED < tuning.elapsed.ToNanoseconds() / 1e9 < took
    assert "hung" not in daemon.log()


def test_a_tuning_that_spans_a_step_back_gets_to_the_fleet(fleet, fake_daemon, clock):
    daemon = fake_daemon(env={**SLOW, **clock.env}).start()
    fleet.agent("node-0", daemon)
    tune_over_a_step(daemon, clock, -3600)
    fleet.wait_delivered(1)


@STEPS_BACK
def test_an_agent_goes_on_with_its_exchanges(fleet, nodes, clock, seconds):
    daemon, = nodes(1, agents=False)
    fleet.agent("node-0", daemon, env=clock.env)
    fleet.deliver(daemon, numbered(0))
    clock.step(seconds)
    time.sleep(NOTICED)
    wait_until(lambda: fleet.node("node-0")["silent_seconds"] < 3, 10, "a heartbeat")
    fleet.deliver(daemon, numbered(1))
    fleet.wait_release(fleet.promote()["release"], ["node-0"])


def ends(command, clock, seconds, wait=lambda: time.sleep(1), env=None, **process):
    """Sets the clock once the command waits for something: its exit code, what it said, and how long it took."""
    began = time.monotonic()
    running = subprocess.Popen(
        command, env={**(env or {}), **clock.env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **process
    )
    try:
        wait()
        clock.step(seconds)
        said, _ = running.communicate(timeout=120)
    finally:
        running.kill()
    return running.returncode, said, time.monotonic() - began


@STEPS
def test_a_client_that_waits_for_a_daemon_waits_as_long_as_it_was_told(convtune, problems, tmp_path, clock, seconds):
    command = [convtune, "--address", f"unix:{tmp_path}/nobody", "warm", problems, "--wait-ready", "8s"]
    code, said, took = ends(command, clock, seconds)
    assert code == 4 and "not ready within 8s" in said and 8 <= took < 20, (code, said, took)


@STEPS
def test_a_call_to_a_daemon_that_hangs_ends_at_its_timeout(fake_daemon, convtune, clock, seconds):
    daemon = fake_daemon().start()
    daemon.process.send_signal(signal.SIGSTOP)
    code, said, took = ends([convtune, "--address", daemon.address, "--timeout", "6s", "get", numbered(0)], clock, seconds)
    daemon.process.send_signal(signal.SIGCONT)
    assert code == 4 and 6 <= took < 20, (code, said, took)


@STEPS
def test_a_client_that_watches_a_job_watches_it_to_its_end(fake_daemon, convtune, problems, clock, seconds):
    daemon = fake_daemon(env=SLOW).start()
    command = [convtune, "--address", daemon.address, "warm", problems, "--budget-total", "5m"]
    with daemon.client() as client:
        code, said, _ = ends(command, clock, seconds, lambda: wait_until(lambda: client.info().worker_starts, 20, "a worker"))
    assert code == 0, said


@STEPS
def test_a_resolver_is_back_within_its_limit(worker, problems, tmp_path, clock, seconds):
    """The example server gives its Resolver five seconds, in which nobody answers."""
    properties = tmp_path / "properties.json"
    properties.write_text(json.dumps(json.loads(PROFILE.read_text())["properties"], separators=(",", ":")))
    env = {"PATH": "/usr/bin:/bin", "CONVTUNE_ADDRESS": f"unix:{tmp_path}/nobody"}
    with problems.open() as asked:
        code, said, took = ends([PROGRAMS / "convtune-example-server", properties], clock, seconds, env=env, stdin=asked)
    assert code == 0 and "cuDNN's heuristic" in said and took < 20, (code, said, took)
