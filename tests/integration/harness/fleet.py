"""A fleet on one machine: a database, daemons, and an agent beside each."""

import json
import os
import signal
import subprocess
import time

from .cli import Cli
from .daemon import wait_until
from .postgres import psql


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

    def wait_delivered(self, count, timeout=30):
        """Until that many of the nodes' newest tunings are there, and pooled."""
        wait_until(
            lambda: self.number("SELECT COUNT(*) FROM evidence WHERE current") >= count,
            timeout,
            f"{count} tunings in the fleet",
        )

        # More may be delivered between the two commands.
        def pooled():
            self.cli.ok("release", "diff")
            return self.status()["waiting_to_pool"] == 0

        wait_until(pooled, timeout, "all is pooled")

    def wait_release(self, number, nodes, timeout=30):
        """Until all of these nodes serve that release; returns how long it took."""
        start = time.monotonic()
        names = ",".join(f"'{n}'" for n in nodes)
        wait_until(
            lambda: self.number(
                f"SELECT COUNT(*) FROM nodes WHERE name IN ({names}) AND release_number = {number}"
            ) == len(nodes),
            timeout,
            f"release {number} on {nodes}",
        )  # fmt: skip
        return time.monotonic() - start

    def close(self):
        for agent in self.agents:
            agent.close()


def as_json(result):
    return json.loads(result.out)
