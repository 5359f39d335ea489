"""A PostgreSQL that neither answers nor ends, and an agent that must notice, say it, and stop all the same."""

import contextlib
import os
import re
import select
import signal
import socket
import time

import pytest

from harness.daemon import wait_until
from harness.fleet import tune
from harness.postgres import Proxy
from harness.problems import numbered
from test_metrics import values

pytestmark = pytest.mark.ci

QUICK = ("--postgres-timeout", "1s")


@pytest.fixture
def proxy(postgres_server):
    made = Proxy(postgres_server)
    yield made
    made.close()


def connected(agent):
    return wait_until(lambda: "connected as" in agent.log(), 30, "a connection")


@contextlib.contextmanager
def hung(how, server, proxy):
    if how == "stopped":
        with server.hung():
            yield
    else:
        proxy.swallow()
        yield
        proxy.pass_on()


def through(how, fleet, proxy):
    return fleet.conninfo if how == "stopped" else proxy.conninfo(fleet.conninfo)


HOW = pytest.mark.parametrize("how", ["stopped", "swallowed"])


@HOW
def test_an_agent_says_that_postgresql_hangs_and_delivers_afterwards(how, fleet, nodes, postgres_server, proxy):
    daemon, = nodes(1, agents=False)
    agent = fleet.agent("node-0", daemon, *QUICK, "--metrics-address", "127.0.0.1:0",
                        conninfo=through(how, fleet, proxy))  # fmt: skip
    last = "convtune_fleet_last_exchange_timestamp_seconds"
    wait_until(lambda: last in values(agent.scrape()), 30, "an exchange")
    with hung(how, postgres_server, proxy):
        tune(daemon, numbered(0))
        wait_until(lambda: "no answer within 6s" in agent.log(), 30, "a line in the log")
        wait_until(lambda: values(agent.scrape())["convtune_fleet_connected"] == 0, 10, "the loss")
        wait_until(lambda: values(agent.scrape())["convtune_fleet_outbox_lag_seconds"], 20, "a lag")
        first = values(agent.scrape())
        assert first["convtune_fleet_outbox_depth"] == 1 and first["convtune_fleet_failures_total"] > 0
        time.sleep(1.5)
        # As it is when it is asked, whatever the agent waits for.
        then = values(agent.scrape())
        assert 1 < then["convtune_fleet_outbox_lag_seconds"] - first["convtune_fleet_outbox_lag_seconds"] < 10
        assert then[last] == first[last]
    fleet.wait_delivered(1, timeout=90)
    wait_until(lambda: values(agent.scrape())["convtune_fleet_outbox_lag_seconds"] == 0, 60, "no lag")
    wait_until(lambda: "all is well again" in agent.log(), 30, "its good end")


@HOW
def test_an_agent_stops_while_postgresql_hangs(how, fleet, nodes, postgres_server, proxy):
    daemon, = nodes(1, agents=False)
    agent = fleet.agent("node-0", daemon, conninfo=through(how, fleet, proxy))
    connected(agent)
    with hung(how, postgres_server, proxy):
        time.sleep(3)  # it looks every second, and has a minute for each answer
        assert agent.stop(timeout=10) == 0, agent.log()


def test_an_agent_stops_while_it_connects_to_a_hung_postgresql(fleet, nodes, postgres_server):
    daemon, = nodes(1, agents=False)
    with postgres_server.hung():
        agent = fleet.agent("node-0", daemon)
        time.sleep(1)
        assert agent.stop(timeout=10) == 0, agent.log()


def test_a_command_ends_while_postgresql_hangs(fleet, proxy):
    fleet.cli.ok("status")
    proxy.swallow()
    done = fleet.cli("status", "--postgres", proxy.conninfo(fleet.conninfo), *QUICK)
    assert done.code == 4 and "PostgreSQL" in done.err, done


def test_a_connection_that_the_server_cannot_hear_frees_the_nodes_name(fleet, nodes, proxy):
    """With its lock a dead connection would keep the node out until the kernel gives it up, which takes hours."""
    daemon, = nodes(1, agents=False)
    agent = fleet.agent("node-0", daemon, *QUICK, conninfo=proxy.conninfo(fleet.conninfo))
    connected(agent)
    assert fleet.sql(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'convtune-fleet' AND datname = current_database()"
    ) == [["1"]]
    ends = fleet.sql("SELECT EXISTS (SELECT 1 FROM pg_settings WHERE name = 'idle_session_timeout')") == [["t"]]
    if not ends:
        pytest.skip("PostgreSQL before 14 ends no idle connection")
    proxy.swallow()
    agent.kill()  # its end does not get through, either: the proxy holds the connection
    wait_until(
        lambda: fleet.sql(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'convtune-fleet' "
            "AND datname = current_database()"
        ) == [["0"]], 100, "the end of the dead connection",
    )  # fmt: skip


def drain(notify):
    """Reads what was said until now."""
    while select.select([notify], [], [], 0)[0]:
        notify.recv(100)


def test_systemds_watchdog_is_told_while_postgresql_hangs_and_not_by_a_stopped_agent(fleet, nodes, proxy, short_dir):
    daemon, = nodes(1, agents=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(short_dir / "n"))
        notify.settimeout(30)
        env = {"NOTIFY_SOCKET": str(short_dir / "n"), "WATCHDOG_USEC": "5000000"}
        agent = fleet.agent("node-0", daemon, env=env, conninfo=proxy.conninfo(fleet.conninfo))
        assert notify.recv(100) == b"READY=1"
        connected(agent)
        proxy.swallow()
        time.sleep(2)
        drain(notify)
        assert [notify.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        os.kill(agent.process.pid, signal.SIGSTOP)
        time.sleep(0.5)
        drain(notify)
        notify.settimeout(3)
        with pytest.raises(socket.timeout):
            notify.recv(100)
        os.kill(agent.process.pid, signal.SIGCONT)
        assert notify.recv(100) == b"WATCHDOG=1"


def test_the_probe_tells_a_stopped_agent_from_one_that_waits_for_postgresql(fleet, nodes, proxy, tmp_path):
    daemon, = nodes(1, agents=False)
    file = tmp_path / "alive"
    probe = ("probe", "--alive-file", str(file), "--within", "3s")
    missing = fleet.cli(*probe)
    assert missing.code == 1 and "--alive-file" in missing.err, missing
    agent = fleet.agent("node-0", daemon, "--alive-file", str(file), conninfo=proxy.conninfo(fleet.conninfo))
    connected(agent)
    proxy.swallow()
    time.sleep(5)
    assert fleet.cli(*probe).code == 0
    said = fleet.cli.ok(*probe, "--json").json()
    assert said["alive"] is True and 0 <= said["silent_seconds"] < 3
    os.kill(agent.process.pid, signal.SIGSTOP)
    wait_until(lambda: fleet.cli(*probe).code == 1, 10, "a probe that fails")
    os.utime(file, (time.time() + 3600,) * 2)  # of before the clock was set back by an hour
    assert fleet.cli(*probe).code == 1
    os.kill(agent.process.pid, signal.SIGCONT)
    wait_until(lambda: fleet.cli(*probe).code == 0, 10, "a probe that succeeds")
    assert re.search(r"last sign of life is \S+", fleet.cli(*probe).out)
    refused = fleet.cli("agent", "--alive-file", "/nonexistent/alive", "--address", daemon.address)
    assert refused.code == 2 and "--alive-file" in refused.err, refused
