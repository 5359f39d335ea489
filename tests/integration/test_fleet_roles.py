"""Two roles of PostgreSQL: agents write what nodes measure, operators decide what the fleet serves."""

import re
import uuid

import pytest

from conftest import REPO
from harness.daemon import wait_until
from harness.fleet import tune, winners
from harness.problems import numbered


@pytest.fixture
def logins(fleet):
    """A login for agents, one for operators, and one without rights: connection strings by name."""
    mark = uuid.uuid4().hex[:8]
    agents, operators = f"agents_{mark}", f"operators_{mark}"
    fleet.cli.ok("migrate", "--agent-role", agents, "--operator-role", operators)
    made = {}
    for name, role in (("node", agents), ("ann", operators), ("nobody", None)):
        login = f"{name}_{mark}"
        fleet.sql(f"CREATE ROLE {login} LOGIN" + (f" IN ROLE {role}" if role else ""))
        made[name] = fleet.conninfo.replace("user=postgres", f"user={login}")
    yield made
    for agent in fleet.agents:
        agent.close()
    fleet.sql(f"DROP OWNED BY {agents}; DROP OWNED BY {operators}")
    for name in ("node", "ann", "nobody"):
        fleet.sql(f"DROP ROLE {name}_{mark}")
    fleet.sql(f"DROP ROLE {agents}; DROP ROLE {operators}")


def test_an_agents_login_delivers_and_follows_and_decides_nothing(fleet, nodes, logins):
    first, second = nodes(2, agents=False)
    for daemon in (first, second):
        fleet.agent(daemon.node, daemon, conninfo=logins["node"])
    fleet.deliver(first, numbered(0))
    environment = fleet.environment()
    winner, = fleet.sql("SELECT winner FROM pooled")[0]
    for verb in (
        ("release", "promote", "--reason", "x"),
        ("pin", numbered(0), winner, "--environment", environment, "--reason", "x"),
        ("ban", "eng1", "--reason", "x"),
    ):
        refused = fleet.cli(*verb, "--postgres", logins["node"])
        assert refused.code == 1 and "permission denied for table" in refused.err, refused
        assert "--operator-role" in refused.err, refused
    for table in ("releases", "pins", "bans"):
        assert fleet.number(f"SELECT COUNT(*) FROM {table}") == 0
    done = fleet.cli("release", "promote", "--author", "ann", "--reason", "x", "--json", "--postgres", logins["ann"])
    assert done.code == 0, done
    assert done.json()["login"].startswith("ann_")
    fleet.wait_release(1, [first.node, second.node])
    assert winners(second, [numbered(0)]) == winners(first, [numbered(0)]) == [winner]
    assert fleet.cli("ban", "legacy:algo7", "--reason", "x", "--postgres", logins["ann"]).code == 0
    with second.client() as client:
        wait_until(lambda: [b.fleet_ban for b in client.tuning.ListBans().bans if not b.shipped] == [1], 20, "the fleet's ban")
    assert fleet.sql("SELECT login FROM bans")[0][0].startswith("ann_")
    refused = fleet.cli("ban", "delete", "1", "--postgres", logins["node"])
    assert refused.code == 1 and "permission denied for table bans" in refused.err, refused
    # All that an agent does: the queue, wanted problems, what is superseded.
    assert fleet.cli("tune", numbered(1), "--environment", environment, "--reason", "x", "--postgres", logins["ann"]).code == 0
    tune(first, numbered(0), force=True)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence") == 3, 20, "another tuning")
    assert fleet.cli("prune", "--keep", "1s", "--postgres", logins["node"]).code == 0
    for agent in fleet.agents:
        assert "permission denied" not in agent.log()


def test_an_operators_login_does_all_that_operators_do(fleet, nodes, logins):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    environment = fleet.environment()
    winner, = fleet.sql("SELECT winner FROM pooled")[0]
    place = ("--environment", environment)
    for verb in (
        ("status",), ("release", "diff"), ("release", "promote", "--reason", "x"), ("release", "list"),
        ("pin", numbered(0), winner, *place, "--reason", "x"), ("pins",), ("unpin", numbered(0), *place),
        ("release", "withdraw", numbered(0), *place, "--reason", "x"), ("release", "rollback", "--reason", "x"),
        ("ban", "eng1", "--reason", "x", "--dry-run"), ("ban", "eng1", "--reason", "x"), ("ban", "list"), ("ban", "delete", "1"),
        ("node", "distrust", daemon.node, "--reason", "x"), ("node", "trust", daemon.node),
        ("report",), ("prune",), ("tune", "--dead"),
    ):  # fmt: skip
        done = fleet.cli(*verb, "--postgres", logins["ann"])
        assert done.code == 0, done
    # A node that another login registered.
    daemon.agent.kill()
    fleet.sql("UPDATE nodes SET login = 'someone', last_seen = now() - interval '61 seconds'")
    gone = fleet.cli("node", "forget", daemon.node, "--postgres", logins["ann"])
    assert gone.code == 0 and fleet.status()["nodes"] == [], gone


def test_a_login_without_rights_is_told_so(fleet, logins):
    refused = fleet.cli("status", "--postgres", logins["nobody"])
    assert refused.code == 1 and "has no rights in the schema convtune" in refused.err, refused
    assert "nobody_" in refused.err and "--agent-role" in refused.err and "schema version" not in refused.err, refused
    for role in ("Agents", "x; DROP", "1x"):
        wrong = fleet.cli("migrate", "--agent-role", role)
        assert wrong.code == 2 and "--agent-role: must be 1 to 63 lower-case letters" in wrong.err, wrong


def test_a_node_is_its_logins_until_the_owner_frees_it(fleet, nodes, logins):
    daemon, = nodes(1, agents=False)
    agent = fleet.agent(daemon.node, daemon, conninfo=logins["node"])
    wait_until(lambda: "connected as" in agent.log(), 20, "the first agent")
    agent.stop()
    mark = logins["node"].split("user=node_")[1].split()[0]
    other = fleet.agent(daemon.node, daemon, conninfo=logins["ann"])
    refusal = f"node: node-0 is of the login node_{mark}, and this agent's is ann_{mark}; the owner of the tables can free it"
    wait_until(lambda: refusal in other.log(), 20, "the refusal")
    page = (REPO / "deploy/docs/fleet.md").read_text()
    typed = re.search(r'`psql fleet -c "(UPDATE convtune.nodes SET login = NULL .*?)"`', page)[1]
    fleet.sql(typed.replace("node7", daemon.node))
    wait_until(lambda: other.log().count("connected as") == 2, 40, "the second agent")
    assert fleet.sql("SELECT login FROM nodes") == [[f"ann_{mark}"]]
