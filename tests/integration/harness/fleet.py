"""A fleet on one machine: a database, daemons, and an agent beside each."""

import os
import re
import signal
import subprocess
import time
import urllib.request

import pytest

from . import postgres
from .api import API
from .cli import Cli
from .daemon import wait_until
from .postgres import psql


def tune(daemon, *problems, **fields):
    with daemon.client() as client:
        job = client.tune(*problems, **fields)
    assert API.enum_name("JobState", job.state) == "JOB_STATE_SUCCEEDED", job


def winners(daemon, problems):
    """Text of the winner of each problem, None for a miss."""
    with daemon.client() as client:
        results = client.get(*problems)
    return [r.answer.winner.text if r.HasField("answer") else None for r in results]


def origins(daemon, problems):
    with daemon.client() as client:
        results = client.get(*problems)
    return {API.enum_name("Origin", r.answer.origin) if r.HasField("answer") else None for r in results}


def outbox_depth(daemon):
    with daemon.client() as client:
        return client.fleet.GetFleetState().outbox_depth


class Agent:
    """A `convtune-fleet agent` process."""

    def __init__(self, binary, conninfo, node, address, args=(), env=None):
        self.command = [
            str(binary), "agent", "--postgres", conninfo, "--node", node, "--address", address,
            "--refresh", "1s", *args,
        ]  # fmt: skip
        self.node = node
        self.env = {**os.environ, **(env or {})}
        self.lines = []
        self.process = None
        self.log_path = None

    def start(self, folder):
        self.log_path = folder / f"agent-{self.node}.log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def scrape(self):
        """Its metrics' text, once it gives some; skips where it was built without."""
        wait_until(lambda: "metrics at" in self.log() or self.process.poll() is not None, 20, "the agent's metrics")
        if "without prometheus-cpp" in self.log():
            pytest.skip("convtune-fleet was built without prometheus-cpp (deploy/install-deps brings it)")
        with urllib.request.urlopen(re.search(r"metrics at (http://\S+)", self.log())[1], timeout=20) as reply:
            return reply.read().decode()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, timeout=20):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Fleet:
    """Made by the `fleet` fixture, which also ends its agents."""

    def __init__(self, binary, server, folder):
        self.binary = binary
        self.server = server
        self.folder = folder
        self.conninfo = server.database()
        self.agents = []
        self.cli = Cli(binary, env={"CONVTUNE_POSTGRES": self.conninfo})

    def migrate(self):
        self.cli.ok("migrate")
        return self

    def agent(self, node, daemon, *args, env=None, conninfo=None):
        agent = Agent(self.binary, conninfo or self.conninfo, node, daemon.address, args, env)
        self.agents.append(agent)
        return agent.start(self.folder)

    def sql(self, statement):
        return psql(self.conninfo, statement)

    def number(self, statement):
        return int(self.sql(statement)[0][0])

    def status(self):
        return self.cli.ok("status", "--json").json()

    def node(self, name):
        return next(n for n in self.status()["nodes"] if n["name"] == name)

    def promote(self, reason="because", *args):
        return self.cli.ok("release", "promote", "--author", "ann", "--reason", reason, "--json", *args).json()

    def rollback(self, reason="no good", *args):
        return self.cli.ok("release", "rollback", "--author", "bob", "--reason", reason, "--json", *args).json()

    def withdraw(self, *args):
        """The command's result; args: problems and flags."""
        return self.cli("release", "withdraw", *args, "--environment", self.environment(), "--author", "bob",
                        "--reason", "wrong", "--json")  # fmt: skip

    def pin(self, problem, candidate, *args):
        self.cli.ok("pin", problem, candidate, "--environment", self.environment(), "--author", "ann", "--reason", "a bug", *args)

    def at_once(self, *commands):
        """Begins each before the first has the lock of releases, which they get in turn; their results."""
        session = postgres.Session(self.conninfo)
        session("BEGIN;")
        session("SELECT pg_advisory_xact_lock(hashtextextended('convtune release', 0));")
        begun = []
        for command in commands:
            begun.append(self.cli.start(*command))
            waiting = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_until(lambda: self.number(waiting) == len(begun), 20, command)
        session("COMMIT;")
        session.close()
        return [result() for result in begun]

    def candidates(self, problem):
        """Those that ran in the pooled tuning of it, in the order of their texts."""
        return [row[0] for row in self.sql("SELECT unnest(candidates) FROM pooled JOIN problems USING (problem_id) "
                                           f"WHERE text = '{problem}' ORDER BY 1")]  # fmt: skip

    def environment(self):
        """The text of the first that a node told."""
        rows = wait_until(lambda: self.sql("SELECT text FROM environments ORDER BY environment_id"), 20, "an environment")
        return rows[0][0]

    def wait_nodes(self, count):
        """Until the devices of that many nodes are there."""
        devices = "SELECT COUNT(DISTINCT node_id) FROM node_devices WHERE current"
        wait_until(lambda: self.number(devices) == count, 20, "all nodes' devices")

    def wait_delivered(self, count, timeout=30):
        """Until that many of the nodes' newest tunings are there, and pooled."""
        wait_until(
            lambda: self.number("SELECT COUNT(*) FROM evidence WHERE current") >= count,
            timeout,
            f"{count} tunings in the fleet",
        )

        self._wait_pooled(timeout)

    def _wait_pooled(self, timeout):
        # More may be delivered between the two commands.
        def pooled():
            self.cli.ok("release", "diff")
            return self.status()["waiting_to_pool"] == 0

        wait_until(pooled, timeout, "all is pooled")

    def deliver(self, daemon, *problems, **fields):
        """Tunes them there; until each is in the fleet, and pooled. Nothing else may be on its way to the fleet."""
        count = self.number("SELECT COUNT(*) FROM evidence") + len(problems)
        tune(daemon, *problems, **fields)
        wait_until(lambda: self.number("SELECT COUNT(*) FROM evidence") >= count, 30, f"{len(problems)} more tunings in the fleet")
        self._wait_pooled(30)

    def serve(self, daemons, reason="because", *args):
        """Promotes, until all of these daemons' nodes serve the release; its number."""
        number = self.promote(reason, *args)["release"]
        self.wait_release(number, daemons)
        return number

    def release(self, daemons, *problems):
        """The first of the daemons tunes them, and all of them serve the release; its number."""
        self.deliver(daemons[0], *problems)
        return self.serve(daemons)

    def wait_release(self, number, nodes, timeout=30):
        """Until all of these nodes, or these daemons' nodes, serve that release; returns how long it took."""
        start = time.monotonic()
        nodes = [getattr(n, "node", n) for n in nodes]
        names = ",".join(f"'{n}'" for n in nodes)
        wait_until(
            lambda: self.number(
                f"SELECT COUNT(*) FROM nodes WHERE name IN ({names}) AND release_number = {number}"
            ) == len(nodes),
            timeout,
            f"release {number} on {nodes}",
        )  # fmt: skip
        return time.monotonic() - start

    def dump(self):
        return subprocess.run(
            [postgres.programs() / "pg_dump", "--schema", "convtune", "--dbname", self.conninfo],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    def restore(self, dumped):
        restored = subprocess.run(
            ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-c", "DROP SCHEMA convtune CASCADE",
             "-f", "-", self.conninfo], input=dumped, capture_output=True, text=True,
        )  # fmt: skip
        assert restored.returncode == 0, restored.stderr

    def lose(self):
        """Its tables are made anew, under whoever is connected."""
        self.sql("DROP SCHEMA convtune CASCADE")
        self.migrate()

    def close(self):
        for agent in self.agents:
            agent.close()
