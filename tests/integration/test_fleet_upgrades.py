"""After an upgrade: what was known is verified by itself, and the report shows what moved."""

import json

import pytest

from harness.daemon import wait_until
from harness.fakes import script
from harness.fleet import winners
from harness.problems import numbered, numbered_list


def environment(version):
    return f"nvidia-test,cc=9.0,sms=132,cudnn={version},lib=full"


def tuned_in(fleet, version):
    return fleet.sql(
        "SELECT q.text FROM evidence e JOIN problems q USING (problem_id) JOIN environments v USING (environment_id) "
        f"WHERE v.text LIKE '%{version}%' ORDER BY evidence_id"
    )


def want(fleet, problem, node):
    """The node's programs missed it often, with the new cuDNN."""
    fleet.sql("INSERT INTO wanted SELECT e.environment_id, p.problem_id, n.node_id, 50 FROM environments e, problems p, nodes n "
              f"WHERE e.text LIKE '%9.20.0%' AND p.text = '{problem}' AND n.name = '{node}'")  # fmt: skip


def test_a_new_cudnn_is_verified_by_itself_the_most_used_first(fleet, fake_daemon, nodes):
    old, = nodes(1, environment=environment("9.19.0"))
    fleet.deliver(old, *numbered_list(0, 4))
    old.agent.stop()
    new = fake_daemon(env=script(environment=environment("9.20.0"), seed=5)).start()
    with new.client() as client:
        found = client.get_one(numbered(0), include_hints=True)
    assert found.WhichOneof("outcome") == "miss"
    # The environment is there before anything is queued, so that its misses can be, too.
    first = fleet.agent("new", new, "--no-tune")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM environments") == 2, 20, "the new environment")
    first.stop()
    assert fleet.number("SELECT COUNT(*) FROM tasks") == 0, "nobody asked for it"
    want(fleet, numbered(2), "node-0")
    fleet.agent("new", new, "--verify-upgrades")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks") == 4, 30, "what has to be verified")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks WHERE state IN (1, 2)") == 0, 60, "an empty queue")
    order = tuned_in(fleet, "9.20.0")
    assert order[0] == [numbered(2)] and len(order) == 4
    assert fleet.sql("SELECT DISTINCT author, reason, kind FROM batches") == [
        ["convtune-fleet", "cuDNN 9.19.0 to 9.20.0", "2"]
    ]
    # It is not asked for again.
    fleet.agent("late", fake_daemon(env=script(environment=environment("9.20.0"), seed=6)).start(), "--verify-upgrades")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM nodes WHERE name = 'late'") == 1, 20, "another node")
    fleet.wait_delivered(8)
    assert fleet.number("SELECT COUNT(*) FROM batches") == 1
    # What moved.
    report = json.loads(fleet.cli.ok("report", "--json").out)
    upgrade, = [u for u in report["upgrades"] if u["kind"] == "cudnn"]
    assert (upgrade["from"], upgrade["to"], len(upgrade["values"])) == ("9.19.0", "9.20.0", 4)
    winner = upgrade["columns"].index("to_winner")
    place = upgrade["columns"].index("problem")
    for values in upgrade["values"]:
        text = report["problems"][values[place]]["text"]
        assert report["candidates"][values[winner]] == winners(new, [text])[0]


@pytest.mark.ci
def test_an_operator_has_verified_what_an_upgrade_asks_for_the_most_used_first(fleet, nodes):
    old, = nodes(1, environment=environment("9.19.0"))
    fleet.deliver(old, *numbered_list(0, 4))
    new, = nodes(1, first=1, environment=environment("9.20.0"))
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM environments") == 2, 20, "the new environment")
    new.agent.stop()
    want(fleet, numbered(2), new.node)
    upgrade = ("upgrade", "--from", environment("9.19.0"), "--to", environment("9.20.0"), "--reason", "x", "--budget", "1s")
    queued = fleet.cli.ok(*upgrade, "--json").json()
    assert queued["problems"] == 4
    fleet.agent(new.node, new)
    fleet.cli.ok("tune", "--watch", queued["batch"])
    order = tuned_in(fleet, "9.20.0")
    assert order[0] == [numbered(2)] and len(order) == 4
    assert "nothing has to be verified" in fleet.cli.ok(*upgrade).out


def test_a_problem_that_only_a_newer_node_can_read_stops_no_agent(fleet, fake_daemon, nodes):
    old, = nodes(1, environment=environment("9.19.0"))
    fleet.deliver(old, *numbered_list(0, 2))
    old.agent.stop()
    fleet.sql(f"UPDATE problems SET text = text || ',later=1' WHERE text = '{numbered(0)}'")
    new = fake_daemon(env=script(environment=environment("9.20.0"), seed=5)).start()
    fleet.agent("new", new, "--no-tune", "--verify-upgrades")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks") == 2, 30, "what has to be verified")
    fleet.deliver(new, numbered(5))


def test_a_newer_driver_is_verified_by_itself(fleet, nodes):
    daemon, = nodes(1, driver="580.65.06")
    fleet.deliver(daemon, *numbered_list(0, 3))
    daemon.agent.stop()
    before = fleet.number("SELECT MAX(evidence_id) FROM evidence")
    daemon.stop()
    daemon.start(env=script(seed=100, driver="580.105.08"))
    fleet.agent("node-0", daemon, "--verify-upgrades")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks WHERE state = 3") == 3, 60, "what has to be verified")
    assert fleet.sql("SELECT reason FROM batches") == [["driver 580.105.08"]]
    assert fleet.number(f"SELECT COUNT(*) FROM evidence WHERE current AND evidence_id > {before}") == 3


def test_an_older_driver_verifies_nothing(fleet, nodes):
    newer, = nodes(1, driver="580.105.08")
    fleet.deliver(newer, numbered(0))
    nodes(1, first=1, driver="580.65.06", agent_args=("--verify-upgrades",))
    fleet.promote()
    fleet.wait_release(1, ["node-0", "node-1"])
    assert fleet.number("SELECT COUNT(*) FROM batches") == 0
