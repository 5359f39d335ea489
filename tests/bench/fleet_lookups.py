"""What the fleet costs a look-up: BatchGet of 100 problems with no agent, with an agent, with PostgreSQL dead, and with
PostgreSQL stopped in its tracks.

The four are measured in turn, round after round, in one run; what is compared is their ratio to the first.
"""

import os
import pathlib
import signal
import tempfile
import time

from harness.daemon import Daemon
from harness.fakes import script
from harness.fleet import Fleet
from harness.postgres import Server
from harness.problems import numbered_list

CALLS = 200
# Before those that are counted: the first calls behind a second of nothing to do are slower, whoever else is there.
UNCOUNTED = 50
PROBLEMS = numbered_list(0, 100)


def processes(server):
    """Every process of the server."""
    postmaster = int((server.data / "postmaster.pid").read_text().splitlines()[0])
    children = pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *map(int, children)]


def measure(client):
    for _ in range(UNCOUNTED):
        client.get(*PROBLEMS)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        results = client.get(*PROBLEMS)
        times.append((time.perf_counter() - start) * 1e3)
        assert all(r.HasField("answer") for r in results)
    return times


def run(build, rounds):
    """Milliseconds of every call, by what was there meanwhile."""
    server = Server()
    fleet = Fleet(build / "convtune-fleet", server, pathlib.Path(tempfile.mkdtemp())).migrate()
    daemon = Daemon(build / "convtuned", tempfile.mkdtemp(prefix="ct-"),
                    ["--devices", "0", "--worker", build / "convtune-fake-worker"], env=script(seed=1)).start()  # fmt: skip
    times = {"no agent": [], "agent": [], "PostgreSQL dead": [], "PostgreSQL stopped": []}
    try:
        with daemon.client() as client:
            client.tune(*PROBLEMS)
            measure(client)
            for _ in range(rounds):
                times["no agent"] += measure(client)
                agent = fleet.agent("bench", daemon)
                times["agent"] += measure(client)
                server.stop("immediate")
                times["PostgreSQL dead"] += measure(client)
                server.start()
                time.sleep(1)
                stopped = processes(server)
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                times["PostgreSQL stopped"] += measure(client)
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
                agent.close()
    finally:
        fleet.close()
        daemon.close()
        server.close()
    return times


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]
