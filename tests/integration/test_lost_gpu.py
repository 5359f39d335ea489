"""A GPU that is lost is noticed and let go of, and one that comes back is used again.

The driver's library is tests/fakes/fake_nvml.c; what watches it is the worker's own code.
"""

import os
import pathlib
import re
import signal
import socket
import time

import pytest

from conftest import PROGRAMS
from harness import shell
from harness.daemon import LIVENESS, READINESS, wait_until
from harness.fakes import script
from harness.look_ups import LookUps
from harness.problems import numbered
from test_metrics import scrape, values

CARD = "0000:01:00.0"
LOST = [48, 62, 64, 74, 79, 95, 119]
APPLICATION = [13, 31, 43, 45, 94]
NOTICED = 5.0  # seconds, in which a lost GPU must be noticed


class Card:
    """The GPU that the fake driver has."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()

    def env(self):
        library = PROGRAMS.parent / "tests" / "fakes" / "nvml"
        return {"CONVTUNE_FAKE_CARD": str(self.folder), "LD_LIBRARY_PATH": str(library)}

    def xid(self, number):
        with open(self.folder / "xids", "a") as file:
            file.write(f"{number}\n")

    def state(self, letter=""):
        (self.folder / "state").write_text(letter)


@pytest.fixture
def card(tmp_path):
    return Card(tmp_path / "card")


@pytest.fixture
def watched(fake_daemon, card):
    """watched(**keys of the script) starts a daemon that watches the GPU."""

    def start(*args, **keys):
        keys.setdefault("card", CARD)
        daemon = fake_daemon("--metrics-address", "127.0.0.1:0", *args, env={**card.env(), **script(**keys)}).start()
        wait_until(lambda: "the GPU is watched" in daemon.log(), 10, "somebody who watches the GPU")
        return daemon

    return start


def metrics(daemon):
    """None where it was built without them."""
    return values(scrape(daemon)) if "metrics at" in daemon.log() else None


def becomes(daemon, serving):
    """Waits for the devices' health, and returns how long it took."""
    began = time.monotonic()
    word = "SERVING" if serving else "NOT_SERVING"
    wait_until(lambda: daemon.health("devices") == daemon.health("devices/gpu:0") == word, 15, f"devices {word}")
    return time.monotonic() - began


def assert_lost(daemon, client, what):
    assert daemon.health(LIVENESS) == daemon.health(READINESS) == "SERVING"
    state = client.device()
    assert state.state == 5 and what in state.reason  # DEVICE_STATE_UNAVAILABLE
    if (counted := metrics(daemon)) is not None:
        assert counted['convtune_device_lost{device="gpu:0"}'] == 1
        (is_in,) = [k for k, v in counted.items() if k.startswith("convtune_device_state{") and v == 1]
        assert 'state="unavailable"' in is_in
    assert client.get_one(numbered(0)).WhichOneof("outcome") == "answer"


def test_a_lost_gpu_is_noticed_and_one_that_is_back_is_used(watched, card, cli):
    daemon = watched(measure_delay_ms=20)
    pid = daemon.pid
    with daemon.client() as client:
        assert client.tune(numbered(0), options={"time_budget": {"seconds": 5}}).succeeded_count == 1
        with LookUps(daemon, numbered(0)) as look_ups:
            job = client.tuning.CreateTuningJob(problems=[{"text": numbered(1)}])
            wait_until(lambda: client.tuning.GetTuningJob(name=job.name).current_candidates_total, 10, "a tuning")
            card.state("l")
            card.xid(79)
            took = becomes(daemon, serving=False)
            assert took < NOTICED
            # What ran then is answered at once, and blames no candidate.
            *_, ended = client.tuning.WatchTuningJob(name=job.name, timeout=10)
            assert ended.failed_count == 1 and "the GPU is lost: Xid 79" in ended.failures[0].reason, ended
            assert_lost(daemon, client, "fallen off the bus")
            missed = client.get_one(numbered(2), on_miss="ON_MISS_TUNE", timeout=10)
            assert "the GPU is lost" in missed.miss.message
            found = cli(daemon)("doctor")
            assert found.code == 1 and "gpu:0 cannot be used: the GPU is lost: Xid 79" in found.out
            # Nothing holds the GPU, so that it can be reset.
            wait_until(lambda: daemon.workers() == [], 5, "no process of the daemon's on the GPU")

            card.state()
            becomes(daemon, serving=True)
            assert client.tune(numbered(1), options={"time_budget": {"seconds": 5}}).succeeded_count == 1
        assert look_ups.errors == [] and look_ups.count > 0
        assert client.info().pid == pid
        assert not any(c.status == 7 for c in client.tuning.GetTuning(problem={"text": numbered(1)}).candidates)
    print(f"noticed after {took:.2f} s; {look_ups.count} look-ups answered")


def test_an_applications_xid_only_restarts_the_worker(watched, card, long_run):
    xids = APPLICATION if long_run else APPLICATION[:2]
    daemon = watched()
    with daemon.client() as client:
        for problem, xid in enumerate(xids):
            assert client.tune(numbered(2 * problem)).succeeded_count == 1
            before = client.device()
            card.xid(xid)
            wait_until(lambda: client.device().worker_pid == 0, 10, "the worker's end")  # noqa: B023
            assert client.tune(numbered(2 * problem + 1)).succeeded_count == 1
            after = client.device()
            assert after.worker_pid != before.worker_pid
            assert after.worker_starts == before.worker_starts + 1 and after.worker_deaths == 0
            assert daemon.health("devices") == daemon.health(LIVENESS) == "SERVING"
        if (counted := metrics(daemon)) is not None:
            assert counted['convtune_device_xids_total{device="gpu:0",kind="application"}'] == len(xids)
            assert counted['convtune_device_lost{device="gpu:0"}'] == 0


def test_a_notice_changes_nothing(watched, card):
    daemon = watched()
    with daemon.client() as client:
        assert client.tune(numbered(0)).succeeded_count == 1
        before = client.device()
        card.xid(63)
        wait_until(lambda: "Xid 63" in daemon.log(), 10, "the notice")
        assert client.tune(numbered(1)).succeeded_count == 1
        assert client.device().worker_pid == before.worker_pid


@pytest.mark.long
@pytest.mark.parametrize("xid", LOST)
def test_every_xid_that_takes_the_gpu_is_noticed(watched, card, xid):
    daemon = watched()
    with daemon.client() as client:
        assert client.tune(numbered(0)).succeeded_count == 1
        card.state("r")  # it answers, and has to be reset
        card.xid(xid)
        assert becomes(daemon, serving=False) < NOTICED
        assert_lost(daemon, client, f"Xid {xid}")
        time.sleep(5)  # two looks
        assert daemon.health("devices") == "NOT_SERVING"
        card.state()
        becomes(daemon, serving=True)
        assert client.tune(numbered(1)).succeeded_count == 1


@pytest.mark.long
@pytest.mark.parametrize("letter, words", [("r", "has to be reset"), ("g", "Not Found"), ("l", "GPU is lost")])
def test_what_the_driver_says_counts_for_an_unknown_xid_too(watched, card, letter, words):
    daemon = watched()
    with daemon.client() as client:
        assert client.tune(numbered(0)).succeeded_count == 1
        card.state(letter)
        card.xid(154)
        assert becomes(daemon, serving=False) < NOTICED
        assert_lost(daemon, client, words)


@pytest.mark.long
def test_a_driver_that_hangs_hangs_the_watcher_alone(watched, card):
    daemon = watched()
    with daemon.client() as client:
        assert client.tune(numbered(0)).succeeded_count == 1
        card.state("h")
        card.xid(79)
        assert becomes(daemon, serving=False) < NOTICED
        assert_lost(daemon, client, "Xid 79")
    assert daemon.stop(timeout=12) == 0


@pytest.mark.long
def test_a_watcher_that_is_killed_is_started_again(watched, card):
    daemon = watched()
    (watcher,) = daemon.workers()
    os.kill(watcher, signal.SIGKILL)
    wait_until(lambda: daemon.workers() not in ([], [watcher]), 10, "another watcher")
    assert "the process that watches the GPU ended: signal 9 (SIGKILL)" in daemon.log()
    assert daemon.health("devices") == "SERVING"
    time.sleep(0.5)
    card.xid(79)
    assert becomes(daemon, serving=False) < NOTICED


def test_without_the_drivers_library_the_card_is_used_all_the_same(fake_daemon):
    daemon = fake_daemon(env=script(card=CARD)).start()
    wait_until(lambda: "nobody watches the GPU: NVML" in daemon.log(), 10, "the warning")
    assert daemon.health("devices") == "SERVING"
    with daemon.client() as client:
        assert client.tune(numbered(0)).succeeded_count == 1


def worker_behind(folder, fake_worker, line):
    """The fake worker, started behind a line of shell."""
    return shell.program(folder / "worker", f"{line}\nexec '{fake_worker}' \"$@\"")


def test_a_watcher_that_dies_is_said(daemons, fake_worker, tmp_path):
    worker = worker_behind(tmp_path, fake_worker, 'case " $* " in *" --watch "*) exit 3 ;; esac')
    daemon = daemons("--worker", worker, "--devices", "0", env=script(card=CARD)).start()
    wait_until(lambda: "the process that watches the GPU ended: exit status 3" in daemon.log(), 10, "the warning")
    assert daemon.health("devices") == "SERVING"


def worker_of_a_card_to_come(folder, fake_worker):
    """A worker that has no GPU before the file is there, and that file."""
    there = folder / "there"
    return worker_behind(folder, fake_worker, f'[ -e {there} ] || case " $* " in *" --probe "*) exit 0 ;; esac'), there


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--devices", "0", "--worker", "/bin/true"), "GPUs: /bin/true --probe said nothing"),
        (("--devices", "none", "--profile", __file__), f"profile:{__file__}: profile {__file__}: "),
    ],
)
def test_what_was_asked_for_by_name_and_cannot_be_used_ends_the_start(daemons, cli, worker, args, reason):
    refused = daemons(*args)
    assert refused.start(wait=False).wait(30) == 1
    assert reason in refused.log() and "(--allow-missing-devices starts without it)" in refused.log(), refused.log()
    allowed = daemons(*args, "--allow-missing-devices").start()
    assert re.search(f"left out: .*{re.escape(reason)}", allowed.log()), allowed.log()
    said = cli(allowed)("doctor").out
    assert re.search(f"notice +the daemon does without .*{re.escape(reason)}", said), said


def test_a_gpu_that_comes_after_the_start_is_found(daemons, fake_worker, tmp_path):
    """As when the daemon starts before the driver's module is loaded."""
    worker, there = worker_of_a_card_to_come(tmp_path, fake_worker)
    daemon = daemons("--worker", worker, "--devices", "0", "--allow-missing-devices", "--probe-interval", "300ms").start()
    with daemon.client() as client:
        assert not client.tuning.ListDevices().devices
        there.touch()
        wait_until(lambda: "there is a GPU now" in daemon.log(), 20, "somebody who finds the GPU")
        wait_until(lambda: daemon.health(READINESS) == "SERVING", 20, "readiness")
    with daemon.client() as client:
        assert client.device().name == "gpu:0"
        assert client.tune(numbered(1)).succeeded_count == 1
    assert daemon.log().count("starting anew") == 1
    assert daemon.stop() == 0


def test_starting_anew_is_a_sign_of_life(daemons, fake_worker, short_dir):
    """systemd's watchdog is not set back by READY=1 of a service that is ready already."""
    worker, there = worker_of_a_card_to_come(short_dir, fake_worker)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(short_dir / "n"))
        notify.settimeout(60)
        # An hour: within this test the watchdog is told of what happens, not of time.
        env = {"NOTIFY_SOCKET": short_dir / "n", "WATCHDOG_USEC": "3600000000"}
        daemon = daemons("--worker", worker, "--devices", "0", "--allow-missing-devices", "--probe-interval", "1s", env=env).start()
        for _ in range(2):
            while notify.recv(100) != b"READY=1":
                pass
            assert notify.recv(100) == b"WATCHDOG=1"
            there.touch()
        assert daemon.log().count("starting anew") == 1
        assert daemon.stop() == 0


def test_no_gpu_is_looked_for_where_none_is_wanted(daemons, fake_worker, tmp_path):
    asked = tmp_path / "asked"
    worker = worker_behind(tmp_path, fake_worker, f"echo >> {asked}")
    daemon = daemons("--worker", worker, "--devices", "none", "--probe-interval", "50ms").start()
    time.sleep(1)
    assert not asked.exists() and daemon.stop() == 0
