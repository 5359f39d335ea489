"""Workers come with work and go without it."""

from harness.api import API
from harness.daemon import alive, wait_until
from harness.problems import numbered


def test_idle_worker_ends_and_the_next_tuning_starts_one(fake_daemon):
    daemon = fake_daemon("--idle-timeout", "1s").start()
    with daemon.client() as client:
        assert client.tune(numbered(1)).succeeded_count == 1
        first = client.device()
        assert alive(first.worker_pid)
        wait_until(lambda: client.device().worker_pid == 0, 20, "the worker's end")
        assert not alive(first.worker_pid)
        idle = client.device()
        assert API.enum_name("DeviceState", idle.state) == "DEVICE_STATE_IDLE" and idle.worker_deaths == 0

        assert client.tune(numbered(2)).succeeded_count == 1
        again = client.device()
        assert again.worker_starts == first.worker_starts + 1
        assert again.worker_pid not in (0, first.worker_pid)


def test_look_ups_start_no_worker(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        assert client.get_one(numbered(1)).WhichOneof("outcome") == "miss"
        assert client.info().worker_starts == 0
        assert client.device().worker_pid == 0
