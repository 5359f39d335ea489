"""One choice everywhere, changed on purpose."""

import contextlib
import datetime
import hashlib
import re
import signal
import sqlite3

import pytest

from harness.daemon import wait_until
from harness.fleet import origins, outbox_depth, tune, winners
from harness.postgres import Session
from harness.problems import numbered, numbered_list
from test_bans import engine

PROBLEMS = numbered_list(0, 10)


def publication(daemon):
    with daemon.client() as client:
        return client.release.GetPublication()


def second_opinion(fleet, daemons):
    """Release 1 of node 0's tunings; then two others measure the same, otherwise."""
    fleet.deliver(daemons[0], *PROBLEMS)
    fleet.serve(daemons, "first", "--min-nodes", "1")
    before = winners(daemons[0], PROBLEMS)
    for daemon in daemons[1:3]:
        tune(daemon, *PROBLEMS, force=True)
    fleet.wait_delivered(30)
    wait_until(lambda: all(outbox_depth(d) == 0 for d in daemons), 20, "drained outboxes")
    wait_until(lambda: all(winners(d, PROBLEMS) == before for d in daemons), 20, "the released choices")
    return before


def test_a_bad_release_is_rolled_back_on_every_node(fleet, nodes):
    daemons = nodes(4)
    before = second_opinion(fleet, daemons)
    diff = fleet.cli.ok("release", "diff", "--min-nodes", "1", "--json").json()
    assert diff["changes"] and all(change["before"] and change["after"] != change["before"] for change in diff["changes"])
    bad = fleet.promote("a second opinion", "--all", "--min-nodes", "1")
    fleet.wait_release(bad["release"], daemons)
    during = [winners(d, PROBLEMS) for d in daemons]
    assert during == [during[0]] * 4
    assert during[0] != before, "the test provoked no change"
    back = fleet.rollback("slower in production")
    assert back["restores"] == 1
    fleet.wait_release(back["release"], daemons)
    assert [winners(d, PROBLEMS) for d in daemons] == [before] * 4
    releases = fleet.cli.ok("release", "list", "--json").json()
    assert [(r["release"], r["author"], r["reason"]) for r in releases] == [
        (3, "bob", "slower in production"), (2, "ann", "a second opinion"), (1, "ann", "first"),
    ]  # fmt: skip
    for daemon in daemons:
        assert publication(daemon).waiting_changes == 0


def test_a_canary_is_served_by_its_share_alone_and_rolled_back(fleet, nodes):
    daemons = nodes(8)
    before = second_opinion(fleet, daemons)
    canary = fleet.promote("try it", "--canary", "50%", "--all", "--min-nodes", "1")
    assert (canary["state"], canary["canary_permille"]) == ("canary", 500)
    chosen = canary["canary_nodes"]
    assert len(chosen) == 4 and set(chosen) < {d.node for d in daemons}
    fleet.wait_release(2, chosen)
    fleet.wait_release(1, [d for d in daemons if d.node not in chosen])
    for daemon in daemons:
        assert (winners(daemon, PROBLEMS) == before) == (daemon.node not in chosen)
    ended = fleet.rollback("no good")
    assert ended["state"] == "rolled_back"
    fleet.wait_release(1, daemons)
    assert [winners(d, PROBLEMS) for d in daemons] == [before] * 8


@pytest.mark.ci
def test_a_canary_is_promoted_to_all(fleet, nodes):
    daemons = nodes(4)
    before = second_opinion(fleet, daemons)
    fleet.promote("try it", "--canary", "0.5", "--all", "--min-nodes", "1")
    promoted = fleet.promote("it is good")
    assert (promoted["release"], promoted["state"], promoted["end_author"]) == (2, "promoted", "ann")
    fleet.wait_release(2, daemons)
    after = [winners(d, PROBLEMS) for d in daemons]
    assert after == [after[0]] * 4 != [before] * 4


@pytest.mark.ci
def test_one_node_of_four_decides_for_none(fleet, nodes):
    daemons = nodes(4, seed=7)
    fleet.wait_nodes(4)
    fleet.deliver(daemons[0], *PROBLEMS[:2])
    diff = fleet.cli.ok("release", "diff", "--json").json()
    assert (diff["change_count"], diff["changes"], diff["held_back_count"]) == (0, [], 2)
    assert [(row["problem"], row["nodes"], row["nodes_wanted"]) for row in diff["held_back"]] == [(p, 1, 2) for p in sorted(PROBLEMS[:2])]
    held = "2 changes that too few nodes agree with (--min-nodes)"
    shown = fleet.cli.ok("release", "diff")
    assert shown.out.count("1 of 2: held back") == 2 and f"0 changes, and {held}" in shown.err
    assert f"0 changes wait for a promotion, and {held}" in fleet.cli.ok("status").out
    assert fleet.status()["held_back_changes"] == 2
    refused = fleet.cli("release", "promote", "--reason", "x")
    assert refused.code == 1 and f"there is nothing to promote but {held}" in refused.err

    fleet.deliver(daemons[1], PROBLEMS[0])
    made = fleet.cli.ok("release", "promote", "--reason", "two agree")
    assert "release 1: promoted, 1 changes" in made.out
    assert "left out: 1 changes that too few nodes agree with (--min-nodes); see `release diff`" in made.err
    assert fleet.sql("SELECT node_count FROM release_choices") == [["2"]]
    # Who wants three has three.
    assert fleet.cli("release", "promote", "--reason", "x", "--min-nodes", "3").code == 1
    # What is served stays, whatever one node says since.
    other, = nodes(1, first=4)
    fleet.deliver(other, PROBLEMS[0], force=True)
    assert fleet.cli.ok("release", "diff", "--json", "--min-nodes", "3").json()["changes"] == []
    assert fleet.promote("one is enough", "--min-nodes", "1")["changes"] >= 1


def test_two_names_of_one_gpu_are_one_opinion(fleet, nodes):
    """A host that was renamed, or two daemons on one card. The fake worker's GPUs have no UUID, so it is put in here."""
    daemons = nodes(4, seed=7)
    fleet.wait_nodes(4)
    for daemon in daemons[:2]:
        tune(daemon, PROBLEMS[0])
    fleet.wait_delivered(2)

    def opinions(uuids):
        fleet.sql(f"UPDATE provenances p SET gpu_uuid = {uuids} FROM nodes n WHERE n.node_id = p.node_id")
        fleet.sql("INSERT INTO pool_queue (environment_id, problem_id) SELECT DISTINCT environment_id, problem_id FROM evidence")
        diff = fleet.cli.ok("release", "diff", "--json").json()
        return [row["nodes"] for row in diff["changes"] + diff["held_back"]]

    assert opinions("'GPU-' || n.name") == [2]
    assert opinions("'GPU-1'") == [1]


def test_one_node_that_tunes_decides_for_those_that_do_not(fleet, nodes):
    """Three nodes whose agents take nothing from the queue: no second one is waited for."""
    daemons = nodes(1, seed=7) + nodes(3, first=1, seed=7, agent_args=("--no-tune",))
    fleet.wait_nodes(4)
    done = fleet.cli.ok("tune", PROBLEMS[0], "--environment", fleet.environment())
    assert fleet.sql("SELECT nodes_wanted, state FROM tasks") == [["1", "3"]], done
    fleet.wait_delivered(1)
    assert fleet.promote("the tuner says so")["changes"] == 1
    fleet.wait_release(1, [d.node for d in daemons])


@pytest.mark.ci
def test_a_node_that_differs_from_the_others_is_named_and_left_out(fleet, nodes):
    """Its fake has other times. What was pooled before it was known is pooled anew."""
    daemons = [*nodes(3, seed=7), *nodes(1, first=3, seed=9)]
    for daemon in daemons:
        tune(daemon, *PROBLEMS[:4])
    fleet.wait_delivered(16)
    assert fleet.status()["deviating"] == [], "four problems tell nothing"
    fleet.deliver(daemons[3], *PROBLEMS[4:])
    for daemon in daemons[:2]:
        tune(daemon, *PROBLEMS[4:])
    fleet.wait_delivered(34)
    name = fleet.sql("SELECT name FROM environments")[0][0]
    diff = fleet.cli.ok("release", "diff", "--json").json()
    node, = diff["deviating"]
    assert (node["node"], node["environment"], node["shared"]) == ("node-3", name, 10) and node["dissents"] > 5
    assert fleet.status()["deviating"] == [node]
    line = f"left out: node-3 differs from other nodes in {node['dissents']} of 10 problems of {name}"
    assert line in fleet.cli.ok("release", "diff").err and line in fleet.cli.ok("status").err
    deviating = fleet.number("SELECT node_id FROM nodes WHERE name = 'node-3'")
    assert fleet.sql("SELECT DISTINCT left_out FROM pooled") == [[f"{{{deviating}}}"]]
    assert {change["nodes"] for change in diff["changes"]} == {2, 3} and diff["held_back"] == []
    assert line in fleet.cli.ok("release", "promote", "--reason", "x").err
    # A problem that it alone measured is held back, also where one node is enough.
    fleet.deliver(daemons[3], numbered(30))
    assert [row["nodes"] for row in fleet.cli.ok("release", "diff", "--json", "--min-nodes", "1").json()["held_back"]] == [0]


def two_nodes_that_serve(fleet, nodes):
    """The daemons, and the winner of numbered(0) that a release gave both."""
    daemons = nodes(2)
    fleet.release(daemons, numbered(0))
    winner, = winners(daemons[0], [numbered(0)])
    return daemons, winner


def test_a_node_says_why_a_pin_of_the_fleet_ends(fleet, nodes):
    daemons, winner = two_nodes_that_serve(fleet, nodes)
    other = next(c for c in fleet.candidates(numbered(0)) if c != winner)
    environment = ("--environment", fleet.environment())
    pin = ("pin", numbered(0), other, *environment, "--author", "ann", "--reason")
    ends = f"warning fleet pin 1 of {numbered(0)} to {other} ends here: "
    dumped = fleet.dump()
    fleet.cli.ok(*pin, "lost")
    wait_until(lambda: all(winners(d, [numbered(0)]) == [other] for d in daemons), 20, "the pin")
    fleet.restore(dumped)
    lost = "fleet pin 1 does not hold any more: the fleet's database does not have it; was an earlier one restored?"
    wait_until(lambda: all(ends + lost in d.agent.log() for d in daemons), 30, "a line about the lost pin")
    assert [winners(d, [numbered(0)]) for d in daemons] == [[winner]] * 2
    fleet.cli.ok(*pin, "lost")
    wait_until(lambda: all(winners(d, [numbered(0)]) == [other] for d in daemons), 20, "the pin")
    # The number comes again while the agent is away.
    first = daemons[0]
    assert first.agent.stop() == 0
    fleet.restore(dumped)
    fleet.cli.ok(*pin, "another")
    first.agent = fleet.agent(first.node, first)
    wait_until(lambda: ends + "the fleet's pin of this number is another one" in first.agent.log(), 30, "a line about the number")
    assert winners(first, [numbered(0)]) == [other]
    fleet.cli.ok("unpin", numbered(0), *environment, "--author", "bob")
    wait_until(lambda: ends + "fleet pin 1 does not hold any more: bob ended it" in first.agent.log(), 30, "a line about the end")


@pytest.mark.ci
def test_a_pin_overrides_until_it_ends(fleet, nodes):
    daemons, winner = two_nodes_that_serve(fleet, nodes)
    other = next(c for c in fleet.candidates(numbered(0)) if c != winner)
    environment = fleet.environment()
    fleet.pin(numbered(0), other)
    wait_until(lambda: all(winners(d, [numbered(0)]) == [other] for d in daemons), 20, "the pin")
    pins = fleet.cli.ok("pins", "--json").json()
    assert [(p["candidate"], p["reason"]) for p in pins] == [(other, "a bug")]
    # A pin that no node can follow is refused, and ends no other.
    for ttl in "500ms", "1000000h":
        never = fleet.cli("pin", numbered(0), winner, "--environment", environment, "--reason", "none", "--ttl", ttl)
        assert never.code == 2 and "--ttl" in never.err and fleet.cli.ok("pins", "--json").json() == pins, never
    ended = fleet.cli.ok("unpin", numbered(0), "--environment", environment, "--json").json()
    assert ended == {"unpinned": numbered(0), "environment": environment}
    wait_until(lambda: all(winners(d, [numbered(0)]) == [winner] for d in daemons), 20, "the end of the pin")
    fleet.pin(numbered(0), other, "--ttl", "4s")
    wait_until(lambda: winners(daemons[0], [numbered(0)]) == [other], 20, "the pin")
    wait_until(lambda: all(winners(d, [numbered(0)]) == [winner] for d in daemons), 20, "its expiry")
    # A pin that no daemon takes keeps no agent from its other work.
    end = datetime.datetime(2200, 1, 1, tzinfo=datetime.timezone.utc)
    texts = ("convtune fleet pin 1", environment, numbered(0), winner, "somebody", "for ever", str(int(end.timestamp()) * 10**6))
    digest = hashlib.sha256("".join(f"{len(text)}:{text}" for text in texts).encode()).hexdigest()
    fleet.sql("UPDATE pins SET end_time = now() WHERE end_time IS NULL")
    fleet.sql("INSERT INTO pins (digest, expire_time, environment_id, problem_id, candidate, author, reason) "
              f"SELECT '\\x{digest}', '{end}', environment_id, problem_id, '{winner}', 'somebody', 'for ever' "
              f"FROM environments, problems WHERE environments.text = '{environment}' AND problems.text = '{numbered(0)}'")  # fmt: skip
    wait_until(lambda: [n["unapplied_pins"] for n in fleet.status()["nodes"]] == [1, 1], 20, "the refusals")
    assert all("ttl" in n["pin_error"] and n["last_error"] == "" for n in fleet.status()["nodes"])


def test_lists_without_a_row_say_so(fleet):
    for verb, words in (
        (["pins"], "nothing is pinned\n"),
        (["release", "list"], "there is no release\n"),
        (["tune", "--dead"], "nothing is dead\n"),
    ):
        empty = fleet.cli.ok(*verb)
        assert (empty.out, empty.err) == ("", words), empty
        said = fleet.cli.ok(*verb, "--json")
        assert (said.json(), said.err) == ([], ""), said
    assert fleet.cli.ok("pins", "--csv").err == ""


def test_what_is_wrong_with_a_decision_is_said_by_its_name(fleet):
    for args, flag in (
        (["promote", "--reason", ""], "--reason"),
        (["promote", "--reason", "x" * 401], "--reason"),
        (["promote", "--reason", "x", "--author", "a\nb"], "--author"),
        (["promote", "--reason", "x", "--canary", "100%"], "--canary"),
        (["promote", "--reason", "x", "--canary", "a few"], "--canary"),
        (["rollback", "--reason", "x", "--", "-3"], "RELEASE"),
    ):
        result = fleet.cli("release", *args)
        assert result.code == 2 and flag in result.err, result
    assert fleet.cli("release", "promote").code == 2
    empty = fleet.cli("release", "rollback", "--reason", "x")
    assert empty.code == 1 and "there is none yet" in empty.err, empty


def test_a_pin_that_no_node_could_apply_is_refused_and_replaces_none(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    ran = fleet.candidates(numbered(0))[0]
    place = ("--environment", fleet.environment(), "--reason", "x")
    fleet.pin(numbered(0), ran)
    unknown = fleet.cli("pin", numbered(0), "graph:eng99,k2=3", *place)
    assert unknown.code == 1 and "graph:eng99,k2=3 must be one that the tuning lists and that ran" in unknown.err, unknown
    nothing = fleet.cli("pin", numbered(1), ran, *place)
    assert nothing.code == 3 and f"the fleet has no tuning of {numbered(1)}" in nothing.err, nothing
    assert [p["candidate"] for p in fleet.cli.ok("pins", "--json").json()] == [ran]


def test_status_counts_the_nodes_that_could_not_apply_a_pin(fleet, nodes):
    first, second = nodes(2)
    fleet.deliver(first, numbered(0))
    fleet.pin(numbered(0), fleet.candidates(numbered(0))[0])
    # Nothing was promoted: the second node does not know the problem.
    wait_until(lambda: fleet.node(second.node)["unapplied_pins"] == 1, 20, "a count")
    assert fleet.node(first.node)["unapplied_pins"] == 0
    status = fleet.cli.ok("status").out
    assert "1 pins, not applied on 1 nodes" in status and "pin 1: " in status, status
    fleet.serve([first, second])
    wait_until(lambda: fleet.node(second.node)["unapplied_pins"] == 0, 20, "the pin, once the problem is known")


def test_a_pin_that_a_later_ban_or_withdrawal_voids_counts_as_not_applied(fleet, nodes):
    daemons, winner = two_nodes_that_serve(fleet, nodes)
    other = next(c for c in fleet.candidates(numbered(0)) if c.startswith("graph:") and engine(c) != engine(winner))
    fleet.pin(numbered(0), other)
    wait_until(lambda: all(winners(d, [numbered(0)]) == [other] for d in daemons), 20, "the pin")

    def wait_unapplied(count, error):
        wait_until(lambda: all(fleet.node(d.node)["unapplied_pins"] == count for d in daemons), 20, "the counts")
        assert all(error in fleet.node(d.node)["pin_error"] for d in daemons)

    named = f"1 pin has no effect while the ban holds: {numbered(0)} in "
    assert named in fleet.cli.ok("ban", engine(other), "--reason", "y", "--dry-run").err
    wait_unapplied(0, "")
    assert named in fleet.cli.ok("ban", engine(other), "--reason", "y", "--wait", "20s").err
    wait_unapplied(1, f"pin 1: candidate: {other} is banned by bans/1: y")
    assert "; 1 pins, not applied on 2 nodes" in fleet.cli.ok("status").out
    fleet.cli.ok("ban", "delete", "1")
    wait_unapplied(0, "")
    gone = fleet.withdraw(numbered(0))
    assert f"pin 1 of {numbered(0)} has no effect where the node has no tuning of its own\n" in gone.err, gone
    wait_unapplied(1, "pin 1: the problem has no tuning here")


def test_a_tuning_that_cannot_be_read_keeps_no_other_pin_in_force(fleet, nodes):
    daemon, = nodes(1)
    damaged, other = numbered(0), numbered(1)
    fleet.release([daemon], damaged, other)
    environment = fleet.environment()
    before = winners(daemon, [other])
    for problem in (damaged, other):
        (won,) = winners(daemon, [problem])
        fleet.pin(problem, next(c for c in fleet.candidates(problem) if c != won))
    wait_until(lambda: winners(daemon, [other]) != before, 20, "the pins")
    with contextlib.closing(sqlite3.connect(daemon.state_dir / "convtune.db")) as database, database:
        changed = database.execute("UPDATE tunings SET checksum = checksum - 1 WHERE problem_text = ?", [damaged])
        assert changed.rowcount == 1
    fleet.cli.ok("unpin", other, "--environment", environment)
    wait_until(lambda: winners(daemon, [other]) == before, 20, "the end of the other pin")
    wait_until(lambda: "the checksum does not match" in fleet.node(daemon.node)["last_error"], 20, "the damage")


def test_the_first_release_is_taken_back_problem_by_problem(fleet, nodes):
    daemons = nodes(2)
    fleet.release(daemons, *PROBLEMS)
    before = winners(daemons[1], PROBLEMS)
    unknown = fleet.withdraw(PROBLEMS[0], numbered(77))
    assert unknown.code == 3 and "1 of 2" in unknown.err, unknown
    gone = fleet.withdraw(PROBLEMS[0])
    assert gone.code == 0 and gone.json()["changes"] == 1, gone
    took = fleet.wait_release(2, daemons)
    print(f"withdrawn from 2 nodes after {took:.2f} s")
    for daemon in daemons:
        assert winners(daemon, PROBLEMS) == [None, *before[1:]]
        assert publication(daemon).choice_count == 9
    # It does not come back by itself, and a node that starts does not have it.
    again = fleet.cli("release", "promote", "--reason", "again")
    assert again.code == 1 and "nothing to promote" in again.err, again
    late, = nodes(1, first=2)
    fleet.wait_release(2, [late.node])
    assert winners(late, PROBLEMS) == [None, *before[1:]]
    diff = fleet.cli.ok("release", "diff", "1", "2", "--json").json()["changes"]
    assert [(c["problem"], c["after"]) for c in diff] == [(PROBLEMS[0], "")] and diff[0]["before"] == before[0]
    fleet.serve(daemons, "it was good", "--all")
    assert winners(daemons[1], PROBLEMS) == before
    every = fleet.withdraw("--every-problem")
    assert every.code == 0 and every.json()["changes"] == 10, every
    fleet.wait_release(every.json()["release"], [*daemons, late])
    assert [winners(d, PROBLEMS) for d in (*daemons, late)] == [[None] * 10] * 3
    fleet.wait_release(fleet.rollback("it was good")["release"], daemons)
    assert winners(daemons[1], PROBLEMS) == before


def test_what_a_node_measured_after_a_withdrawal_is_its_own(fleet, nodes):
    daemon, = nodes(1)
    fleet.release([daemon], numbered(0))
    assert fleet.withdraw(numbered(0)).code == 0
    fleet.wait_release(2, [daemon.node])
    tune(daemon, numbered(0))
    wait_until(lambda: outbox_depth(daemon) == 0, 20, "a drained outbox")
    assert winners(daemon, [numbered(0)]) != [None] and origins(daemon, [numbered(0)]) == {"ORIGIN_LOCAL"}


def test_a_withdrawal_leaves_what_the_node_has_quarantined(fleet, nodes):
    """Else its worker would die of the same candidate again."""
    good, = nodes(1)
    faulty, = nodes(1, first=1, fault="segv", index=2, problem=numbered(0))
    tune(good, numbered(0))
    with faulty.client() as client:
        assert client.tune(numbered(0), options={"time_budget": {"seconds": 10}}).succeeded_count == 1
        deaths = client.tuning.ListDevices().devices[0].worker_deaths
        assert deaths > 0
    fleet.wait_delivered(2)
    fleet.serve([good, faulty])
    wait_until(lambda: origins(faulty, [numbered(0)]) == {"ORIGIN_FLEET"}, 20, "the fleet's choice")
    assert fleet.withdraw(numbered(0)).code == 0
    fleet.wait_release(2, [good, faulty])
    assert winners(faulty, [numbered(0)]) == [None]
    with faulty.client() as client:
        assert client.tune(numbered(0), options={"time_budget": {"seconds": 10}}).succeeded_count == 1
        assert client.tuning.ListDevices().devices[0].worker_deaths == deaths
        assert len(client.tuning.GetTuning(problem={"text": numbered(0)}).quarantine) == 1


def test_a_rollback_says_which_first_choices_stay_and_which_withdrawn_ones_return(fleet, nodes):
    daemon, = nodes(1)
    for problems in (PROBLEMS[:2], PROBLEMS[2:5]):
        fleet.release([daemon], *problems)
    first = fleet.cli("release", "rollback", "1", "--reason", "slow")
    assert first.code == 0 and first.err.startswith("3 problems keep their first choice, which came after release 1; `release withdraw`"), first
    assert "warning" not in first.err
    none = fleet.cli("release", "rollback", "--reason", "slower")
    assert none.code == 1 and "3 is as release 1, the first: name the number of another; `release withdraw`" in none.err, none
    assert fleet.withdraw(PROBLEMS[0]).json()["withdrawal"]
    again = fleet.cli("release", "rollback", "1", "--reason", "it was good")
    assert again.code == 0 and "warning: 1 choices that were withdrawn are served again; `release withdraw`" in again.err, again
    fleet.wait_release(5, [daemon])
    assert winners(daemon, PROBLEMS[:1]) != [None]
    assert [r["withdrawal"] for r in fleet.cli.ok("release", "list", "--json").json()] == [False, True, False, False, False]


def test_the_list_tells_a_canary_that_was_rolled_back_from_a_withdrawal(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, *PROBLEMS[:2])
    fleet.promote("try it", "--canary", "50%")
    assert fleet.cli.ok("release", "rollback", "--reason", "no good").out.startswith("fleet release 1: rolled back, ")
    fleet.promote()
    assert fleet.withdraw(PROBLEMS[0]).code == 0
    fleet.promote("it was good", "--all")
    rows = fleet.cli.ok("release", "list").out.splitlines()[1:]
    assert [re.split("  +", row.strip())[1] for row in rows] == ["promoted", "withdrawal", "promoted", "rolled back"]


def test_a_canary_is_drawn_among_living_nodes_and_one_that_dies_is_named(fleet, nodes):
    daemons = nodes(2)
    fleet.deliver(daemons[0], numbered(0))
    fleet.sql("INSERT INTO nodes (name, last_seen) SELECT 'dead-' || n, now() - interval '61 seconds' FROM generate_series(1, 96) n; "
              "INSERT INTO node_devices (node_id, device, environment_id, driver_version, current) "
              "SELECT node_id, 'gpu', environment_id, '', true FROM nodes, environments WHERE nodes.name LIKE 'dead-%'")  # fmt: skip
    made = fleet.cli.ok("release", "promote", "--reason", "x", "--canary", "3%", "--min-nodes", "1")
    assert "warning: 96 nodes were left out of the draw, since they are silent" in made.err, made
    (one,) = fleet.cli.ok("release", "list", "--json").json()
    (drawn,) = one["canary_nodes"]
    assert f"canary for 3% of the living nodes: {drawn}, 1 changes" in made.out and one["silent_canary_nodes"] == [], (made, one)
    fleet.wait_release(1, [drawn])
    assert "canary 3%  " in fleet.cli.ok("release", "list").out
    # It dies: nobody tries the canary any more.
    daemon, = [d for d in daemons if d.node == drawn]
    daemon.agent.kill()
    fleet.sql(f"UPDATE nodes SET last_seen = now() - interval '61 seconds' WHERE name = '{drawn}'")
    (one,) = fleet.cli.ok("release", "list", "--json").json()
    assert one["silent_canary_nodes"] == fleet.status()["silent_canary_nodes"] == [drawn]
    assert "canary 3%, 1 of 1 nodes silent" in fleet.cli.ok("release", "list").out
    assert f"canary 1, heeded by 1 of 1, silent {drawn}; " in fleet.cli.ok("status").out
    # The next draw, of another share, has the node that lives.
    (other,) = fleet.promote("anew", "--canary", "4%")["canary_nodes"]
    assert other != drawn and other in [d.node for d in daemons]
    fleet.rollback()
    for each in daemons:
        each.agent.close()
    fleet.sql("UPDATE nodes SET last_seen = now() - interval '61 seconds'")
    environment = fleet.environment()
    refused = fleet.cli("release", "promote", "--reason", "x", "--canary", "3%", "--min-nodes", "1")
    assert refused.code == 1 and f"--canary: every node of {environment}, which the release changes, is silent" in refused.err, refused
    assert fleet.number("SELECT COUNT(*) FROM releases") == 1, "nothing was promoted"


def test_a_decision_that_was_made_while_a_node_is_away_says_who_has_not_heeded_it(fleet, nodes):
    first, second = nodes(2)
    fleet.deliver(first, numbered(0))
    fleet.sql("INSERT INTO environments (text, name, gpu_model) VALUES ('other', 'other', 'other'); INSERT INTO nodes (name) VALUES ('other'); "
              "INSERT INTO node_devices (node_id, device, environment_id, driver_version, current) SELECT node_id, 'gpu', e.environment_id, '', "
              "true FROM nodes n JOIN environments e USING (name)")  # fmt: skip
    both = fleet.cli("release", "promote", "--reason", "x", "--wait", "20s", "--json")
    assert both.code == 0 and both.err.endswith("heeded by 2 of 2 living nodes that it concerns\n"), both
    assert (both.json()["heeded"], both.json()["concerned"], both.json()["missing"]) == (2, 2, [])
    fleet.deliver(first, numbered(1))
    second.agent.kill()
    late = fleet.cli("release", "promote", "--reason", "x", "--wait", "2s", "--json", "--canary", "99%")
    assert late.code == 5 and f"--wait: after 2s, not heeded by {second.node}; the decision stands" in late.err, late
    assert (late.json()["heeded"], late.json()["missing"], late.json()["silent"]) == (1, [second.node], [])
    assert "; fleet release 1, heeded by 2 of 2, canary 2, heeded by 1 of 2; " in fleet.cli.ok("status").out
    assert fleet.status()["canary_heeding"]["missing"] == [second.node]
    agent = fleet.agent(second.node, second)
    fleet.wait_release(2, [second.node])
    # A rollback is heeded by whoever does not serve the canary any more.
    agent.kill()
    back = fleet.cli("release", "rollback", "--reason", "x", "--wait", "2s")
    assert back.code == 5 and f"not heeded by {second.node};" in back.err, back
    table = fleet.cli.ok("release", "list", "--nodes").out.splitlines()
    # It still serves the canary, so not what all others do.
    assert all("  1 of 2  " in row and row.rstrip().endswith(f"  {second.node}") for row in table[1:]), table
    assert "NOT HEEDED BY" not in fleet.cli.ok("release", "list").out
    fleet.agent(second.node, second)
    wait_until(lambda: fleet.cli.ok("release", "list", "--json").json()[0]["heeded"] == 2, 20, "the rollback on the node that was away")
    # A withdrawal is heeded as a release is.
    gone = fleet.withdraw(numbered(0), "--wait", "20s")
    assert gone.code == 0 and gone.json()["heeded"] == 2, gone
    agent = fleet.agents[-1]
    agent.kill()
    fleet.promote("again", "--all")
    late = fleet.withdraw("--every-problem", "--wait", "2s")
    assert late.code == 5 and f"--wait: after 2s, not heeded by {second.node}; the decision stands" in late.err, late


def test_a_decision_that_is_taken_back_while_it_is_waited_for_does_not_stand(fleet, nodes):
    first, second = nodes(2)
    fleet.release([first, second], numbered(0))
    second.agent.process.send_signal(signal.SIGSTOP)
    withdrawn = ("release", "withdraw", numbered(0), "--environment", fleet.environment(), "--reason", "x")
    waiting = fleet.cli.start(*withdrawn, "--wait", "1h")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM releases") == 2, 20, "the withdrawal")
    fleet.rollback()
    second.agent.process.send_signal(signal.SIGCONT)
    gone = waiting()
    assert gone.code == 1 and "release 2 does not stand any more: bob went back to release 1, as release 3" in gone.err, gone
    fleet.wait_release(3, [first.node, second.node])
    # A canary that somebody rolls back; one that is promoted stands.
    fleet.deliver(first, numbered(1))
    second.agent.process.send_signal(signal.SIGSTOP)
    canary = ("release", "promote", "--reason", "x", "--canary", "99%", "--wait", "1h")
    waiting = fleet.cli.start(*canary)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM releases") == 4, 20, "the canary")
    fleet.rollback()
    gone = waiting()
    assert gone.code == 1 and "release 4 does not stand any more: bob rolled this canary back" in gone.err, gone
    waiting = fleet.cli.start(*canary)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM releases") == 5, 20, "the canary")
    fleet.promote("it is fine")
    second.agent.process.send_signal(signal.SIGCONT)
    assert waiting().code == 0


def test_a_first_canary_that_is_rolled_back_is_taken_from_its_nodes(fleet, nodes):
    daemons = nodes(2)
    first, second = daemons
    fleet.deliver(first, numbered(0))
    assert sorted(fleet.promote("try it", "--canary", "99%")["canary_nodes"]) == [d.node for d in daemons]
    fleet.wait_release(1, daemons)
    assert winners(second, [numbered(0)]) != [None] and origins(second, [numbered(0)]) == {"ORIGIN_FLEET"}
    second.agent.kill()
    late = fleet.cli("release", "rollback", "--reason", "no good", "--wait", "2s")
    assert late.code == 5 and f"not heeded by {second.node};" in late.err, late
    fleet.agent(second.node, second)
    fleet.wait_release(0, daemons)
    for daemon in daemons:
        assert winners(daemon, [numbered(0)]) == [None]
        assert publication(daemon).choice_count == 0
    assert fleet.cli.ok("release", "list", "--json").json()[0]["heeded"] == 2
    # What a fleet that was lost had decided stays where no release of this one says otherwise.
    fleet.serve(daemons, "it is good")
    fleet.sql("DELETE FROM release_choices; DELETE FROM releases")
    fleet.sql("NOTIFY convtune_fleet, 'release'")
    fleet.deliver(first, numbered(1))
    assert winners(second, [numbered(0)]) != [None]


def test_the_first_choices_of_a_canary_go_with_it(fleet, nodes):
    daemons = nodes(2)
    first, second = daemons
    fleet.deliver(first, numbered(0))
    fleet.serve(daemons, "first")
    kept = winners(second, [numbered(0)])
    fleet.deliver(first, numbered(1))
    fleet.promote("try it", "--canary", "99%")
    fleet.wait_release(2, daemons)
    assert winners(second, [numbered(1)]) != [None]
    # It serves a canary that was rolled back, and not release 1.
    first.agent.process.send_signal(signal.SIGSTOP)
    fleet.rollback()
    fleet.wait_release(1, [second.node])
    assert winners(second, [numbered(0), numbered(1)]) == [*kept, None]
    status = fleet.status()
    assert (status["promoted_heeding"]["heeded"], status["promoted_heeding"]["missing"]) == (1, [first.node]), status
    first.agent.process.send_signal(signal.SIGCONT)
    fleet.wait_release(1, daemons)
    assert fleet.status()["promoted_heeding"]["heeded"] == 2


def test_a_decision_that_concerns_no_node_is_not_waited_for(fleet, nodes):
    daemon, = nodes(1)
    releases_of_one_problem_each(fleet, daemon, 2)
    back = fleet.cli("release", "rollback", "--reason", "slow", "--wait", "1h", timeout=20)
    assert back.code == 0 and back.err.endswith("concerns no node\n"), back
    wrong = fleet.cli("release", "rollback", "--reason", "x", "--wait", "soon")
    assert wrong.code == 2 and "--wait: must be a positive time" in wrong.err and wrong.err.count("--wait") == 1, wrong


def test_guesses_are_not_promoted_unless_asked_for(fleet, nodes):
    daemon, = nodes(1)
    tune(daemon, numbered(0))
    tune(daemon, numbered(1))
    fleet.wait_delivered(2)
    fleet.sql("UPDATE pooled SET evidence = 10 WHERE problem_id = (SELECT problem_id FROM problems "
              f"WHERE text = '{numbered(1)}')")  # fmt: skip
    assert fleet.status()["waiting_changes"] == 1
    assert fleet.promote()["changes"] == 1
    left = fleet.cli("release", "promote", "--reason", "x")
    lesser = "1 changes whose evidence is less than measured (--min-evidence)"
    assert left.code == 1 and f"but {lesser}" in left.err, left
    assert fleet.cli.ok("release", "diff").err == f"0 changes, and {lesser}\n"
    assert f"; 0 changes wait for a promotion, and {lesser}; 0 pins" in fleet.cli.ok("status").out
    assert fleet.cli.ok("release", "diff", "--json").json()["lesser_evidence_count"] == 1
    assert fleet.cli.ok("release", "diff", "--min-evidence", "heuristic", "--json").json()["change_count"] == 1
    wrong = fleet.cli("release", "promote", "--reason", "x", "--min-evidence", "much")
    assert wrong.code == 2 and "--min-evidence" in wrong.err, wrong
    assert fleet.promote("guesses, too", "--min-evidence", "heuristic")["changes"] == 1


def test_a_canary_is_promoted_as_it_is_and_the_list_says_by_whom(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    fleet.promote("try it", "--canary", "50%")
    for flag in (["--all"], ["--min-nodes", "1"], ["--min-evidence", "heuristic"]):
        refused = fleet.cli("release", "promote", "--reason", "x", *flag)
        assert refused.code == 1 and f"{flag[0]}: canary 1 " in refused.err, refused
    fleet.cli.ok("release", "promote", "--author", "bob", "--reason", "it is good")
    one, = fleet.cli.ok("release", "list", "--json").json()
    assert (one["author"], one["login"], one["end_author"], one["end_login"]) == ("ann", "postgres", "bob", "postgres")
    row = fleet.cli.ok("release", "list").out.splitlines()[1]
    assert "ann (login postgres); promoted by bob (login postgres)" in row and "try it; it is good" in row, row


def releases_of_one_problem_each(fleet, daemon, count):
    for number in range(count):
        fleet.deliver(daemon, numbered(number))
        fleet.promote()


def test_a_promotion_takes_no_canary_that_came_after_the_look(fleet, nodes):
    daemon, = nodes(1)
    releases_of_one_problem_each(fleet, daemon, 1)
    fleet.deliver(daemon, numbered(1))
    looked = fleet.cli.ok("release", "diff")
    assert "`release promote --from 1` is refused where somebody decides before" in looked.err, looked
    assert fleet.cli.ok("release", "diff", "--json").json()["served"] == 1
    fleet.cli.ok("release", "promote", "--author", "bob", "--reason", "try it", "--canary", "50%")
    late = fleet.cli("release", "promote", "--author", "ann", "--reason", "more", "--from", "1")
    assert late.code == 1 and "--from: must be the release that the fleet serves, 2 by bob, is 1: somebody decided since" in late.err, late
    assert [(r["release"], r["state"]) for r in fleet.cli.ok("release", "list", "--json").json()] == [(2, "canary"), (1, "promoted")]
    assert fleet.promote("it is good", "--from", "2")["state"] == "promoted"


def test_two_rollbacks_at_once_go_back_once(fleet, nodes):
    daemon, = nodes(1)
    releases_of_one_problem_each(fleet, daemon, 3)
    done = fleet.at_once(*[("release", "rollback", "--author", "ann", "--reason", "slow")] * 2)
    assert [d.code for d in done] == [0, 1], done
    assert "must be the release that the fleet serves, 4 by ann, is 3" in done[1].err, done
    assert [r["restores"] for r in fleet.cli.ok("release", "list", "--json").json()] == [2, 0, 0, 0]


@pytest.mark.parametrize("verb", ("promote", "rollback"))
def test_who_looked_at_a_canary_decides_on_no_release_of_its_number(fleet, nodes, verb):
    """A canary keeps its number when it is promoted; the second would promote what came since, or go back behind it."""
    daemon, = nodes(1)
    releases_of_one_problem_each(fleet, daemon, 2)
    fleet.deliver(daemon, numbered(2))
    fleet.promote("try", "--canary", "50%")
    fleet.deliver(daemon, numbered(3))
    done = fleet.at_once(*(("release", each, "--author", "ann", "--reason", "slow") for each in ("promote", verb)))
    assert [d.code for d in done] == [0, 1], done
    assert "--from: must be the release that the fleet serves, 3 by ann, is canary 3: somebody decided since" in done[1].err, done
    states = [(r["release"], r["state"]) for r in fleet.cli.ok("release", "list", "--json").json()]
    assert states == [(3, "promoted"), (2, "promoted"), (1, "promoted")]


@pytest.mark.parametrize("verb", (("release", "diff"), ("release", "promote", "--reason", "x")))
def test_what_another_transaction_holds_is_said_not_to_be_pooled(fleet, nodes, verb):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    tune(daemon, numbered(1))
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM pool_queue") == 1, 20, "the second")
    # It does not decide, so it does not pool.
    assert fleet.status()["waiting_to_pool"] == 1
    session = Session(fleet.conninfo)
    session("BEGIN;")
    session("SELECT * FROM pool_queue FOR UPDATE;")
    said = fleet.cli.ok(*verb, timeout=20).err
    session.close()
    assert "warning: what nodes delivered last for 1 problems does not count yet: another transaction holds it" in said, said
    assert fleet.number("SELECT COUNT(*) FROM pooled") == 1
