"""A candidate that takes its worker down costs that worker, and nothing else."""

import os
import signal
import time

import pytest

from harness.daemon import alive, wait_until
from harness.fakes import script
from harness.look_ups import LookUps
from harness.problems import numbered

SUSPECT = 1  # index of the candidate that faults, in the fake's listing


def by_status(client, text):
    """{status name: [candidates]} of a tuning."""
    found = {}
    for candidate in client.tuning.GetTuning(problem={"text": text}).candidates:
        values = candidate.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number
        found.setdefault(values[candidate.status].name, []).append(candidate)
    return found


@pytest.mark.parametrize("where", ["prepare", "measure"])
@pytest.mark.parametrize("fault", ["segv", "abort", "exit"])
def test_faulting_candidate_is_quarantined(fake_daemon, cli, fault, where):
    known, text = numbered(0), numbered(7)
    faults = script(fault=fault, where=where, index=SUSPECT, problem=text)
    daemon = fake_daemon().start(env=faults)
    pid = daemon.pid
    with daemon.client() as client:
        assert client.tune(known).succeeded_count == 1
        with LookUps(daemon, known) as look_ups:
            job = client.tune(text, options={"time_budget": {"seconds": 10}})
            assert job.succeeded_count == 1 and job.failed_count == 0, job
        assert daemon.running() and daemon.pid == pid
        assert client.info().pid == pid
        assert look_ups.errors == [] and look_ups.count > 10
        statuses = by_status(client, text)
        (suspect,) = statuses["CANDIDATE_STATUS_QUARANTINED"]
        assert suspect.error_message
        assert statuses["CANDIDATE_STATUS_TIMED"]
        answer = client.get_one(text).answer
        assert answer.winner.text and answer.winner.text != suspect.text
        explained = cli(daemon).ok("explain", text)
        assert suspect.text in explained.out and "quarantined" in explained.out.lower()


@pytest.mark.ci
@pytest.mark.parametrize("where", ["prepare", "measure"])
def test_hanging_candidate_is_quarantined_behind_the_answer(fake_daemon, where):
    text = numbered(7)
    faults = script(fault="hang", where=where, index=SUSPECT, problem=text)
    daemon = fake_daemon("--hang-timeout", "1s").start(env=faults)
    with daemon.client() as client:
        job = client.tune(text, options={"time_budget": {"seconds": 10}})
        assert job.succeeded_count == 1 and job.failed_count == 0, job
        assert client.get_one(text).answer.winner.text
        # Once when it hung, once when it was tried alone.
        wait_until(lambda: client.tuning.ListDevices().devices[0].worker_deaths == 2, 20, "its judgement")
        job = client.tune(text, force=True, options={"time_budget": {"seconds": 10}})
        assert job.succeeded_count == 1, job
        statuses = by_status(client, text)
        (suspect,) = statuses["CANDIDATE_STATUS_QUARANTINED"]
        assert "hung" in suspect.error_message
        assert statuses["CANDIDATE_STATUS_TIMED"]


def test_deleting_a_problem_lifts_its_quarantine_and_outlives_the_daemon(fake_daemon, cli):
    text = numbered(7)
    daemon = fake_daemon().start(env=script(fault="segv", where="measure", index=SUSPECT, problem=text))
    with daemon.client() as client:
        client.tune(text)
        assert "CANDIDATE_STATUS_QUARANTINED" in by_status(client, text)
        cli(daemon).ok("delete", text)
    assert daemon.stop() == 0
    daemon.start(env=script())
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
        assert list(by_status(client, text)) == ["CANDIDATE_STATUS_TIMED"]


def test_quarantine_outlives_the_daemon(fake_daemon):
    text = numbered(7)
    daemon = fake_daemon().start(env=script(fault="segv", where="measure", index=SUSPECT, problem=text))
    with daemon.client() as client:
        client.tune(text)
        (suspect,) = by_status(client, text)["CANDIDATE_STATUS_QUARANTINED"]
    assert daemon.stop() == 0
    daemon.start(env=script(fault="segv", where="measure", index=SUSPECT, problem=text))
    with daemon.client() as client:
        job = client.tune(text, force=True)
        assert job.succeeded_count == 1
        assert [c.text for c in by_status(client, text)["CANDIDATE_STATUS_QUARANTINED"]] == [suspect.text]
        (device,) = client.tuning.ListDevices().devices
        assert device.worker_deaths == 0


@pytest.mark.ci
def test_kill_from_outside_blames_nobody(fake_daemon):
    known, text = numbered(0), numbered(7)
    daemon = fake_daemon().start(env=script(measure_delay_ms=100))
    pid = daemon.pid
    with daemon.client() as client:
        assert client.get_one(known, on_miss="ON_MISS_HEURISTIC").WhichOneof("outcome") == "answer"
        with LookUps(daemon, known) as look_ups:
            job = client.tuning.CreateTuningJob(problems=[{"text": text}])
            for _ in range(2):
                wait_until(
                    lambda: client.tuning.GetTuningJob(name=job.name).current_candidates_total > 0
                    and len(daemon.workers()) == 1, 20, "a tuning under way",
                )  # fmt: skip
                time.sleep(0.3)
                (worker,) = daemon.workers()
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda: not alive(worker), 10, "the worker's end")
            for last in client.tuning.WatchTuningJob(name=job.name, timeout=120):
                pass
        assert last.succeeded_count == 1, last
        assert look_ups.errors == []
        assert "CANDIDATE_STATUS_QUARANTINED" not in by_status(client, text)
        (device,) = client.tuning.ListDevices().devices
        assert device.worker_deaths >= 2
    assert daemon.pid == pid and daemon.running()


def test_worker_that_cannot_start_fails_the_job_and_not_the_daemon(daemons, fake_worker):
    daemon = daemons("--devices", "0", "--worker", fake_worker).start(env=script(fault="segv", where="listing"))
    with daemon.client() as client:
        result = client.get_one(numbered(1), on_miss="ON_MISS_TUNE", timeout=120)
        assert result.WhichOneof("outcome") == "miss"
        assert result.miss.message
    assert daemon.running()
