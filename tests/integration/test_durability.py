"""kill -9 at random moments of a mixed load: what was acknowledged is there.

A load of clients tunes, deletes, pins, asks for heuristics and compacts. Each
round ends with a SIGKILL in a phase that is chosen by a fixed seed:
  idle        nothing is under way
  random      at a random moment of the load, from outside
  commit      at a write to the write-ahead log
  checkpoint  at a write to the database file
  publish     behind the sync of a commit, before anybody is told
The last three land where they are meant to: a preloaded library raises the
signal inside the system call.
"""

import calendar
import collections
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import signal
import threading
import time

import grpc
import pytest

from harness.cudnn_shapes import library
from harness.fakes import script
from harness.problems import numbered
from test_metrics import scrape

SEED = 20240229
PHASES = ["random", "commit", "publish", "checkpoint", "idle"]
CLIENTS = 4
KILLS = int(os.environ.get("CONVTUNE_TEST_KILLS", 10))
# Daemons that share the kills. Each round reads all that its daemon ever
# acknowledged, so a thousand kills of one daemon would mostly read.
DAEMONS = max(1, KILLS // 100)


class Ledger:
    """What the daemon acknowledged. Each key is touched by one client alone."""

    def __init__(self):
        self.winners = {}
        self.pins = {}
        self.deleted = set()
        self.unsure = set()
        self.results = 0
        self._lock = threading.Lock()

    def answered(self, text, winner):
        with self._lock:
            self.winners[text] = winner
            self.results += 1

    def delete_sent(self, text):
        with self._lock:
            self.unsure.add(text)

    def delete_done(self, text):
        with self._lock:
            self.unsure.discard(text)
            self.winners.pop(text, None)
            self.deleted.add(text)

    def pinned(self, text, reason):
        with self._lock:
            self.pins[text] = reason


class Load(threading.Thread):
    """One client; ends at the first sign that the daemon is gone."""

    def __init__(self, daemon, ledger, indexes, seed):
        super().__init__()
        self._daemon, self._ledger, self._indexes = daemon, ledger, indexes
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self.error = None

    def stop(self):
        self._stopping.set()

    def run(self):
        try:
            with self._daemon.client() as client:
                while not self._stopping.is_set():
                    self._step(client)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self.error = error

    def _step(self, client):
        ledger, chance = self._ledger, self._random.random()
        texts = [numbered(next(self._indexes)) for _ in range(self._random.choice([1, 1, 2, 5]))]
        on_miss = "ON_MISS_HEURISTIC" if chance < 0.2 else "ON_MISS_TUNE"
        for text, result in zip(texts, client.get(*texts, on_miss=on_miss), strict=True):
            assert result.answer.persisted, result
            ledger.answered(text, result.answer.winner.text)
        if chance > 0.9:
            ledger.delete_sent(texts[0])
            client.tuning.DeleteTuning(problems=[{"text": texts[0]}])
            ledger.delete_done(texts[0])
        elif chance > 0.8 and on_miss == "ON_MISS_TUNE":
            candidate = client.get_one(texts[0]).answer.winner.text
            reason = f"reason {self._random.random()}"
            client.tuning.Pin(problem={"text": texts[0]}, candidate=candidate, reason=reason)
            ledger.pinned(texts[0], reason)
        elif chance > 0.75:
            client.maintenance.CompactDatabase()


@pytest.fixture(scope="module")
def crash_shim(tmp_path_factory):
    source = pathlib.Path(__file__).with_name("crash_shim.c").read_text()
    return library(tmp_path_factory.mktemp("shim") / "crash_shim.so", source, "-O1", "-ldl")


def verify(daemon, ledger):
    """Every acknowledged result, deletion and pin is there and the file is sound."""
    with daemon.client() as client:
        sure = [t for t in ledger.winners if t not in ledger.unsure]
        for start in range(0, len(sure), 5000):
            part = sure[start : start + 5000]
            for text, result in zip(part, client.get(*part), strict=True):
                assert result.WhichOneof("outcome") == "answer", f"lost: {text}"
                assert result.answer.winner.text == ledger.winners[text], text
        gone = sorted(ledger.deleted)
        if gone:
            assert {r.WhichOneof("outcome") for r in client.get(*gone)} == {"miss"}
        pins = {p.problem_text: p.reason for p in client.tuning.ListPins().pins}
        for text, reason in ledger.pins.items():
            assert pins.get(text) == reason, f"pin lost: {text}"
        check = client.maintenance.CheckDatabase()
        assert check.ok, list(check.findings)
        assert check.rows_checked >= len(sure)


def one_round(daemon, ledger, indexes, phase, rng, directory, shim):
    """Starts the daemon, loads it, and kills it in the phase."""
    env = dict(script())
    trigger = directory / "trigger"
    trigger.unlink(missing_ok=True)
    directed = phase in ("commit", "checkpoint", "publish")
    if directed:
        env.update(
            LD_PRELOAD=str(shim),
            CRASH_AT=phase,
            CRASH_AFTER=str(rng.randint(1, 12)),
            CRASH_TRIGGER=str(trigger),
            ASAN_OPTIONS="verify_asan_link_order=0",
        )
    daemon.start(env=env)
    verify(daemon, ledger)
    loads = [Load(daemon, ledger, indexes, rng.random()) for _ in range(CLIENTS)]
    target = ledger.results + rng.randint(15, 30)
    for load in loads:
        load.start()
    end = time.monotonic() + 60
    while ledger.results < target and daemon.running() and time.monotonic() < end:
        time.sleep(0.002)
    assert ledger.results >= target, daemon.log()[-3000:]
    if phase == "idle":
        for load in loads:
            load.stop()
        for load in loads:
            load.join()
        time.sleep(0.1)
        code = daemon.kill()
    elif phase == "random":
        time.sleep(rng.random() * 0.2)
        code = daemon.kill()
    else:
        trigger.touch()
        if phase == "checkpoint":  # needs somebody to ask for one
            with daemon.client() as client, contextlib.suppress(grpc.RpcError):
                for _ in range(200):
                    client.maintenance.CompactDatabase()
        code = daemon.wait(30)
    for load in loads:
        load.join()
        assert load.error is None, load.error
    assert code == -signal.SIGKILL


@pytest.mark.parametrize("daemon_number", range(DAEMONS))
def test_kills_lose_nothing_that_was_acknowledged(fake_daemon, short_dir, crash_shim, daemon_number):
    kills = KILLS // DAEMONS
    least = 20 * kills
    rng = random.Random(SEED + daemon_number)
    daemon = fake_daemon()
    ledger = Ledger()
    indexes = itertools.count()  # next() of it is one step, whichever thread takes it
    phases = [PHASES[i % len(PHASES)] for i in range(kills)]
    assert set(phases) == set(PHASES)
    rng.shuffle(phases)
    for phase in phases:
        one_round(daemon, ledger, indexes, phase, rng, short_dir, crash_shim)
    daemon.start(env=script())
    verify(daemon, ledger)
    print(f"kills by phase: {collections.Counter(phases)}; {ledger.results} results acknowledged, {len(ledger.deleted)} deletions, "
          f"{len(ledger.pins)} pins")  # fmt: skip
    assert ledger.results >= least


def test_a_backup_of_the_schedule_restores_what_was_acknowledged_before_it(fake_daemon, cli, tmp_path):
    folder = tmp_path / "copies"
    flags = (f"--backup-dir={folder}", "--backup-every=1s", "--backup-keep=3", "--metrics-address=127.0.0.1:0")
    daemon = fake_daemon(*flags, env=script(measure_delay_ms=0)).start()
    acknowledged, stopping = {}, threading.Event()

    def tune():
        with daemon.client() as client:
            while not stopping.is_set():
                text = numbered(len(acknowledged))
                client.tune(text)
                acknowledged[text] = time.time()

    load = threading.Thread(target=tune)
    load.start()
    try:
        seen = set()
        while len(seen) < 6:
            seen |= {p.name for p in folder.glob("*.db")} if folder.exists() else set()
            assert len(list(folder.glob("*.db"))) <= 4  # the three, and a new one whose oldest is being deleted
            time.sleep(0.05)
    finally:
        stopping.set()
        load.join()
    assert "convtune_backup_interval_seconds 1" in scrape(daemon)
    findings = cli(daemon)("doctor", "--json").out
    assert "the newest backup is of" in findings and f"one is due every 1s, in {folder}" in findings
    daemon.kill()
    newest = max(folder.glob("*.db"))
    made = calendar.timegm(time.strptime(newest.name, "convtune-%Y%m%dT%H%M%SZ.db"))
    before = [text for text, at in acknowledged.items() if at < made]
    assert before
    restored = fake_daemon(*flags)
    restored.state_dir.mkdir(parents=True)
    shutil.copy(newest, restored.state_dir / "convtune.db")
    restored.start()
    with restored.client() as client:
        assert {r.WhichOneof("outcome") for r in client.get(*before)} == {"answer"}
        assert client.maintenance.CheckDatabase().ok
