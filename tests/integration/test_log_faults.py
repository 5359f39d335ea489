"""A log that nobody reads, or that cannot be written; files that go away under the daemon."""

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess

import grpc
import pytest

from harness.daemon import wait_until
from harness.problems import numbered
from test_fleet_metrics import watched  # noqa: F401
from test_metrics import scrape, values

PIPE_BYTES = 4096
LOST = 'convtune_log_lost_lines_total{kind="%s"}'


@pytest.fixture
def piped(daemons):
    """start() starts a daemon whose log goes into a small pipe, and returns it with the pipe's end that is read."""
    with contextlib.ExitStack() as ends:

        def start(*args):
            daemon = daemons("--devices", "none", "--log-format", "json", *args)
            reading, writing = os.pipe()
            ends.callback(os.close, reading)
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            daemon.process = subprocess.Popen(
                daemon.command(), stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, env=daemon.env
            )
            os.close(writing)
            daemon.wait_ready()
            return daemon, reading

        yield start


def metrics(daemon):
    return values(scrape(daemon))


def compact(client, times=1):
    """Calls that have a line of audit each."""
    for _ in range(times):
        client.maintenance.CompactDatabase()


def test_a_log_that_nobody_reads_stops_nothing(piped):
    daemon, _ = piped()
    with daemon.client() as client:
        compact(client, 40)
        snapshot = daemon.state_dir / "snapshot" / "current.snapshot"
        snapshot.unlink()  # the publisher says so, then writes it again
        wait_until(snapshot.exists, 30, "the snapshot written again")
    assert daemon.stop(timeout=15) == 0


def test_what_waits_for_a_slow_reader_is_there(piped):
    daemon, reading = piped()
    with daemon.client() as client:
        compact(client, 40)
    daemon.process.terminate()
    with os.fdopen(os.dup(reading), "rb") as file:
        lines = [json.loads(line) for line in file.read().decode().splitlines()]
    assert daemon.wait(20) == 0
    assert [line["level"] for line in lines].count("audit") == 40
    assert lines[-1]["message"] == "stopping"


def test_lines_that_cannot_be_written_are_counted_and_told_of_later(daemons):
    """Beyond the limit on a file's size write fails, and SIGXFSZ would end the daemon."""
    daemon = daemons("--devices", "none", "--log-format", "json", "--metrics-address", "127.0.0.1:0").start()
    size = daemon.log_path.stat().st_size
    with daemon.client() as client:
        compact(client)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        compact_error = None
        for _ in range(3):
            try:
                compact(client)
            except grpc.RpcError as error:  # the database cannot grow either
                compact_error = error
        assert daemon.running(), "SIGXFSZ ended it"
        lost = metrics(daemon)[LOST % "audit"]
        assert lost >= 3, compact_error
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        compact(client)
        wait_until(lambda: '"lost":' in daemon.log(), 10, "the lines that say what is lost")
        compact(client)
    assert daemon.stop() == 0
    lines = [json.loads(line) for line in daemon.log().splitlines() if line]
    (told,) = [line["audit"] for line in lines if line["level"] == "audit" and "lost" in line["audit"]]
    assert told["lost"] == lost and "File too large" in told["why"]
    (message,) = [line["message"] for line in lines if "were lost" in line.get("message", "")]
    assert f"{int(lost)} of audit" in message


def test_an_agent_counts_the_lines_that_it_lost(watched):  # noqa: F811
    agent = watched.agent
    lost = lambda: values(agent.scrape())[LOST % "other"]  # noqa: E731
    assert lost() == 0
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (agent.log_path.stat().st_size, resource.RLIM_INFINITY))
    agent.process.send_signal(signal.SIGHUP)
    wait_until(lambda: lost() > 0, 20, "the line that says that files are read anew")
    assert values(agent.scrape())[LOST % "audit"] == 0


def test_results_beyond_the_file_size_limit_are_as_on_a_full_disk(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        size = max(path.stat().st_size for path in daemon.state_dir.iterdir() if path.is_file())
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        kept = [client.get_one(numbered(n), on_miss="ON_MISS_TUNE").answer.persisted for n in range(30)]
        assert not kept[-1] and not client.info().writable
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        wait_until(lambda: client.info().writable, 30, "the disk taken back into use")
    assert daemon.stop() == 0


def test_a_write_ahead_log_that_is_removed_is_noticed(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        assert client.get_one(numbered(0), on_miss="ON_MISS_TUNE").answer.persisted
        assert client.info().writable
        (daemon.state_dir / "convtune.db-wal").rename(daemon.state_dir / "aside")
        wait_until(lambda: not client.info().writable, 10, "the state")
        assert not client.get_one(numbered(1), on_miss="ON_MISS_TUNE").answer.persisted
        (daemon.state_dir / "aside").rename(daemon.state_dir / "convtune.db-wal")
        wait_until(lambda: client.info().writable, 30, "the database taken back into use")
    assert daemon.stop() == 0


def test_sockets_whose_files_are_gone_are_told_of(daemons, short_dir):
    """One is removed, the other is replaced."""
    other = short_dir / "other"
    daemon = daemons("--devices", "none", "--metrics-address", "127.0.0.1:0", "--listen", f"unix:{other}").start()
    sockets = (daemon.socket, other)
    lost = lambda: metrics(daemon)["convtune_sockets_lost"]
    assert lost() == 0
    for socket in sockets:
        socket.rename(socket.with_suffix(".old"))
    other.write_text("")
    wait_until(lambda: lost() == 2, 30, "the metric")
    for socket in sockets:
        wait_until(lambda s=socket: f"{s} was removed or replaced" in daemon.log(), 5, "the log")
        socket.with_suffix(".old").rename(socket)
    wait_until(lambda: lost() == 0, 30, "the metric")
    assert daemon.log().count("was removed or replaced") == 2
    assert daemon.stop() == 0


def test_the_state_folder_has_its_mode_whatever_the_umask(daemons):
    daemon = daemons("--devices", "none")
    before = os.umask(0o077)
    try:
        daemon.start()
    finally:
        os.umask(before)
    assert daemon.state_dir.stat().st_mode & 0o777 == 0o750
    assert daemon.stop() == 0
