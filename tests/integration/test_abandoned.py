"""Look-ups whose deadline ends before their work: who comes after them does not wait for it."""

import grpc

from harness.api import API
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered_list


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


def open_jobs(client):
    return [j for j in client.tuning.ListTuningJobs().jobs if not j.HasField("end_time")]


def test_the_next_caller_goes_first_and_the_work_is_seen_and_cancelled(fake_daemon, cli):
    daemon = fake_daemon(env=script(prepare_delay_ms=200)).start()
    with daemon.client() as client:
        abandon(client, numbered_list(0, 300))
        wait_until(lambda: client.info().waiting_callers == 0, 20, "callers that are gone are not counted")
        (job,) = open_jobs(client)
        assert job.abandoned and 250 < job.problem_count <= 300, job
        (answer,) = client.get(*numbered_list(900, 1), on_miss="ON_MISS_HEURISTIC")
        assert answer.answer.winner.text
        assert client.info().queue_depth > 200
        assert "callers gone" in cli(daemon).ok("jobs", "list").out
        cli(daemon).ok("jobs", "cancel", job.name)
        assert client.info().queue_depth == 0 and open_jobs(client) == []
