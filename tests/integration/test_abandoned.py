"""Look-ups whose deadline ends before their work: who comes after them does not wait for it."""


import grpc
import pytest

from harness.api import API
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered_list

ABANDONED_MOST = 1000
SLOW = script(prepare_delay_ms=200)


def abandon(client, texts):
    """One look-up each, with a deadline that none keeps."""
    futures = [
        client.tuning.BatchGetRaw.future(
            API.BatchGetRequest(problems=[{"text": text}], on_miss="ON_MISS_HEURISTIC"), timeout=0.5
        )
        for text in texts
    ]
    codes = [future.code() for future in futures]
    assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) > len(codes) - 10, set(codes)


@pytest.fixture
def slow_daemon(fake_daemon):
    return fake_daemon(env=SLOW).start()


def open_jobs(client):
    return [j for j in client.tuning.ListTuningJobs().jobs if not j.HasField("end_time")]


def test_the_next_caller_goes_first_and_the_work_is_seen_and_cancelled(slow_daemon, cli):
    with slow_daemon.client() as client:
        abandon(client, numbered_list(0, 300))
        wait_until(lambda: client.info().waiting_callers == 0, 20, "callers that are gone are not counted")
        (job,) = open_jobs(client)
        assert job.abandoned and 250 < job.problem_count <= 300, job
        (answer,) = client.get(*numbered_list(900, 1), on_miss="ON_MISS_HEURISTIC")
        assert answer.answer.winner.text
        assert client.info().queue_depth > 200
        assert "callers gone" in cli(slow_daemon).ok("jobs", "list").out
        cli(slow_daemon).ok("jobs", "cancel", job.name)
        assert client.info().queue_depth == 0 and open_jobs(client) == []


def test_only_so_much_of_it_is_kept(slow_daemon):
    with slow_daemon.client() as client, slow_daemon.client() as other:
        # A connection that resets more than 1,000 calls at once is ended.
        abandon(client, numbered_list(0, 750))
        abandon(other, numbered_list(750, 750))
        wait_until(lambda: client.info().waiting_callers == 0, 20, "callers that are gone are not counted")
        (job,) = open_jobs(client)
        assert client.info().queue_depth <= ABANDONED_MOST
        done = job.succeeded_count + job.failed_count
        assert job.problem_count - done <= ABANDONED_MOST
