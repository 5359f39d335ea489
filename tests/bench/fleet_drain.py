"""Twice the GPUs, half the time? The fleet's queue drained by one node and by two.

This simulates the measurement and nothing else: the worker is the tests' fake one, which sleeps for a fixed time for each
round of samples instead of running anything on a GPU. Daemons, agents, PostgreSQL, its queue and its leases are the real
ones, all on this one machine. What is shown is how much of the second node the queue wastes.
"""

import pathlib
import tempfile
import time

from harness.daemon import Daemon, wait_until
from harness.fakes import script
from harness.fleet import Fleet
from harness.problems import numbered_list

MEASURE_MS = 20  # for one request to the worker


def drain(build, server, nodes, problems):
    """Seconds from the queueing to the last result in the fleet, and how many problems each node tuned."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(build / "convtune-fleet", server, pathlib.Path(folder)).migrate()
        daemons = []
        try:
            for index in range(nodes):
                daemon = Daemon(
                    build / "convtuned", tempfile.mkdtemp(prefix="ct-"),
                    ["--devices", "0", "--worker", build / "convtune-fake-worker"],
                    env=script(seed=index + 1, measure_delay_ms=MEASURE_MS),
                ).start()  # fmt: skip
                daemons.append(daemon)
                fleet.agent(f"node-{index}", daemon)
            wait_until(lambda: fleet.number("SELECT COUNT(*) FROM node_devices WHERE current") == nodes, 60, "the nodes")
            time.sleep(1.5)  # past the agents' first turn
            name = fleet.sql("SELECT text FROM environments")[0][0]
            path = pathlib.Path(folder) / "list.txt"
            path.write_text("\n".join(numbered_list(0, problems)) + "\n")
            start = time.monotonic()
            fleet.cli.ok("tune", "--file", path, "--environment", name, "--budget", "30s", "--json", timeout=600)
            seconds = time.monotonic() - start
            shares = fleet.sql("SELECT COUNT(*) FROM evidence WHERE current GROUP BY node_id ORDER BY node_id")
            assert sum(int(row[0]) for row in shares) == problems, shares
            return seconds, [int(row[0]) for row in shares]
        finally:
            fleet.close()
            for daemon in daemons:
                daemon.close()
