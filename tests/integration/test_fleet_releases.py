"""One choice everywhere, changed on purpose."""

import pytest

from harness.daemon import wait_until
from harness.problems import numbered, numbered_list
from test_fleet_sharing import outbox_depth, tune, winners

PROBLEMS = numbered_list(0, 10)


def publication(daemon):
    with daemon.client() as client:
        return client.release.GetPublication()


def second_opinion(fleet, daemons):
    """Release 1 of node 0's tunings; then two others measure the same, otherwise."""
    tune(daemons[0], *PROBLEMS)
    fleet.wait_delivered(10)
    fleet.wait_release(fleet.promote("first")["release"], [d.node for d in daemons])
    before = winners(daemons[0], PROBLEMS)
    for daemon in daemons[1:3]:
        tune(daemon, *PROBLEMS, force=True)
    fleet.wait_delivered(30)
    wait_until(lambda: all(outbox_depth(d) == 0 for d in daemons), 20, "drained outboxes")
    wait_until(lambda: all(winners(d, PROBLEMS) == before for d in daemons), 20, "the released choices")
    return before


def test_new_evidence_changes_nothing_until_it_is_promoted(fleet, nodes):
    daemons = nodes(3)
    before = second_opinion(fleet, daemons)
    diff = fleet.cli.ok("release", "diff", "--json").json()
    assert all(change["before"] and change["after"] != change["before"] for change in diff["changes"])
    assert [winners(d, PROBLEMS) for d in daemons] == [before] * 3


def test_a_bad_release_is_rolled_back_on_every_node(fleet, nodes):
    daemons = nodes(4)
    names = [d.node for d in daemons]
    before = second_opinion(fleet, daemons)
    bad = fleet.promote("a second opinion", "--all")
    fleet.wait_release(bad["release"], names)
    during = [winners(d, PROBLEMS) for d in daemons]
    assert during == [during[0]] * 4
    assert during[0] != before, "the test provoked no change"
    back = fleet.rollback("slower in production")
    assert back["restores"] == 1
    fleet.wait_release(back["release"], names)
    assert [winners(d, PROBLEMS) for d in daemons] == [before] * 4
    releases = fleet.cli.ok("release", "list", "--json").json()
    assert [(r["release"], r["author"], r["reason"]) for r in releases] == [
        (3, "bob", "slower in production"), (2, "ann", "a second opinion"), (1, "ann", "first"),
    ]  # fmt: skip
    for daemon in daemons:
        assert publication(daemon).waiting_changes == 0


def test_a_canary_is_served_by_its_share_alone_and_taken_back(fleet, nodes):
    daemons = nodes(8)
    names = [d.node for d in daemons]
    before = second_opinion(fleet, daemons)
    canary = fleet.promote("try it", "--canary", "50%", "--all")
    assert (canary["state"], canary["canary_permille"]) == ("canary", 500)
    # A digest of node and number draws them, so that they are the same in every run.
    chosen = wait_until(
        lambda: [n[0] for n in fleet.sql("SELECT name FROM nodes WHERE release_number = 2 ORDER BY name")],
        20, "a node that serves the canary",
    )  # fmt: skip
    fleet.wait_release(1, [n for n in names if n not in chosen])
    assert 0 < len(chosen) < 8
    fleet.wait_release(2, chosen)
    for daemon in daemons:
        assert (winners(daemon, PROBLEMS) == before) == (daemon.node not in chosen)
    withdrawn = fleet.rollback("no good")
    assert withdrawn["state"] == "withdrawn"
    fleet.wait_release(1, names)
    assert [winners(d, PROBLEMS) for d in daemons] == [before] * 8


@pytest.mark.ci
def test_a_canary_is_promoted_to_all(fleet, nodes):
    daemons = nodes(4)
    names = [d.node for d in daemons]
    before = second_opinion(fleet, daemons)
    fleet.promote("try it", "--canary", "0.5", "--all")
    promoted = fleet.promote("it is good")
    assert (promoted["release"], promoted["state"], promoted["end_author"]) == (2, "promoted", "ann")
    fleet.wait_release(2, names)
    after = [winners(d, PROBLEMS) for d in daemons]
    assert after == [after[0]] * 4 != [before] * 4


def test_nothing_is_promoted_where_nothing_changed(fleet, nodes):
    daemon, = nodes(1)
    tune(daemon, numbered(0))
    fleet.wait_delivered(1)
    fleet.promote()
    again = fleet.cli("release", "promote", "--reason", "again")
    assert again.code == 1 and "nothing to promote" in again.err, again
    assert fleet.number("SELECT COUNT(*) FROM releases") == 1


@pytest.mark.ci
def test_a_pin_overrides_until_it_ends(fleet, nodes):
    daemons = nodes(2)
    tune(daemons[0], numbered(0))
    fleet.wait_delivered(1)
    fleet.wait_release(fleet.promote()["release"], [d.node for d in daemons])
    winner, = winners(daemons[0], [numbered(0)])
    others = fleet.sql("SELECT text FROM pooled_candidates JOIN candidates USING (candidate_id) "
                       f"WHERE status = 1 AND text <> '{winner}' ORDER BY text")  # fmt: skip
    environment, = fleet.sql("SELECT text FROM environments")
    fleet.cli.ok("pin", numbered(0), others[0][0], "--environment", environment[0], "--reason", "a bug")
    wait_until(lambda: all(winners(d, [numbered(0)]) == others[0] for d in daemons), 20, "the pin")
    pins = fleet.cli.ok("pins", "--json").json()
    assert [(p["candidate"], p["reason"]) for p in pins] == [(others[0][0], "a bug")]
    fleet.cli.ok("unpin", numbered(0), "--environment", environment[0])
    wait_until(lambda: all(winners(d, [numbered(0)]) == [winner] for d in daemons), 20, "the end of the pin")
    fleet.cli.ok(
        "pin", numbered(0), others[0][0], "--environment", environment[0], "--reason", "for a while", "--ttl", "4s"
    )
    wait_until(lambda: winners(daemons[0], [numbered(0)]) == others[0], 20, "the pin")
    wait_until(lambda: all(winners(d, [numbered(0)]) == [winner] for d in daemons), 20, "its expiry")


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
