"""Bans of the fleet: made once, heeded by every node until they end."""

import json
import time

import pytest

from harness.daemon import unpublished, wait_until
from harness.fleet import tune, winners
from harness.problems import numbered, numbered_list
from test_bans import engine

PROBLEMS = numbered_list(0, 4)
WHY = ("--reason", "wrong results", "--author", "ann")


def kept(daemon):
    """The daemon's bans: (the fleet's number, candidate, reason)."""
    return [(b.fleet_ban, b.candidate, b.reason) for b in bans_of(daemon)]


def bans_of(daemon):
    """Those that did not come with convtune."""
    with daemon.client() as client:
        return [b for b in client.tuning.ListBans().bans if not b.shipped]


def wait_kept(daemon, expected, seconds=20):
    wait_until(lambda: kept(daemon) == expected, seconds, f"{expected} on {daemon.node}")


def banned_everywhere(daemons, number, candidate, reason="wrong results"):
    for daemon in daemons:
        wait_kept(daemon, [(number, f"graph:{candidate}", reason)])


def wait_turn(fleet, *daemons):
    """Until each agent has followed everything once more: what it counts is written at the begin of the next turn."""
    for _ in range(2):
        fleet.sql("UPDATE nodes SET unapplied_bans = 99")
        wait_until(lambda: all(fleet.node(d.node)["unapplied_bans"] != 99 for d in daemons), 20, "heartbeats")


@pytest.fixture
def released(fleet, nodes):
    """Two nodes that serve one release, and the engine that wins the first problem."""
    daemons = nodes(2)
    fleet.release(daemons, *PROBLEMS)
    return daemons, engine(winners(daemons[0], PROBLEMS)[0])


def test_a_ban_holds_on_every_node_until_it_is_deleted(fleet, nodes, released, cli):
    daemons, best = released
    before = winners(daemons[0], PROBLEMS)
    dry = fleet.cli.ok("ban", best, *WHY, "--dry-run", "--json").json()["created"][0]
    assert "fleetBan" not in dry["ban"] and fleet.number("SELECT COUNT(*) FROM bans") == 0
    made = fleet.cli.ok("ban", best, *WHY, "--json")
    (created,) = made.json()["created"]
    assert created["ban"]["fleetBan"] == "1" and "name" not in created["ban"]
    assert "fleet ban 1 bans graph:" in made.err
    assert created["changes"] == dry["changes"] and created["changeCount"] == dry["changeCount"]
    banned_everywhere(daemons, 1, best)
    # The nodes answer as the fleet foretold, and one that joins later does.
    after = {c["problemText"]: c["after"] for c in created["changes"]}
    assert all(c["before"] == w for c in created["changes"] for p, w in zip(PROBLEMS, before) if p == c["problemText"])
    expected = [after.get(problem, winner) for problem, winner in zip(PROBLEMS, before)]
    assert expected[0] != before[0]
    late, = nodes(1, first=2)
    fleet.wait_release(1, [late.node])
    for daemon in (*daemons, late):
        assert winners(daemon, PROBLEMS) == expected
    banned_everywhere([late], 1, best)
    run = cli(late)
    assert "is another for bans/1 (fleet ban 1: wrong results)" in run.ok("get", PROBLEMS[0]).err
    assert "by bans/1 (fleet ban 1: wrong results)" in run.ok("explain", PROBLEMS[0]).out
    assert "another winner for bans/1 (fleet ban 1: wrong results)" in run("doctor").out
    (row,) = [row for row in run.ok("ban", "list").out.splitlines() if "bans/1, fleet ban 1" in row]
    assert "wrong results" in row
    (listed,) = fleet.cli.ok("ban", "list", "--json").json()["bans"]
    assert (listed["fleetBan"], listed["author"], listed["login"]) == ("1", "ann", "postgres")
    assert "ann (login postgres)" in fleet.cli.ok("ban", "list").out
    # Each node tells the fleet in its next turn that it heeds the ban.
    wait_until(lambda: "; 1 bans\n" in fleet.cli.ok("status").out, 20, "a ban that every node heeds")
    deleted = fleet.cli.ok("ban", "delete", "1", "--author", "bob")
    assert deleted.err == "deleted fleet ban 1\n"
    for daemon in (*daemons, late):
        wait_kept(daemon, [])
        assert winners(daemon, PROBLEMS) == before
    told = "fleet ban 1 (wrong results) ends here: fleet ban 1 does not hold any more: bob deleted it"
    wait_until(lambda: told in daemons[0].agent.log(), 20, "who deleted it")
    assert fleet.sql("SELECT end_author, end_login, end_time IS NOT NULL FROM bans") == [["bob", "postgres", "t"]]
    assert fleet.cli.ok("ban", "list").err == "nothing is banned\n"
    assert fleet.cli("ban", "delete", "1").code == 3


def test_a_ban_needs_no_release_and_no_device(fleet, nodes, daemons):
    own, = nodes(1)
    tune(own, numbered(0))
    best, = winners(own, [numbered(0)])
    bare = daemons("--devices", "none")
    bare.start()
    bare.node = "bare"
    fleet.agent("bare", bare)
    fleet.cli.ok("ban", engine(best), *WHY)
    banned_everywhere([own, bare], 1, engine(best))
    assert winners(own, [numbered(0)]) not in ([best], [None])


def test_a_canary_and_the_other_nodes_heed_the_same_bans(fleet, nodes, released):
    daemons, best = released
    for daemon in daemons:
        tune(daemon, *PROBLEMS, force=True)
    fleet.wait_delivered(2 * len(PROBLEMS))
    drawn = fleet.promote("try it", "--canary", "47%", "--all")["canary_nodes"]
    fleet.wait_release(2, drawn)
    wait_turn(fleet, *daemons)
    assert len(drawn) == 1 and [fleet.node(d.node)["release"] for d in daemons] == [2 if d.node in drawn else 1 for d in daemons]
    served = {engine(w) for daemon in daemons for w in winners(daemon, PROBLEMS)}
    assert best in served
    fleet.cli.ok("ban", best, *WHY)
    banned_everywhere(daemons, 1, best)
    for daemon in daemons:
        assert all(engine(w) != best for w in winners(daemon, PROBLEMS))


def test_programs_are_served_the_releases_choices_again_when_a_ban_ends(fleet, released):
    daemons, best = released
    with daemons[1].client() as client:  # it has its tunings of the fleet
        published = client.release.GetPublication().publish_time
        made = fleet.cli.ok("ban", best, *WHY, "--json").json()["created"][0]["ban"]["fleetBan"]
        wait_until(lambda: client.release.GetPublication().publish_time != published, 40, "the next best")
        releases = len(client.release.ListReleases().releases)
        fleet.cli.ok("ban", "delete", made)
        wait_until(lambda: len(client.release.ListReleases().releases) > releases, 40, "the release once more")
        wait_until(lambda: client.release.ListReleases().waiting_changes == 0, 20, "nothing that waits")


@pytest.mark.ci
def test_a_ban_ends_when_it_expires(fleet, released):
    daemons, best = released
    before = winners(daemons[0], PROBLEMS)
    fleet.cli.ok("ban", best, *WHY, "--expires", "10s")
    banned_everywhere(daemons, 1, best)
    (ban,) = bans_of(daemons[0])
    assert 0 < ban.expire_time.seconds - time.time() < 11
    for daemon in daemons:
        wait_kept(daemon, [], 40)
        assert winners(daemon, PROBLEMS) == before
    # Then the same rule may be made again.
    fleet.cli.ok("ban", best, *WHY)
    banned_everywhere(daemons, 2, best)


def test_bans_outlive_agents_and_daemons_and_end_though_the_agent_was_away(fleet, released):
    (first, second), best = released
    before = winners(first, PROBLEMS)
    fleet.cli.ok("ban", best, *WHY)
    banned_everywhere([first, second], 1, best)
    first.agent.kill()
    assert first.stop() == 0
    first.start()
    assert kept(first) == [(1, f"graph:{best}", "wrong results")]
    assert winners(first, PROBLEMS) != before
    fleet.cli.ok("ban", "delete", "1")
    wait_kept(second, [])
    assert len(kept(first)) == 1
    first.agent = fleet.agent(first.node, first)
    wait_kept(first, [])
    assert winners(first, PROBLEMS) == before


def test_a_node_that_has_the_rule_of_its_own_counts_as_having_it(fleet, released, cli):
    (first, second), best = released
    cli(first).ok("ban", best, "--reason", "my own")
    fleet.cli.ok("ban", best, *WHY)
    banned_everywhere([second], 1, best)
    wait_turn(fleet, first, second)
    assert kept(first) == [(0, f"graph:{best}", "my own")]
    assert [fleet.node(d.node)["unapplied_bans"] for d in (first, second)] == [0, 0]
    refused = cli(second)("ban", best, "--reason", "mine, too")
    assert refused.code == 1 and "bans/1 (fleet ban 1: wrong results) has the same rule" in refused.err, refused
    # Without its own the node takes the fleet's.
    cli(first).ok("ban", "delete", "1")
    wait_kept(first, [(1, f"graph:{best}", "wrong results")])
    # The end of the fleet's leaves another of the node's own alone.
    cli(first).ok("ban", "legacy:algo7", "--reason", "my own")
    fleet.cli.ok("ban", "delete", "1")
    wait_kept(first, [(0, "legacy:algo7", "my own")])


def test_only_the_fleet_ends_its_bans_and_who_has_left_it(fleet, released, cli):
    (first, second), best = released
    fleet.cli.ok("ban", "legacy:algo7", *WHY)
    fleet.cli.ok("ban", "delete", "1")
    fleet.cli.ok("ban", best, *WHY)  # bans/N of a node and the fleet's number differ
    wait_until(lambda: [b[0] for b in kept(first)] == [2], 20, "the second ban")
    name = bans_of(first)[0].name.removeprefix("bans/")
    run = cli(first)
    refused = run("ban", "delete", name)
    assert refused.code == 1 and refused.err.count("\n") == 1, refused
    assert f"bans/{name} is fleet ban 2: `convtune fleet ban delete 2` ends it" in refused.err, refused
    assert f"`convtune ban delete {name} --fleet-ban 2`" in refused.err, refused
    other = run("ban", "delete", name, "--fleet-ban", "9")
    assert other.code == 1 and "is fleet ban 2" in other.err, other
    run.ok("ban", "legacy:algo6", "--reason", "mine")
    own = run("ban", "delete", str(int(name) + 1), "--fleet-ban", "2")
    assert own.code == 1 and "is this daemon's own" in own.err, own
    run.ok("ban", "delete", str(int(name) + 1))
    # While there is an agent it comes back; without one it does not.
    run.ok("ban", "delete", name, "--fleet-ban", "2")
    wait_until(lambda: [b[0] for b in kept(first)] == [2], 20, "the ban again")
    assert first.agent.stop() == 0
    name = bans_of(first)[0].name.removeprefix("bans/")
    run.ok("ban", "delete", name, "--fleet-ban", "2")
    assert kept(first) == []


def test_only_the_fleet_ends_its_pins_and_who_has_left_it(fleet, released, cli):
    (first, _), _ = released
    environment = fleet.environment()
    winner, = winners(first, PROBLEMS[:1])
    other = next(c for c in fleet.candidates(PROBLEMS[0]) if c != winner)
    fleet.pin(PROBLEMS[0], other)
    wait_until(lambda: winners(first, PROBLEMS[:1]) == [other], 20, "the pin")
    run = cli(first)
    (pin,) = run.ok("list", "--pins", "--json").json()["pins"]
    assert pin["fleetPin"] == "1"
    refused = run("unpin", PROBLEMS[0])
    everywhere = f"`convtune fleet unpin {PROBLEMS[0]} --environment '{environment}'` ends it everywhere"
    here = f"`convtune unpin {PROBLEMS[0]} --environment '{environment}' --fleet-pin 1`"
    assert refused.code == 1 and everywhere in refused.err and here in refused.err, refused
    assert first.agent.stop() == 0
    run.ok("unpin", PROBLEMS[0], "--fleet-pin", "1")
    assert winners(first, PROBLEMS[:1]) == [winner]
    # A pin of the operator's may say what the fleet's say: the agent leaves it alone.
    run.ok("pin", PROBLEMS[1], winners(first, PROBLEMS[1:2])[0], "--reason", "fleet pin 9 by ann: mine")
    fleet.cli.ok("unpin", PROBLEMS[0], "--environment", environment)
    first.agent = fleet.agent(first.node, first)
    wait_turn(fleet, first)
    (pin,) = run.ok("list", "--pins", "--json").json()["pins"]
    assert pin["reason"] == "fleet pin 9 by ann: mine" and "fleetPin" not in pin


@pytest.mark.ci
def test_a_restored_fleets_bans_are_followed_though_its_numbers_come_again(fleet, released):
    daemons, best = released
    before = winners(daemons[0], PROBLEMS)
    fleet.cli.ok("ban", "legacy:algo7", "--reason", "kept", "--author", "ann")
    for daemon in daemons:
        wait_kept(daemon, [(1, "legacy:algo7", "kept")])
    dumped = fleet.dump()
    fleet.cli.ok("ban", best, "--reason", "lost", "--author", "ann")
    for daemon in daemons:
        wait_kept(daemon, [(1, "legacy:algo7", "kept"), (2, f"graph:{best}", "lost")])
    fleet.restore(dumped)
    for daemon in daemons:
        wait_kept(daemon, [(1, "legacy:algo7", "kept")])
        lost = "fleet ban 2 (lost) ends here: fleet ban 2 does not hold any more: the fleet's database does not have it"
        wait_until(lambda daemon=daemon, lost=lost: lost in daemon.agent.log(), 20, "a line about the lost ban")
    fleet.cli.ok("ban", best, "--reason", "lost", "--author", "ann")
    for daemon in daemons:
        wait_kept(daemon, [(1, "legacy:algo7", "kept"), (2, f"graph:{best}", "lost")])
    fleet.restore(dumped)
    again = fleet.cli.ok("ban", "legacy:algo6", "--reason", "another", "--author", "ann", "--json").json()["created"][0]
    assert again["ban"]["fleetBan"] == "2", "the number was to come a second time"
    for daemon in daemons:
        wait_kept(daemon, [(1, "legacy:algo7", "kept"), (2, "legacy:algo6", "another")])
        assert winners(daemon, PROBLEMS) == before


def test_what_a_node_cannot_apply_is_counted_and_said(fleet, released):
    (first, second), best = released
    with first.client() as client:
        for n in range(1000):
            client.tuning.CreateBan(ban={"candidate": f"legacy:algo{n + 100}", "author": "a", "reason": "r"})
    fleet.cli.ok("ban", best, *WHY)
    banned_everywhere([second], 1, best)
    wait_until(lambda: fleet.node(first.node)["unapplied_bans"] == 1, 30, "a count")
    assert fleet.node(first.node)["ban_error"] == "fleet ban 1: ban: there are 1000 already"
    assert fleet.node(second.node)["unapplied_bans"] == 0
    status = fleet.cli.ok("status").out
    assert "; 1 bans, not applied on 1 nodes" in status and "fleet ban 1: ban: there are 1000 already" in status, status
    # A rule of a later program's: the others are followed all the same.
    decided = "".join(f"{len(text)}:{text}" for text in ("convtune fleet ban 1", "tile:5", "", "", "9", "0", "0", "ann", "x", ""))
    fleet.sql("INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, author, reason, digest) VALUES "
              f"('tile:5', '', '', 9, 0, 0, 'ann', 'x', sha256('{decided}'))")  # fmt: skip
    fleet.cli.ok("ban", "legacy:algo7", *WHY)
    wait_kept(second, [(1, f"graph:{best}", "wrong results"), (3, "legacy:algo7", "wrong results")])
    wait_until(lambda: fleet.node(second.node)["unapplied_bans"] == 1, 20, "a count")
    error = fleet.node(second.node)["ban_error"]
    assert error.startswith("fleet ban 2: ban.candidate: must be a candidate") and "ban.operation" in error, error
    listed = fleet.cli("ban", "list")
    assert listed.code == 1 and "fleet ban 2: ban.candidate" in listed.err and "legacy:algo7" in listed.out, listed


def test_a_ban_that_was_made_while_a_node_is_away_says_who_has_not_heeded_it(fleet, released):
    (first, second), best = released
    away, here = second.node, first.node
    second.agent.kill()
    late = fleet.cli("ban", best, *WHY, "--wait", "2s", "--json")
    assert late.code == 5 and f"--wait: after 2s, not heeded by {away}; the decision stands" in late.err, late
    assert "heeded by 1 of 2 living nodes that it concerns\n" in late.err and late.json()["created"][0]["ban"]["fleetBan"] == "1", late

    def listed():
        return [tuple(b[key] for key in ("heeded", "concerned", "missing", "silent")) for b in fleet.cli.ok("ban", "list", "--json").json()["bans"]]

    assert listed() == [(1, 2, [away], [])]
    fleet.sql(f"UPDATE nodes SET last_seen = now() - interval '61 seconds' WHERE name = '{away}'")
    assert listed() == [(1, 2, [], [away])]
    table = fleet.cli.ok("ban", "list", "--nodes").out
    assert "  1 of 2  " in table and f"{away} (silent)" in table and here not in table, table
    assert "1 of 2" in fleet.cli.ok("ban", "list").out and away not in fleet.cli.ok("ban", "list").out
    # A silent node is not waited for, and is named.
    done = fleet.cli("ban", "legacy:algo7", *WHY, "--wait", "20s")
    assert done.code == 0 and f"silent, and will heed it when they are back: {away}\n" in done.err, done
    assert "; 2 bans, 2 not heeded by every node" in fleet.cli.ok("status").out and fleet.status()["unheeded_bans"] == 2
    fleet.agent(away, second)
    wait_until(lambda: listed() == [(2, 2, [], [])] * 2, 20, "the bans on the node that was away")
    assert fleet.status()["unheeded_bans"] == 0
    # Its own rule that is the same counts; nobody at all does not.
    for daemon in (first, second):
        daemon.agent.close()
    for agent in fleet.agents:
        agent.close()
    fleet.sql("UPDATE nodes SET last_seen = now() - interval '61 seconds'")
    nobody = fleet.cli("ban", "legacy:algo6", *WHY, "--wait", "1s")
    assert nobody.code == 5 and "--wait: after 1s, no living node is concerned; the decision stands" in nobody.err, nobody
    for args, words in ((("--wait", "soon"), "--wait"), (("--wait", "1s", "--dry-run"), "--wait: cannot be given together with --dry-run")):
        wrong = fleet.cli("ban", "legacy:algo5", *WHY, *args)
        assert wrong.code == 2 and words in wrong.err, wrong


def test_a_ban_that_is_deleted_while_it_is_waited_for_does_not_stand(fleet, released):
    (first, second), best = released
    second.agent.kill()
    waiting = fleet.cli.start("ban", best, *WHY, "--wait", "1h")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM bans") == 1, 20, "the ban")
    fleet.cli.ok("ban", "delete", "1", "--author", "bob")
    gone = waiting()
    assert gone.code == 1 and "fleet ban 1 does not hold any more: bob deleted it" in gone.err, gone
    assert "the decision stands" not in gone.err
    expired = fleet.cli("ban", best, *WHY, "--expires", "3s", "--wait", "1h", timeout=60)
    assert expired.code == 1 and "fleet ban 2 does not hold any more: it has expired" in expired.err, expired


def test_of_several_bans_the_one_that_living_nodes_lack_is_waited_for(fleet, tmp_path):
    """Silent nodes have heeded it: the other ban is heeded by fewer nodes, and by all living ones."""
    nobody = fleet.cli("ban", "legacy:algo5", *WHY, "--wait", "1h", timeout=20)
    assert nobody.code == 0 and nobody.err.endswith("concerns no node\n"), nobody
    fleet.sql("INSERT INTO nodes (name, heeded_bans, last_seen) VALUES ('living', '{3}', now() + interval '1 hour'), "
              "('gone-1', '{2}', now() - interval '1 hour'), ('gone-2', '{2}', now() - interval '1 hour')")  # fmt: skip
    errata = tmp_path / "errata.json"
    rule = {"operation": "ConvFwd", "knob": [], "cudnn_version_start": 8000, "cudnn_version_end": -1}
    errata.write_text(json.dumps({"version": 1, "rules": [{**rule, "rule_id": str(n), "engine": n} for n in (2, 3)]}))
    made = fleet.cli("ban", "--errata", errata, *WHY, "--wait", "1s")
    assert made.code == 5 and "not heeded by living;" in made.err, made


def test_a_node_heeds_only_what_its_daemon_has_published(fleet, released):
    """Unmodified programs of the second node read the snapshot of before."""
    (first, second), best = released
    with unpublished(second):
        late = fleet.cli("ban", best, *WHY, "--wait", "5s")
        assert late.code == 5 and f"--wait: after 5s, not heeded by {second.node}; the decision stands" in late.err, late
        banned_everywhere([first, second], 1, best)
        assert fleet.withdraw(PROBLEMS[1]).code == 0
        fleet.wait_release(2, [first.node])
        with second.client() as client:
            wait_until(lambda: client.fleet.GetFleetState(observer=True).release == 2, 20, "the release in the daemon")
        wait_until(lambda: "Not a directory" in fleet.node(second.node)["last_error"], 20, "the daemon's reason")
        (ban,) = fleet.cli.ok("ban", "list", "--json").json()["bans"]
        assert (ban["heeded"], ban["concerned"], ban["missing"]) == (1, 2, [second.node])
        assert fleet.node(second.node)["release"] == 1 and fleet.status()["promoted_heeding"]["heeded"] == 1
        (row,) = [row for row in fleet.cli.ok("status").out.splitlines() if row.startswith(f"error of {second.node}: ")]
        assert "the snapshot is not up to date: " in row and "Not a directory" in row, row
        # A new agent does not know what was published, and does not say more than the one before.
        second.agent.kill()
        second.agent = fleet.agent(second.node, second)
        wait_turn(fleet, second)
        assert fleet.node(second.node)["release"] == 1
        assert fleet.sql(f"SELECT heeded_bans FROM nodes WHERE name = '{second.node}'") == [["{}"]]
    fleet.wait_release(2, [second.node])
    wait_until(lambda: fleet.status()["unheeded_bans"] == 0 and not fleet.node(second.node)["last_error"], 20, "the ban, too")


def test_releases_say_which_choices_a_ban_takes_away(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, *PROBLEMS)
    plain = fleet.cli.ok("release", "diff", "--json").json()["changes"]
    assert {c["fleet_ban"] for c in plain} == {0}
    best = engine(plain[0]["after"])
    hit = [c["problem"] for c in plain if engine(c["after"]) == best]
    fleet.cli.ok("ban", best, *WHY)
    marked = fleet.cli.ok("release", "diff", "--json").json()["changes"]
    assert {c["problem"] for c in marked if c["fleet_ban"] == 1} == set(hit)
    shown = fleet.cli.ok("release", "diff")
    assert shown.out.count(" (fleet ban 1)") == len(hit)
    said = f"{len(hit)} choice{' is' if len(hit) == 1 else 's are'} banned by fleet ban 1 (wrong results): nodes serve"
    assert said in shown.err, shown
    assert said in fleet.cli.ok("release", "promote", "--reason", "x").err
    # By the numbers of releases, too; and where the ban narrows down to another operation nothing is marked.
    assert fleet.cli.ok("release", "diff", "0", "1").out.count(" (fleet ban 1)") == len(hit)
    fleet.cli.ok("ban", "delete", "1")
    fleet.cli.ok("ban", best, "--op", "bwd_data", *WHY)
    assert "fleet ban" not in fleet.cli.ok("release", "diff", "0", "1").out


def test_what_is_wrong_with_a_ban_is_said_all_at_once(fleet, tmp_path):
    for args, code, parts in (
        ([], 2, ["give a PATTERN"]),
        (["eng1"], 2, ["--reason"]),
        (["eng1", *WHY, "--dtype", "f17"], 2, ["--dtype"]),
        (["eng1", *WHY, "--expires", "soon"], 2, ["--expires"]),
        (["eng1", *WHY, "--expires", "2020-01-31"], 2, ["ban.expire_time: must be at least 1 s"]),
        (["eng1", "--reason", "x", "--author", "a\nb"], 2, ["ban.author: must not hold control characters"]),
        (["x", *WHY, "--cudnn", "new", "--gpu", "a;b"], 2, ["ban.candidate: must be", "ban.cudnn: must be", "ban.gpu: must be"]),
        (["delete", "1", "--author", ""], 2, ["--author"]),
        (["delete", "7"], 3, ["there is no fleet ban 7"]),
        (["--reason", "why", "list"], 2, ["--reason: does not belong before list or delete"]),
    ):
        result = fleet.cli("ban", *args)
        assert result.code == code and all(part in result.err for part in parts), result
    assert fleet.number("SELECT COUNT(*) FROM bans") == 0
    fleet.cli.ok("ban", "eng1", *WHY)
    same = fleet.cli("ban", "graph:eng1", *WHY)
    assert same.code == 1 and "fleet ban 1 (wrong results) has the same rule" in same.err, same


def test_errata_are_read_and_written(fleet, tmp_path):
    rules = [
        {"rule_id": "bad", "operation": "ConvFwd", "engine": 7, "knob": ["k2=3"], "cudnn_version_start": 91200,
         "cudnn_version_end": 92000},
        {"rule_id": "shape", "operation": "ConvFwd", "engine": 1, "input_shape": [1, 1, 1, 1]},
    ]  # fmt: skip
    path = tmp_path / "errata.json"
    path.write_text(json.dumps({"version": 1, "rules": rules}))
    result = fleet.cli("ban", "--errata", path)
    assert result.code == 1 and "rule 2 (shape) is not taken" in result.err, result
    assert "fleet ban 1 (errata: bad) has the same rule" in fleet.cli("ban", "--errata", path).err
    (rule,) = fleet.cli.ok("ban", "list", "--errata").json()["rules"]
    assert rule.pop("rule_id") == "fleet ban 1: errata: bad"
    assert rule == {k: v for k, v in rules[0].items() if k != "rule_id"}
