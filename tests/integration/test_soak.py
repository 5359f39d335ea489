"""A daemon under load for long, with workers killed all the time, stays as it is.

The load is what a busy machine does in a day, many times as fast: look-ups all the time, tunings,
heuristics, pins, deletions, cancelled jobs, clients that come and go, checks and compactions, and
a worker killed every second or two. CONVTUNE_TEST_SOAK_SECONDS says for how long.
"""

import contextlib
import os
import pathlib
import random
import signal
import statistics
import threading
import time

import grpc

from harness.daemon import LIVENESS, children, wait_until
from harness.fakes import script
from harness.look_ups import LookUps
from harness.problems import numbered

SEED = 20240229
PROBLEMS = 400  # tuned over and over, so that the database has its size after a while
BUDGET = {"time_budget": {"nanos": 100_000_000}}
# What "flat" means: the last quarter's median beside that of the first quarter after the warm-up.
MEMORY_MARGIN_KIB, MEMORY_MARGIN_RATIO = 4096, 0.10
DESCRIPTOR_MARGIN = 8
WAL_LIMIT = 64 << 20


class Load(threading.Thread):
    """Does one kind of thing after the other until it is stopped. Errors that are none are counted."""

    def __init__(self, daemon, seed, counts):
        super().__init__()
        self._daemon, self._random, self._counts = daemon, random.Random(seed), counts
        self._stopping = threading.Event()
        self.error = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self.join()

    def run(self):
        try:
            while not self._stopping.is_set():
                with self._daemon.client() as client:  # a connection for a few calls
                    for _ in range(self._random.randint(1, 20)):
                        if self._stopping.is_set():
                            return
                        self._step(client)
        except Exception as error:  # noqa: BLE001
            self.error = error

    def _step(self, client):
        rng = self._random
        text = numbered(1 + rng.randrange(PROBLEMS))
        kind = rng.choices(
            ["get", "tune", "heuristic", "force", "cancel", "pin", "delete", "list", "vanish", "check", "compact"],
            [30, 20, 10, 6, 6, 4, 4, 4, 4, 0.2, 0.2],
        )[0]  # fmt: skip
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind == "get":
            client.get(*(numbered(1 + rng.randrange(PROBLEMS)) for _ in range(rng.choice([1, 8, 64]))))
        elif kind in ("tune", "heuristic"):
            client.get_one(text, on_miss=f"ON_MISS_{kind.upper()}", options=BUDGET, timeout=60)
        elif kind == "force":
            client.tune(text, force=True, options=BUDGET)
        elif kind == "cancel":
            job = client.tuning.CreateTuningJob(problems=[{"text": text}], options=BUDGET, force=True)
            client.tuning.CancelTuningJob(name=job.name)
        elif kind == "pin":
            with contextlib.suppress(grpc.RpcError):  # nothing is known of it yet, or no more
                winner = client.get_one(text).answer.winner.text
                client.tuning.Pin(problem={"text": text}, candidate=winner, reason="soak")
                client.tuning.Unpin(problem={"text": text})
        elif kind == "delete":
            client.tuning.DeleteTuning(problems=[{"text": text}])
        elif kind == "list":
            client.tuning.ListTunings(page_size=100)
            client.tuning.ListTuningJobs(page_size=100)
        elif kind == "vanish":
            gone = self._daemon.client()
            with contextlib.suppress(grpc.RpcError):
                gone.get_one(text, on_miss="ON_MISS_TUNE", options=BUDGET, timeout=0.02)
            gone.close()
        elif kind == "check":
            assert client.maintenance.CheckDatabase(timeout=60).ok
        elif kind == "compact":
            client.maintenance.CompactDatabase(timeout=60)


class Killer(threading.Thread):
    """Kills a worker every `period` seconds or so."""

    def __init__(self, daemon, period):
        super().__init__()
        self._daemon, self._period = daemon, period
        self._random, self._stopping = random.Random(SEED), threading.Event()
        self.kills = 0

    __enter__, __exit__ = Load.__enter__, Load.__exit__

    def run(self):
        while not self._stopping.wait(self._period * self._random.uniform(0.5, 1.5)):
            for worker in children(self._daemon.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                    self.kills += 1


def sizes(daemon):
    """Memory in KiB, descriptors, threads, bytes of the write-ahead log and of the database."""
    wal = db = 0
    for path in daemon.state_dir.rglob("*"):
        with contextlib.suppress(OSError):
            if path.name.endswith("-wal"):
                wal += path.stat().st_size
            elif path.is_file():
                db += path.stat().st_size
    descriptors = len(list(pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir()))
    return daemon.rss_kib(), descriptors, daemon.threads(), wal, db


def median(samples, index):
    return statistics.median(sample[index] for sample in samples)


def test_it_can_run_for_ever(fake_daemon, long_run):
    seconds = float(os.environ.get("CONVTUNE_TEST_SOAK_SECONDS", 3600 if long_run else 1))
    # A minute's line for each minute; a short run has a few as well.
    line_every = min(60.0, seconds / 2)
    daemon = fake_daemon("--idle-timeout", "500ms", env=script(measure_delay_ms=1, prepare_delay_ms=1)).start()
    counts, samples, pid = {}, [], daemon.pid
    with daemon.client() as client:
        client.tune(numbered(0), options=BUDGET)
        with contextlib.ExitStack() as stack:
            looking = [stack.enter_context(LookUps(daemon, numbered(0))) for _ in range(2)]
            loads = [stack.enter_context(Load(daemon, SEED + i, counts)) for i in range(3)]
            killer = stack.enter_context(Killer(daemon, 0.4 if seconds < 60 else 1.5))
            began = last = time.monotonic()
            while (now := time.monotonic()) - began < seconds:
                time.sleep(min(1.0, seconds / 20))
                samples.append(sizes(daemon))
                assert all(load.error is None for load in loads), [load.error for load in loads]
                if now - last >= line_every:
                    last = now
                    rss, descriptors, threads, wal, db = samples[-1]
                    failed = sum(len(each.errors) for each in looking)
                    print(f"{(now - began) / 60:6.1f} min: {rss / 1024:.1f} MiB, {descriptors} descriptors, {threads} "
                          f"threads, WAL {wal / 2**20:.1f} MiB, database {db / 2**20:.1f} MiB, {killer.kills} kills, "
                          f"{sum(each.count for each in looking)} look-ups, {failed} failed", flush=True)  # fmt: skip
        assert daemon.pid == pid and daemon.running() and daemon.health(LIVENESS) == "SERVING"
        assert [error for each in looking for error in each.errors] == []
        assert all(load.error is None for load in loads), [load.error for load in loads]
        assert killer.kills > 0
        # Whatever the load had open is closed again, and nobody is left behind.
        wait_until(lambda: client.info().waiting_callers == 0 and client.info().queue_depth == 0, 30, "an end of work")
        wait_until(lambda: daemon.workers() == [], 30, "the idle worker's end")
        assert client.maintenance.CheckDatabase(timeout=60).ok
    print(f"{seconds:.0f} s: {sum(counts.values())} calls of a load ({counts}), {killer.kills} workers killed, "
          f"{sum(each.count for each in looking)} look-ups, the slowest {max(each.longest for each in looking):.2f} s")  # fmt: skip
    assert max(sample[3] for sample in samples) < WAL_LIMIT
    warm = samples[len(samples) // 5 :]
    first, final = warm[: len(warm) // 4], warm[-(len(warm) // 4) :]
    if seconds < 60:
        return  # too short to tell growth from a warm-up
    before, after = median(first, 0), median(final, 0)
    print(f"memory {before / 1024:.1f} MiB, then {after / 1024:.1f}; descriptors {median(first, 1)}, then "
          f"{median(final, 1)}; WAL {median(first, 3) / 2**20:.1f} MiB, then {median(final, 3) / 2**20:.1f}")  # fmt: skip
    assert after <= before * (1 + MEMORY_MARGIN_RATIO) + MEMORY_MARGIN_KIB
    assert median(final, 1) <= median(first, 1) + DESCRIPTOR_MARGIN
    assert median(final, 2) <= median(first, 2) + DESCRIPTOR_MARGIN
    assert median(final, 3) <= median(first, 3) * 1.5 + (4 << 20)
