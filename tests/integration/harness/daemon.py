"""A convtuned process and what can be seen of it from outside."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .api import Client

LIVENESS = "liveness"
READINESS = "readiness"


@contextlib.contextmanager
def unpublished(daemon):
    """Meanwhile the daemon cannot write its snapshot: "Not a directory"."""
    folder, aside = daemon.state_dir / "snapshot", daemon.state_dir / "aside"
    folder.rename(aside)
    folder.write_text("in the way")
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


def wait_until(condition, timeout, what):
    """Polls until the condition holds and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.01)


def alive(pid):
    """True if the process runs, false for a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid, dead_too=False):
    """Child processes that run, of any thread of the process; `dead_too`: also those that nobody waited for."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return [child for child in found if dead_too or alive(child)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """Made by the `daemons` fixture, which also ends it."""

    def __init__(self, binary, directory, args=(), env=None, listen=None):
        self.binary = pathlib.Path(binary)
        self.directory = pathlib.Path(directory)
        self.state_dir = self.directory / "state"
        self.socket = self.directory / "s"
        self.address = listen or f"unix:{self.socket}"
        self.args = [str(a) for a in args]
        self.env = {**os.environ, **{k: str(v) for k, v in (env or {}).items()}}
        self.log_path = self.directory / "log"
        self.process = None

    def command(self):
        return [
            str(self.binary),
            "--state-dir", str(self.state_dir),
            "--listen", self.address,
            *self.args,
        ]  # fmt: skip

    def start(self, wait=True, env=None):
        assert self.process is None
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**self.env, **(env or {})}
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout=60):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"convtuned ended with {self.process.returncode}:\n{self.log()[-4000:]}")
            return self.health(READINESS) == "SERVING"

        wait_until(ready, timeout, "readiness")

    def health(self, service):
        """Name of the status, or of the RPC error's code."""
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                reply = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=service), timeout=5
                )
            except grpc.RpcError as error:
                return error.code().name
            return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def client(self, **kwargs):
        return Client(self.address, **kwargs)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout=20):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        return self.wait(20)

    def wait(self, timeout):
        code = self.process.wait(timeout)
        self.process = None
        return code

    def close(self):
        if self.running():
            self.process.kill()
            self.process.wait()
        self.process = None

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def status(self, field):
        """A line of /proc/PID/status as a number (kB for memory)."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise KeyError(field)

    def rss_kib(self):
        return self.status("VmRSS")

    def threads(self):
        return self.status("Threads")

    def workers(self, dead_too=False):
        return children(self.pid, dead_too)
