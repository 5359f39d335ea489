"""Nodes that are gone, and nodes whose measurements are not believed."""

import signal

from harness.daemon import wait_until
from harness.fleet import tune, winners
from harness.problems import numbered


def pooled(fleet):
    """{problem: how many nodes' evidence is pooled}, once all is."""
    fleet.cli.ok("release", "diff")
    return {problem: int(count) for problem, count in fleet.sql("SELECT text, node_count FROM pooled JOIN problems USING (problem_id)")}


def silence(fleet, node):
    fleet.sql(f"UPDATE nodes SET last_seen = now() - interval '61 seconds' WHERE name = '{node}'")


def test_what_a_distrusted_node_measured_counts_no_more_and_what_rests_on_it_alone_is_listed(fleet, nodes):
    first, second = nodes(2)
    tune(first, numbered(0), numbered(1))
    tune(second, numbered(0))
    fleet.wait_delivered(3)
    fleet.serve([first, second])
    served = winners(second, [numbered(0), numbered(1)])
    assert pooled(fleet) == {numbered(0): 2, numbered(1): 1}
    distrust = ("node", "distrust", first.node, "--author", "ann", "--reason", "its clock is locked")
    done = fleet.cli.ok(*distrust, "--json").json()
    (choice,) = done["choices"]
    assert (done["distrusted"], done["choice_count"], choice["problem"], choice["release"]) == (first.node, 1, numbered(1), 1)
    assert choice["candidate"] == served[1]
    assert pooled(fleet) == {numbered(0): 1}
    # Nor does what it delivers from then on, and what is served stays until somebody decides.
    tune(first, numbered(2))
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence WHERE current") == 4, 20, "the delivery")
    assert pooled(fleet) == {numbered(0): 1}
    assert winners(second, [numbered(0), numbered(1)]) == served
    node = fleet.node(first.node)
    assert (node["state"], node["distrust_author"], node["distrust_reason"]) == ("living", "ann", "its clock is locked")
    assert f"{first.node}  living, distrusted  " in fleet.cli.ok("status").out
    assert fleet.node(second.node)["distrust_reason"] == ""
    again = fleet.cli(*distrust)
    assert again.code == 1 and f"NODE: {first.node} is distrusted already" in again.err, again
    nobody = fleet.cli("node", "distrust", "nobody", "--reason", "x")
    assert nobody.code == 3 and "NODE: there is no node nobody" in nobody.err, nobody
    # Another measures it: nothing rests on the node any more.
    fleet.deliver(second, numbered(1), force=True)
    assert pooled(fleet) == {numbered(0): 1, numbered(1): 1}
    fleet.cli.ok("node", "trust", first.node, "--author", "bob")
    assert pooled(fleet) == {numbered(0): 2, numbered(1): 2, numbered(2): 1}
    assert fleet.sql("SELECT node, end_author, end_login FROM distrusts") == [[first.node, "bob", "postgres"]]
    said = fleet.cli.ok(*distrust)
    assert said.err == f"{first.node} is distrusted; 0 served choices rest on its evidence alone\n", said
    fleet.cli.ok("node", "trust", first.node)
    assert fleet.cli("node", "trust", first.node).code == 3


def test_a_forgotten_node_is_counted_no_more_keeps_its_evidence_and_comes_back_as_another(fleet, nodes):
    first, second = nodes(2)
    fleet.release([first, second], numbered(0))
    living = fleet.cli("node", "forget", first.node)
    assert living.code == 1 and f"NODE: {first.node} is living: stop its agent" in living.err, living
    first.agent.process.send_signal(signal.SIGSTOP)
    silence(fleet, first.node)
    assert fleet.cli.ok("release", "list", "--json").json()[0]["concerned"] == 2
    assert fleet.cli.ok("node", "forget", first.node).out == f"forgot {first.node}\n"
    assert [n["name"] for n in fleet.status()["nodes"]] == [second.node]
    fleet.cli.ok("ban", "legacy:algo7", "--reason", "x", "--wait", "20s")
    (release,), (ban,) = fleet.cli.ok("release", "list", "--json").json(), fleet.cli.ok("ban", "list", "--json").json()["bans"]
    assert [(d["heeded"], d["concerned"], d["silent"]) for d in (release, ban)] == [(1, 1, [])] * 2
    assert fleet.cli("node", "forget", first.node).code == 3
    # What it measured counts on, and a node that joins is served it.
    fleet.sql("INSERT INTO pool_queue (environment_id, problem_id) SELECT environment_id, problem_id FROM evidence")
    assert pooled(fleet) == {numbered(0): 1}
    late, = nodes(1, first=2)
    fleet.wait_release(1, [late.node])
    assert winners(late, [numbered(0)]) == winners(second, [numbered(0)]) != [None]
    # It was cut off, and comes back: another node of the name, which speaks once, and after its own measurement alone.
    first.agent.process.send_signal(signal.SIGCONT)
    wait_until(lambda: any(n["name"] == first.node for n in fleet.status()["nodes"]), 30, "the node again")
    assert fleet.number(f"SELECT COUNT(*) FROM nodes WHERE name = '{first.node}'") == 2
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence WHERE current") == 2, 30, "what it has")
    assert pooled(fleet) == {numbered(0): 1}
    tune(first, numbered(0), force=True)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence WHERE current AND NOT relayed") == 2, 30, "its own")
    assert pooled(fleet) == {numbered(0): 1}


def test_a_distrust_beside_a_promotion_lists_what_was_promoted(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    promoted, listed = fleet.at_once(("release", "promote", "--reason", "x"), ("node", "distrust", daemon.node, "--reason", "x", "--json"))
    assert promoted.code == 0 and listed.json()["choice_count"] == 1, (promoted, listed)


def test_status_warns_of_a_database_that_takes_no_writes(fleet, nodes):
    """As a standby that was taken for the primary."""
    nodes(1)
    assert fleet.status()["read_only"] is False
    name = fleet.sql("SELECT current_database()")[0][0]
    fleet.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        assert fleet.status()["read_only"] is True
        assert "this PostgreSQL takes no writes" in fleet.cli.ok("status").err
    finally:
        fleet.sql(f'BEGIN READ WRITE; ALTER DATABASE "{name}" RESET default_transaction_read_only; COMMIT')
    assert "takes no writes" not in fleet.cli.ok("status").err


def test_a_tuning_waits_while_postgresql_has_a_fault_of_its_own(fleet, nodes):
    """A rule that a tuning breaks stays broken; that the server takes no writes, or cannot read a file, passes."""
    daemon, = nodes(1)
    wait_until(lambda: "connected as" in daemon.agent.log(), 20, "the agent")
    fleet.sql("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fault 25006' USING ERRCODE = '25006'; END $$; "
              "CREATE TRIGGER fail BEFORE INSERT ON evidence FOR EACH ROW EXECUTE FUNCTION fail()")  # fmt: skip
    tune(daemon, numbered(0), numbered(1))
    for state in ("25006", "58030", "XX000"):
        fleet.sql("CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
                  f"$$ BEGIN RAISE EXCEPTION 'fault {state}' USING ERRCODE = '{state}'; END $$")  # fmt: skip
        wait_until(lambda state=state: f"fault {state}" in daemon.agent.log(), 30, state)
    fleet.sql("DROP TRIGGER fail ON evidence")
    fleet.wait_delivered(2)
    assert "not delivered" not in daemon.agent.log()
    with daemon.client() as client:
        assert client.fleet.GetFleetState(observer=True).outbox_refused == 0


def test_a_row_of_the_status_fits_120_columns_and_errors_are_whole_below(fleet, nodes):
    daemon, = nodes(1)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM node_devices") == 1, 20, "a heartbeat")
    daemon.agent.stop()
    name = "gpu-wörker-pool-0123456789abcdef-" + "x" * 120 + ".eu-central-1.compute.internal"
    error, ban_error = "PostgreSQL: " + "it does not answer, " * 12, "fleet ban 1: " + "no " * 60
    fleet.sql(f"UPDATE nodes SET name = '{name}', last_error = '{error}', ban_error = '{ban_error}', release_number = 12345, release_missing = 99, "
              "outbox_depth = 200000, outbox_lag_seconds = 86400, tuning_count = 1000000, outbox_dropped = 100000")  # fmt: skip
    heading, row, *below = fleet.cli.ok("status").out.splitlines()
    assert len(row) <= 120 and len(heading) <= 120, row
    assert row.startswith("gpu-wörker-pool-...mpute.internal  living  ") and row.split()[-2:] == ["0.1.0", "nvidia-h200"], row
    told = f"error of gpu-wörker-pool-...mpute.internal ({name})"
    assert below[:2] == [f"{told}: {error}", f"{told}: {ban_error}"]
    node = fleet.node(name)
    assert (node["last_error"], node["devices"][0].split(",")[0]) == (error, "nvidia-h200") and len(node["devices"][0]) > 20
    assert " 200000 " in row and " 24 h " in row and node["outbox_lag_seconds"] == 86400, row
