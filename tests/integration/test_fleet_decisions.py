"""A decision that is not what somebody decided is refused by every node, and what the node served before stays."""

import json
import signal

from harness.certificates import key_pair
from harness.daemon import wait_until
from harness.fleet import tune, winners
from harness.problems import numbered
from test_fleet_metrics import watched  # noqa: F401
from test_metrics import values

CHANGED = "its content does not match its digest: it was changed after it was decided"


def released(fleet, nodes):
    """A node that serves release 1, of problem 0."""
    daemon, = nodes(1)
    fleet.release([daemon], numbered(0))
    return daemon


def refusal(fleet, node, key):
    """Its text, once the node says it; only a turn after that says that it does not go away."""
    wait_until(lambda: any(n["name"] == node and n[key] for n in fleet.status()["nodes"]), 20, f"{key} of {node}")
    fleet.sql("UPDATE nodes SET last_error = 'old'")
    wait_until(lambda: fleet.node(node)["last_error"] == "", 20, "a heartbeat")
    return fleet.node(node)[key]


def test_a_rebuilt_node_does_not_serve_what_was_put_in_a_releases_place(fleet, nodes):
    """The role of agents could once: the tuning of a release is another node's, which is sound and slower."""
    first = released(fleet, nodes)
    before = winners(first, [numbered(0)])
    second, = nodes(1, first=1, agents=False, seed=7)
    tune(second, numbered(0))
    other = winners(second, [numbered(0)])
    assert other != before, "the test provoked no change"
    fleet.agent(second.node, second)
    fleet.wait_delivered(2)
    fleet.sql("UPDATE pooled_payloads y SET payload = e.payload FROM evidence e JOIN nodes n USING (node_id), release_choices c "
              f"WHERE n.name = '{second.node}' AND c.digest = y.digest")  # fmt: skip
    rebuilt, = nodes(1, first=2)
    why = f"release 1: the tuning of {numbered(0)} in {fleet.environment()}: {CHANGED}"
    assert refusal(fleet, rebuilt.node, "release_error") == why
    assert winners(rebuilt, [numbered(0)]) == [None]
    assert winners(first, [numbered(0)]) == before


def test_a_release_whose_tuning_was_changed_is_not_served(fleet, nodes):
    first = released(fleet, nodes)
    before = winners(first, [numbered(0)])
    fleet.deliver(first, numbered(1))
    first.agent.stop()
    fleet.promote("second")
    fleet.sql("UPDATE pooled_payloads SET payload = payload || '\\x00' WHERE digest = "
              "(SELECT digest FROM release_choices WHERE release_number = 2)")  # fmt: skip
    rebuilt, = nodes(1, first=1)
    why = f"release 2: the tuning of {numbered(1)} in {fleet.environment()}: {CHANGED}"
    assert refusal(fleet, rebuilt.node, "release_error") == why
    # Half a release is none: problem 0 of release 1 was sound.
    assert winners(rebuilt, [numbered(0), numbered(1)]) == [None, None]
    assert fleet.number(f"SELECT release_number FROM nodes WHERE name = '{rebuilt.node}'") == 0
    assert rebuilt.agent.log().count(f"refused: {why}") == 1, rebuilt.agent.log()
    status = fleet.cli.ok("status").out
    assert why in status and "refused on 1 nodes" in status, status
    # A node that served release 1 serves it still.
    fleet.agent(first.node, first)
    assert refusal(fleet, first.node, "release_error") == why
    assert winners(first, [numbered(0)]) == before
    # The way out: what cannot be read is withdrawn.
    assert fleet.withdraw(numbered(1)).code == 0
    fleet.wait_release(3, [first.node, rebuilt.node])
    assert winners(rebuilt, [numbered(0), numbered(1)]) == [*before, None]
    wait_until(lambda: not any(n["release_error"] for n in fleet.status()["nodes"]), 20, "no refusal")


def test_a_release_that_is_not_what_was_decided_is_not_served(fleet, nodes):
    first = released(fleet, nodes)
    fleet.deliver(first, numbered(1))
    first.agent.stop()
    fleet.promote("second")
    late, = nodes(1, first=1, agents=False)
    for change, back in (
        # A choice of the one problem for the other, by its digest and by its number.
        ("UPDATE release_choices SET digest = (SELECT digest FROM release_choices WHERE release_number = 1) WHERE release_number = 2",
         "UPDATE release_choices SET digest = p.digest FROM pooled p WHERE release_number = 2 AND p.problem_id = release_choices.problem_id"),
        ("UPDATE problems SET text = CASE text WHEN '{0}' THEN 'x' ELSE '{0}' END; UPDATE problems SET text = '{1}' WHERE text = 'x'",
         "UPDATE problems SET text = CASE text WHEN '{1}' THEN 'x' ELSE '{1}' END; UPDATE problems SET text = '{0}' WHERE text = 'x'"),
        ("UPDATE releases SET author = 'root' WHERE release_number = 2", "UPDATE releases SET author = 'ann' WHERE release_number = 2"),
        ("UPDATE releases SET digest = NULL WHERE release_number = 2", None),
    ):  # fmt: skip
        fleet.sql("ALTER TABLE problems DROP CONSTRAINT IF EXISTS problems_text_key; " + change.format(numbered(0), numbered(1)))
        agent = fleet.agent(late.node, late)
        assert refusal(fleet, late.node, "release_error").endswith(CHANGED), change
        assert winners(late, [numbered(0), numbered(1)]) == [None, None], change
        agent.stop()
        fleet.sql("UPDATE nodes SET release_error = ''")
        if back is not None:
            fleet.sql(back.format(numbered(0), numbered(1)))
    # The way out: a withdrawal of one problem leaves the other's choice to release 2.
    assert fleet.withdraw("--every-problem").code == 0
    fleet.promote("anew", "--all")
    fleet.agent(late.node, late)
    fleet.wait_release(4, [late.node])
    assert None not in winners(late, [numbered(0), numbered(1)])


def test_a_canary_that_was_changed_is_not_decided_anew(fleet, nodes):
    first = released(fleet, nodes)
    fleet.deliver(first, numbered(1))
    first.agent.stop()
    fleet.promote("second", "--canary", "50%")
    fleet.sql("UPDATE releases SET canary_nodes = '{node-0,node-7}' WHERE release_number = 2")
    fleet.agent(first.node, first)
    assert refusal(fleet, first.node, "release_error") == f"release 2: {CHANGED}"
    fleet.sql("UPDATE releases SET canary_nodes = '{node-0}' WHERE release_number = 2")
    fleet.sql("UPDATE release_choices SET digest = (SELECT digest FROM release_choices WHERE release_number = 1) WHERE release_number = 2")
    for share in ((), ("--canary", "90%")):
        refused = fleet.cli("release", "promote", "--reason", "x", *share)
        assert refused.code == 1 and f"release 2: {CHANGED}" in refused.err, refused
    assert [(r["release"], r["state"], r["canary_permille"]) for r in fleet.cli.ok("release", "list", "--json").json()] == [
        (2, "canary", 500), (1, "promoted", 0)
    ]  # fmt: skip
    # The way out.
    assert fleet.rollback()["state"] == "rolled_back"


def test_a_release_that_was_changed_is_not_brought_back(fleet, nodes):
    """The release that brings it back would have its changed choice, and a digest that vouches for it."""
    first = released(fleet, nodes)
    assert fleet.withdraw(numbered(0)).code == 0
    fleet.deliver(first, numbered(1))
    fleet.promote("third")
    fleet.sql("UPDATE release_choices SET digest = (SELECT digest FROM release_choices WHERE release_number = 3) WHERE release_number = 1")
    refused = fleet.cli("release", "rollback", "1", "--reason", "x")
    assert refused.code == 1 and f"release 1: {CHANGED}" in refused.err, refused
    assert [r["release"] for r in fleet.cli.ok("release", "list", "--json").json()] == [3, 2, 1]


def test_a_release_whose_choices_were_deleted_is_named_before_anything_is_decided_on_it(fleet, nodes):
    """Agents that are there read it no more, so none of them would say it."""
    first = released(fleet, nodes)
    fleet.deliver(first, numbered(1), numbered(2))
    fleet.serve([first], "second")
    assert fleet.status()["damaged"] == ""
    gone = f"problem_id = (SELECT problem_id FROM problems WHERE text = '{numbered(1)}')"
    fleet.sql(f"CREATE TABLE kept AS SELECT * FROM release_choices WHERE {gone}; DELETE FROM release_choices WHERE {gone}")
    mends = ("restore its rows; or `release rollback` a canary, else `release withdraw --every-problem` in each environment "
             "that is served, then `release promote --all`")  # fmt: skip
    why = f"release 2: {CHANGED}; {mends}"
    assert fleet.status()["damaged"] == why
    assert fleet.cli.ok("status").err == f"damaged: {why}\n"
    looked = fleet.cli("release", "diff")
    assert looked.code == 1 and looked.err.startswith(f"error: {why}\n"), looked
    looked = fleet.cli("release", "diff", "0", "2", "--json")
    assert looked.code == 1 and json.loads(looked.out)["damaged"] == why, looked
    refused = fleet.cli("release", "promote", "--reason", "x")
    assert refused.code == 1 and refused.err == f"error: {why}\n", refused
    assert fleet.number("SELECT MAX(release_number) FROM releases") == 2
    # What it says to do mends it, either way.
    fleet.sql("INSERT INTO release_choices SELECT * FROM kept")
    assert fleet.status()["damaged"] == "" and fleet.cli.ok("release", "diff").err == "0 changes\n"
    fleet.sql(f"DELETE FROM release_choices WHERE {gone}; DROP TABLE kept")
    assert fleet.withdraw("--every-problem").code == 0
    fleet.promote("anew", "--all")
    assert fleet.status()["damaged"] == ""
    rebuilt, = nodes(1, first=1)
    fleet.wait_release(4, [rebuilt.node])
    assert None not in winners(rebuilt, [numbered(n) for n in range(3)])
    # Of a release without a row nothing is left to rest on.
    fleet.sql("DELETE FROM release_choices WHERE release_number = 4")
    assert fleet.status()["damaged"].startswith(f"release 4: {CHANGED}; ")
    fleet.promote("again", "--all")
    assert fleet.status()["damaged"] == ""
    # A canary is ended.
    fleet.deliver(first, numbered(3))
    fleet.promote("try", "--canary", "99%")
    fleet.sql("DELETE FROM release_choices WHERE release_number = 6")
    assert fleet.status()["damaged"] == f"release 6: {CHANGED}; {mends}"
    fleet.rollback()
    assert fleet.status()["damaged"] == ""


def test_a_pin_that_was_moved_to_another_problem_stays_where_it_was(fleet, nodes):
    daemons = nodes(2)
    problems = [numbered(0), numbered(1)]
    fleet.release(daemons, *problems)
    before = winners(daemons[0], problems)
    # One that ran for both problems and wins neither.
    other, = fleet.sql("SELECT c FROM pooled, unnest(candidates) c WHERE c NOT IN (SELECT winner FROM pooled) GROUP BY c HAVING COUNT(*) = 2 ORDER BY c")[0]
    fleet.pin(problems[0], other)
    pinned = [other, before[1]]
    wait_until(lambda: all(winners(d, problems) == pinned for d in daemons), 20, "the pin")
    # The role of agents could once: the two problems change their numbers, and the pin goes with its own.
    swap = ";".join(f"UPDATE problems SET text = '{text}' WHERE text = '{was}'" for was, text in
                    ((problems[0], "x"), (problems[1], problems[0]), ("x", problems[1])))  # fmt: skip
    fleet.sql(swap)
    for daemon in daemons:
        assert refusal(fleet, daemon.node, "pin_error") == f"pin 1: {CHANGED}"
        assert winners(daemon, problems) == pinned
    fleet.sql(swap)
    wait_until(lambda: all(fleet.node(d.node)["unapplied_pins"] == 0 for d in daemons), 20, "the pin, as it was decided")
    fleet.sql("UPDATE pins SET problem_id = (SELECT problem_id FROM problems WHERE text = '" + problems[1] + "')")
    for daemon in daemons:
        assert refusal(fleet, daemon.node, "pin_error") == f"pin 1: {CHANGED}"
        assert winners(daemon, problems) == pinned
    listed = fleet.cli("pins")
    assert listed.code == 1 and f"pin 1: {CHANGED}" in listed.err, listed
    # A node that comes later has it nowhere.
    late, = nodes(1, first=2)
    assert refusal(fleet, late.node, "pin_error") == f"pin 1: {CHANGED}"
    assert winners(late, problems) == before
    # By the names behind the numbers, and by what is pinned: the pin is of problem 0 again, and its text is problem 1's.
    fleet.sql("UPDATE pins SET problem_id = (SELECT problem_id FROM problems WHERE text = '" + problems[0] + "')")
    wait_until(lambda: all(fleet.node(d.node)["unapplied_pins"] == 0 for d in daemons), 20, "the pin, as it was decided")
    fleet.sql(f"UPDATE pins SET candidate = '{before[0]}'")
    assert refusal(fleet, daemons[0].node, "pin_error") == f"pin 1: {CHANGED}"
    assert winners(daemons[0], problems) == pinned


def test_a_ban_that_was_changed_stays_as_it_was(fleet, nodes):
    first, = nodes(1)
    fleet.cli.ok("ban", "eng1", "--author", "ann", "--reason", "wrong")

    def bans(daemon):
        with daemon.client() as client:
            return [b.candidate for b in client.tuning.ListBans().bans if not b.shipped]

    wait_until(lambda: bans(first) == ["graph:eng1"], 20, "the ban")
    fleet.sql("UPDATE bans SET candidate = 'graph:eng2'")
    assert refusal(fleet, first.node, "ban_error") == f"fleet ban 1: {CHANGED}"
    assert bans(first) == ["graph:eng1"]
    late, = nodes(1, first=1)
    assert refusal(fleet, late.node, "ban_error") == f"fleet ban 1: {CHANGED}"
    assert bans(late) == []
    listed = fleet.cli("ban", "list")
    assert listed.code == 1 and f"fleet ban 1: {CHANGED}" in listed.err, listed
    fleet.cli.ok("ban", "delete", "1")
    wait_until(lambda: bans(first) == [] and fleet.node(first.node)["unapplied_bans"] == 0, 20, "its end")


def test_refused_decisions_are_counted(fleet, watched):  # noqa: F811
    refused = lambda: values(watched.agent.scrape())["convtune_fleet_refused_decisions"]
    unheeded = lambda: values(watched.agent.scrape())["convtune_fleet_unheeded_decisions"]
    fleet.deliver(watched, numbered(0))
    fleet.cli.ok("ban", "eng1", "--reason", "wrong")
    wait_until(lambda: fleet.status()["unheeded_bans"] == 0, 20, "the ban")
    wait_until(lambda: refused() == unheeded() == 0, 5, "the agent's own count")
    fleet.sql("UPDATE bans SET reason = 'x'")
    wait_until(lambda: refused() == 1, 20, "the ban")
    watched.agent.process.send_signal(signal.SIGSTOP)
    fleet.promote()
    fleet.sql("UPDATE pooled_payloads SET payload = ''")
    watched.agent.process.send_signal(signal.SIGCONT)
    wait_until(lambda: refused() == 2, 20, "the release, too")
    assert unheeded() == 2
    fleet.cli.ok("ban", "delete", "1")
    wait_until(lambda: refused() == 1, 20, "the ban's end")
    assert unheeded() == 1
    # What waits for a problem that the node has not is not refused, and not heeded.
    winner, = fleet.sql("SELECT winner FROM pooled")[0]
    with watched.client() as client:
        client.tuning.DeleteTuning(problems=[{"text": numbered(0)}])
    fleet.pin(numbered(0), winner)
    wait_until(lambda: unheeded() == 2 and refused() == 1, 20, "the pin")


def test_a_changed_rollback_of_the_first_canary_is_refused_and_counted(fleet, watched):  # noqa: F811
    fleet.deliver(watched, numbered(0))
    fleet.promote("try it", "--canary", "99%")
    fleet.wait_release(1, [watched.node])
    watched.agent.process.send_signal(signal.SIGSTOP)
    fleet.rollback()
    fleet.sql("UPDATE releases SET end_reason = 'x'")
    watched.agent.process.send_signal(signal.SIGCONT)
    assert refusal(fleet, watched.node, "release_error") == f"release 1: {CHANGED}"
    counted = values(watched.agent.scrape())
    assert counted["convtune_fleet_refused_decisions"] == counted["convtune_fleet_unheeded_decisions"] == 1
    assert winners(watched, [numbered(0)]) != [None] and fleet.node(watched.node)["release"] == 1


def test_an_agent_that_requires_signatures_takes_what_its_operators_signed_alone(fleet, nodes, tmp_path):
    ours, trusted = key_pair(tmp_path, "ours")
    theirs, _ = key_pair(tmp_path, "theirs")
    daemon, = nodes(1, agent_args=("--require-signed-decisions", trusted))
    fleet.deliver(daemon, numbered(0))
    candidates = [row[0] for row in fleet.sql("SELECT unnest(candidates) FROM pooled")]
    fleet.promote("nobody signs")
    fleet.pin(numbered(0), candidates[1], "--sign", theirs)
    fleet.cli.ok("ban", "eng99", "--reason", "x")
    unsigned = "signature: is not signed, and must be"
    assert refusal(fleet, daemon.node, "release_error") == f"release 1: {unsigned}"
    assert fleet.node(daemon.node)["ban_error"] == f"fleet ban 1: {unsigned}"
    error = fleet.node(daemon.node)["pin_error"]
    assert error.startswith("pin 1: signature: is signed by ") and error.endswith(", a key that is not trusted"), error
    assert winners(daemon, [numbered(0)]) == candidates[:1]
    # A signature of another content is none, though whoever moved it wrote the digest anew.
    fleet.pin(numbered(0), candidates[1], "--sign", ours)
    wait_until(lambda: fleet.node(daemon.node)["pin_error"] == "", 20, "the pin that is signed")
    assert winners(daemon, [numbered(0)]) == [candidates[1]]
    content = "".join(f"{len(t)}:{t}" for t in ("convtune fleet pin 1", fleet.environment(), numbered(0), candidates[2]))
    fleet.sql(f"UPDATE pins SET candidate = '{candidates[2]}', digest = sha256(convert_to('{content}' || octet_length(author) || ':' || "
              "author || '5:a bug0:', 'UTF8')) WHERE end_time IS NULL")  # fmt: skip
    error = refusal(fleet, daemon.node, "pin_error")
    assert error.startswith("pin 2: signature: its signature is not one of the key that it names"), error
    assert winners(daemon, [numbered(0)]) == [candidates[1]]
    nothing = fleet.cli("release", "sign", "")
    assert nothing.code == 2 and "KEY: is required" in nothing.err, nothing
    assert fleet.cli.ok("release", "sign", ours).out == "1 releases signed\n"
    fleet.wait_release(1, [daemon.node])
    fleet.deliver(daemon, numbered(1))
    fleet.promote("signed", "--sign", ours)
    fleet.wait_release(2, [daemon.node])
    # A canary that is signed stays so.
    fleet.deliver(daemon, numbered(2))
    fleet.promote("canary", "--canary", "50%", "--sign", ours)
    for verb in ("promote", "rollback"):
        refused = fleet.cli("release", verb, "--reason", "x")
        assert refused.code == 1 and "--sign: is required, since release 3 is signed" in refused.err, refused
    fleet.promote("to all", "--sign", ours)
    fleet.wait_release(3, [daemon.node])
    wrong = fleet.cli("release", "sign", trusted)
    assert wrong.code == 2 and f"{trusted}: must be a PEM file with an Ed25519 private key" in wrong.err, wrong
