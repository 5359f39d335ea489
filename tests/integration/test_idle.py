"""Workers come with work and go without it."""

from harness.daemon import alive, wait_until
from harness.problems import numbered


def device(client):
    (only,) = client.tuning.ListDevices().devices
    return only


def test_idle_worker_ends_and_the_next_tuning_starts_one(fake_daemon):
    daemon = fake_daemon("--idle-timeout", "1s").start()
    with daemon.client() as client:
        assert client.tune(numbered(1)).succeeded_count == 1
        first = device(client)
        assert alive(first.worker_pid)
        wait_until(lambda: device(client).worker_pid == 0, 20, "the worker's end")
        assert not alive(first.worker_pid)
        idle = device(client)
        assert idle.state == idle.DESCRIPTOR.file.enum_types_by_name["DeviceState"].values_by_name[
            "DEVICE_STATE_IDLE"
        ].number
        assert idle.worker_deaths == 0

        assert client.tune(numbered(2)).succeeded_count == 1
        again = device(client)
        assert again.worker_starts == first.worker_starts + 1
        assert again.worker_pid not in (0, first.worker_pid)


def test_look_ups_start_no_worker(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        assert client.get_one(numbered(1)).WhichOneof("outcome") == "miss"
        assert client.info().worker_starts == 0
        assert device(client).worker_pid == 0


def test_worker_dies_with_a_killed_daemon(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        client.tune(numbered(1))
        worker = device(client).worker_pid
    assert alive(worker)
    daemon.kill()
    wait_until(lambda: not alive(worker), 10, "the worker's end")
