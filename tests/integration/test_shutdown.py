"""SIGTERM: an orderly end, whatever goes on."""

import contextlib
import signal
import threading
import time

import grpc
import pytest

from harness.daemon import alive, wait_until
from harness.fakes import script
from harness.problems import numbered, numbered_list


def test_under_load_it_exits_in_ten_seconds_and_keeps_what_it_acknowledged(fake_daemon):
    daemon = fake_daemon().start()
    acknowledged = {}
    stopping = threading.Event()

    def load(first):
        with daemon.client() as client:
            index = first
            while not stopping.is_set():
                text = numbered(index)
                index += 1
                with contextlib.suppress(grpc.RpcError):
                    result = client.get_one(text, on_miss="ON_MISS_TUNE", timeout=20)
                    if result.answer.persisted:
                        acknowledged[text] = result.answer.winner.text

    threads = [threading.Thread(target=load, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(acknowledged) >= 20, 60, "20 results")
    began = time.monotonic()
    code = daemon.stop(timeout=15)
    took = time.monotonic() - began
    stopping.set()
    for thread in threads:
        thread.join()
    assert code == 0
    assert took < 10
    daemon.start()
    with daemon.client() as client:
        found = {t: client.get_one(t).answer.winner.text for t in acknowledged}
    assert found == acknowledged


@pytest.mark.ci
def test_during_a_long_tuning_it_exits_in_ten_seconds(fake_daemon):
    daemon = fake_daemon(env=script(measure_delay_ms=60000)).start()
    with daemon.client() as client:
        first = client.get_one(numbered(0), on_miss="ON_MISS_HEURISTIC")
        job = client.tuning.CreateTuningJob(problems=[{"text": t} for t in numbered_list(1, 5)])
        wait_until(
            lambda: client.tuning.GetTuningJob(name=job.name).current_candidates_total > 0, 20, "a tuning that runs"
        )
        workers = daemon.workers()
        began = time.monotonic()
        assert daemon.stop(timeout=15) == 0
        assert time.monotonic() - began < 10
    assert workers and not any(alive(w) for w in workers)
    daemon.start(env=script())
    with daemon.client() as client:
        assert client.get_one(numbered(0)).answer.winner.text == first.answer.winner.text


@pytest.mark.ci
def test_while_a_suspect_is_judged_behind_the_answer_it_exits_in_ten_seconds(fake_daemon):
    # Its worker is waited for, and another one that is given nothing but it.
    env = script(fault="hang", where="prepare", index=0)
    daemon = fake_daemon("--hang-timeout", "15s").start(env=env)
    with daemon.client() as client:
        client.tune(numbered(1), options={"time_budget": {"nanos": 500_000_000}})
        wait_until(lambda: client.tuning.ListDevices().devices[0].worker_deaths == 1, 30, "the judgement's begin")
    began = time.monotonic()
    assert daemon.stop(timeout=30) == 0
    assert time.monotonic() - began < 10


def test_sigint_is_an_orderly_end_too(fake_daemon):
    daemon = fake_daemon().start()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.wait(10) == 0
    assert not daemon.socket.exists()
