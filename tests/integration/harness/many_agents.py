"""Many agents, each a process of its own, beside daemons that are one process and do nothing."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from .daemon import wait_until
from .fleet import Fleet

SEEN = "application_name = 'convtune-fleet' AND datname = current_database() AND pid <> pg_backend_pid()"
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """CPU time of processes; one that has ended counts as nothing."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            used += (int(fields[11]) + int(fields[12])) / TICK
    return used


def memory_mib(pids):
    """Memory of processes together: what is their own, and their shares of what is common."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


class ManyAgents:
    """`count` agents as they are without options, but for `args`, and a fleet in `server`."""

    def __init__(self, programs, server, count, args=()):
        self.count = count
        self.server = server
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ct-many-"))
        self.fleet = Fleet(programs / "convtune-fleet", server, self.folder).migrate()
        self.nodes = subprocess.Popen(
            [str(programs / "convtune-bench-fleet-nodes"), str(self.folder), str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.nodes.stdout.readline() == b"ready\n"
        self.agents = []
        with open(self.folder / "log", "ab") as log:
            for index in range(count):
                self.agents.append(subprocess.Popen(
                    [str(programs / "convtune-fleet"), "agent", "--postgres", self.fleet.conninfo, "--node", f"node-{index}",
                     "--address", f"unix:{self.folder}/{index}", *args],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                ))  # fmt: skip

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def connections(self):
        return self.fleet.number(f"SELECT COUNT(*) FROM pg_stat_activity WHERE {SEEN}")

    def wait_connected(self, timeout):
        """Until each agent has its connection; how many seconds that took."""
        start = time.monotonic()
        wait_until(lambda: self.connections() == self.count, timeout, f"{self.count} connections")
        return time.monotonic() - start

    def restart_postgres(self, timeout):
        """Restarts the server; the seconds from its start to each agent's connection, in order."""
        self.server.stop()
        self.server.start()
        wait_until(lambda: self.connections() == self.count, timeout, f"{self.count} connections again")
        rows = self.fleet.sql(
            f"SELECT extract(epoch FROM backend_start - pg_postmaster_start_time()) FROM pg_stat_activity WHERE {SEEN} "
            "ORDER BY backend_start"
        )
        return [float(row[0]) for row in rows]

    def deliver(self, timeout):
        """Every node gets one tuning of its own; seconds until all are in the fleet."""
        start = time.monotonic()
        self.nodes.stdin.write(b"tune\n")
        self.nodes.stdin.flush()
        wait_until(lambda: self.fleet.number("SELECT COUNT(*) FROM evidence") == self.count, timeout, "the deliveries")
        return time.monotonic() - start

    def postgres_pids(self):
        first = int((self.server.data / "postmaster.pid").read_text().split()[0])
        return [first, *map(int, pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def close(self):
        for agent in self.agents:
            agent.send_signal(signal.SIGTERM)
        for agent in self.agents:
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        self.nodes.kill()
        self.nodes.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
