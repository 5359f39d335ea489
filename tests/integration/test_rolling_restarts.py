"""Restarts of the daemon while clients work: none of them sees an error that it cannot try again."""

import asyncio
import collections
import json
import subprocess
import threading
import time

import grpc
import pytest

from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered, numbered_list

pytestmark = pytest.mark.ci

KNOWN = numbered_list(0, 20)


class Callers:
    """Threads that call until they are told to stop; keeps what each kind of call ended with."""

    def __init__(self):
        self._stopping = threading.Event()
        self._threads = []
        self._lock = threading.Lock()
        self.ends = collections.Counter()
        self.wrong = []

    def add(self, count, kind, call):
        self._threads += [threading.Thread(target=self._run, args=(kind, call, index)) for index in range(count)]

    def _run(self, kind, call, index):
        while not self._stopping.is_set():
            try:
                call(index)
                end = "OK"
            except grpc.RpcError as error:
                end = error.code().name
                # What a client's library tries again, and words for its log.
                if error.code() != grpc.StatusCode.UNAVAILABLE or not error.details():
                    self.wrong.append((kind, end, error.details()))
                time.sleep(0.01)
            except Exception as error:  # of the package's client: it tries again by itself
                end = repr(error)
                self.wrong.append((kind, end))
            with self._lock:
                self.ends[kind, end] += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.long)])
def test_rolling_restarts_under_load_leak_no_error(ct, fake_daemon, convtune, restarts):
    daemon = fake_daemon(env=script(measure_delay_ms=0)).start()
    with daemon.client() as client:
        client.tune(*KNOWN)
    tuned = numbered_list(1000, 100 * restarts)
    tune = [str(convtune), "tune", *tuned, "--json", "--address", daemon.address]
    callers = Callers()
    raw = [daemon.client() for _ in range(64)]
    package = [ct.Client(daemon.address, use_snapshot=False, timeout=60) for _ in range(8)]
    callers.add(64, "get", lambda i: raw[i].get(*KNOWN, timeout=60))
    callers.add(4, "info", lambda i: raw[i].info())
    callers.add(4, "heuristic", lambda i: raw[i].get(numbered(5000 + time.monotonic_ns() % 100_000),
                                                     on_miss="ON_MISS_HEURISTIC", timeout=60))  # fmt: skip
    callers.add(4, "package get", lambda i: [r.winner.text for r in package[i].get(KNOWN)])
    callers.add(2, "package resolve", lambda i: [r.winner.text for r in package[4 + i].resolve(KNOWN, timeout=60)])
    failures = []

    async def ask():
        async with ct.AsyncClient(daemon.address, use_snapshot=False, timeout=60) as client:
            tuning = asyncio.create_task(client.tune(numbered_list(500_000, 50 * restarts)))
            while not tuning.done():
                assert all(r.winner for r in await client.get(KNOWN))
            return await tuning

    def tune_by(call):
        try:
            failures.extend(call().items())
        except Exception as error:
            failures.append(repr(error))

    calls = (lambda: package[7].tune(numbered_list(400_000, 50 * restarts))), (lambda: asyncio.run(ask()))
    tuners = [threading.Thread(target=tune_by, args=[call]) for call in calls]
    with subprocess.Popen(tune, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as cli:
        with callers:
            for tuner in tuners:
                tuner.start()
            for _ in range(restarts):
                enough = sum(callers.ends.values()) + 200
                wait_until(lambda: sum(callers.ends.values()) > enough, 60, "calls")  # noqa: B023
                assert daemon.stop(timeout=20) == 0
                daemon.start()
            out, err = cli.communicate(timeout=300)
            for tuner in tuners:
                tuner.join(300)
    print(f"{restarts} restarts:", ", ".join(f"{kind} {end} {n}" for (kind, end), n in sorted(callers.ends.items())))
    assert not callers.wrong, collections.Counter(callers.wrong).most_common(5)
    assert callers.ends["get", "OK"] and callers.ends["package get", "OK"] and callers.ends["package resolve", "OK"]
    assert cli.returncode == 0, err[-3000:]
    assert all("answer" in row for row in json.loads(out)["results"])
    assert failures == []
    for client in raw + package:
        client.close()


def test_who_watches_or_tunes_is_told_that_the_daemon_stops(fake_daemon, cli):
    daemon = fake_daemon("--drain-timeout", "1s", env=script(measure_delay_ms=60000)).start()
    results, ends, names = [], [], []

    def run_cli():
        results.append(cli(daemon)("tune", numbered(1), "--timeout", "2s"))

    def watch():
        with daemon.client() as client:
            try:
                ends.append(list(client.tuning.WatchTuningJob(name=names[0], timeout=60))[-1].state)
            except grpc.RpcError as error:
                ends.append((error.code(), error.details()))

    with daemon.client() as client:
        threads = [threading.Thread(target=run_cli)]
        threads[0].start()
        names += [j.name for j in wait_until(lambda: client.tuning.ListTuningJobs().jobs, 20, "a job")]
        threads.append(threading.Thread(target=watch))
        threads[1].start()
        wait_until(
            lambda: client.tuning.ListTuningJobs().jobs[0].current_candidates_total > 0, 20, "a tuning that runs"
        )
        time.sleep(0.2)
    assert daemon.stop(timeout=15) == 0
    for thread in threads:
        thread.join(60)
    assert results[0].code == 4, results[0]
    assert "waiting for it to start again" in results[0].err and "error: no answer" in results[0].err, results[0]
    assert ends[0][0] == grpc.StatusCode.UNAVAILABLE and "draining" in ends[0][1], ends
