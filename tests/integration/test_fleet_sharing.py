"""What one node measures gets to the fleet, and what the fleet released to every node."""

import re
import shutil
import socket
import struct
import subprocess
import time

import pytest

from harness.clock import WallClock
from harness.daemon import wait_until
from harness.fakes import script
from harness.fleet import origins, outbox_depth, tune, winners
from harness.postgres import Session
from harness.problems import numbered, numbered_list
from test_serving import keys_in, snapshot_of

ENVIRONMENT_ID = "(SELECT environment_id FROM environments LIMIT 1)"
TROUBLE = "notice   the fleet's agent of this node: "


def test_one_node_tunes_and_seven_have_it(fleet, nodes):
    daemons = nodes(8)
    problems = numbered_list(0, 5)
    fleet.deliver(daemons[0], *problems)
    assert winners(daemons[3], problems) == [None] * 5  # nothing before the promotion
    release = fleet.promote("first", "--min-nodes", "1")
    took = fleet.wait_release(release["release"], daemons)
    print(f"8 nodes serve the release {took:.2f} s after the promotion")
    expected = winners(daemons[0], problems)
    assert None not in expected
    for daemon in daemons[1:]:
        assert winners(daemon, problems) == expected
        assert origins(daemon, problems) == {"ORIGIN_FLEET"}
        with daemon.client() as client:
            published = client.release.GetPublication()
        assert published.choice_count == 5, published
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 5


def test_a_new_node_is_warm_before_its_first_request(fleet, nodes):
    first = nodes(1)[0]
    problems = numbered_list(0, 20)
    fleet.deliver(first, *problems)
    release = fleet.promote()["release"]
    late = nodes(1, first=1)[0]
    fleet.wait_release(release, [late.node])
    with late.client() as client:
        assert client.info().lookups == 0
    assert winners(late, problems) == winners(first, problems)
    with late.client() as client:
        assert client.info().hits == 20


@pytest.mark.ci
def test_a_node_starts_serves_and_tunes_while_the_fleet_is_down(fleet, nodes, cli):
    daemons = nodes(3)
    fleet.release(daemons, numbered(0))
    fleet.server.stop("immediate")
    try:
        late = nodes(1, first=3)[0]
        tune(late, numbered(10))
        for index, daemon in enumerate(daemons):
            tune(daemon, *numbered_list(20 + 10 * index, 3))
            assert winners(daemon, [numbered(0)]) != [None]
        assert outbox_depth(late) == 1
        for daemon in (daemons[0], late):
            wait_until(lambda d=daemon: TROUBLE in cli(d)("doctor").out, 60, "the agent's trouble")
            # It may name PostgreSQL's host and this node's login.
            assert re.search(rf"^{TROUBLE}(NAME|PATH)$", cli(daemon)("doctor", "--report").out, re.MULTILINE)
    finally:
        fleet.server.start()
    fleet.wait_delivered(1 + 1 + 9, timeout=90)
    everybody = [*daemons, late]
    wait_until(lambda: all(outbox_depth(d) == 0 for d in everybody), 60, "drained outboxes")
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 11
    release = fleet.promote("all of it", "--min-nodes", "1")["release"]
    fleet.wait_release(release, everybody, timeout=60)
    assert len({tuple(winners(d, [numbered(0), numbered(10), numbered(41)])) for d in everybody}) == 1
    assert TROUBLE not in cli(late)("doctor").out


def test_a_node_that_is_restored_from_an_old_backup_loses_and_doubles_nothing(fleet, nodes, tmp_path):
    daemon = nodes(1, agents=False)[0]
    tune(daemon, *numbered_list(0, 4))
    assert daemon.stop() == 0
    shutil.copytree(daemon.state_dir, tmp_path / "backup")
    daemon.start()
    agent = fleet.agent("node-0", daemon)
    fleet.wait_delivered(4)
    tune(daemon, *numbered_list(10, 3))
    tune(daemon, numbered(0), force=True)
    fleet.wait_delivered(7)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence") == 8, 20, "the forced one, too")
    newest = fleet.sql("SELECT digest FROM evidence WHERE current ORDER BY environment_id, problem_id")
    assert daemon.stop() == 0
    shutil.rmtree(daemon.state_dir)
    shutil.copytree(tmp_path / "backup", daemon.state_dir)
    daemon.start()
    # Those that waited in the backup come again; and the numbers that come next
    # were given to others before.
    fleet.deliver(daemon, *numbered_list(20, 6))
    wait_until(lambda: outbox_depth(daemon) == 0, 30, "a drained outbox")
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 14
    assert fleet.number("SELECT duplicate_count FROM nodes") >= 4
    kept = fleet.sql("SELECT digest FROM evidence WHERE current ORDER BY environment_id, problem_id")
    assert kept[:7] == newest
    assert agent.process.poll() is None


@pytest.mark.ci
def test_agents_that_are_killed_lose_and_double_nothing(fleet, nodes, long_run):
    daemon = nodes(1, agents=False)[0]
    rounds = 30 if long_run else 5
    for index in range(rounds):
        agent = fleet.agent("node-0", daemon)
        tune(daemon, *numbered_list(index * 10, 10))
        agent.kill()
    fleet.agent("node-0", daemon)
    fleet.wait_delivered(rounds * 10, timeout=90)
    wait_until(lambda: outbox_depth(daemon) == 0, 30, "a drained outbox")
    assert fleet.number("SELECT COUNT(*) FROM evidence") == rounds * 10


def test_what_commits_late_is_not_skipped(fleet, nodes):
    """Numbers are given in one order and become visible in another."""
    slow, quick = nodes(2)
    fleet.deliver(slow, numbered(0))
    fleet.sql(f"INSERT INTO problems (text) VALUES ('{numbered(1)}')")
    session = Session(fleet.conninfo)
    # The slow node's delivery gets its number, and then waits within its transaction.
    session("BEGIN;")
    session(
        "INSERT INTO pool_queue (environment_id, problem_id) SELECT "
        f"{ENVIRONMENT_ID}, problem_id FROM problems WHERE text = '{numbered(1)}';"
    )
    tune(slow, numbered(1))
    wait_until(
        lambda: fleet.number("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0,
        30, "a delivery that waits",
    )  # fmt: skip
    tune(quick, numbered(2))
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence") == 2, 30, "the quick node's")
    fleet.serve([quick], "the quick one's")
    session("ROLLBACK;")
    session.close()
    fleet.wait_delivered(3)
    late, = fleet.sql(
        "SELECT a.evidence_id < b.evidence_id FROM evidence a, evidence b, problems p, problems q WHERE "
        f"a.problem_id = p.problem_id AND p.text = '{numbered(1)}' AND "
        f"b.problem_id = q.problem_id AND q.text = '{numbered(2)}'"
    )
    assert late == ["t"], "the test did not provoke it"
    release = fleet.promote("and the slow one's")
    assert release["changes"] == 1
    fleet.wait_release(release["release"], [slow.node, quick.node])
    assert None not in winners(quick, numbered_list(0, 3))
    assert None not in winners(slow, numbered_list(0, 3))


@pytest.mark.ci
def test_clocks_that_are_off_by_a_day_change_nothing(fleet, fake_daemon, nodes, tmp_path):
    daemons = nodes(1)
    for index, offset in ((1, -86400), (2, 86400)):
        folder = tmp_path / f"clock-{index}"
        folder.mkdir()
        clock = WallClock(folder)
        clock.step(offset)
        daemon = fake_daemon(env={**clock.env, **script(seed=index)})
        daemon.node = f"node-{index}"
        daemons.append(daemon.start())
        fleet.agent(daemon.node, daemon, env=clock.env)
    for index, daemon in enumerate(daemons):
        tune(daemon, numbered(0), numbered(10 + index))
    fleet.wait_delivered(6)
    fleet.serve(daemons)
    problems = [numbered(0), *numbered_list(10, 3)]
    assert len({tuple(winners(d, problems)) for d in daemons}) == 1
    assert None not in winners(daemons[1], problems)
    # The node whose clock is behind tunes once more: its newest counts, whatever the clocks say.
    tune(daemons[2], numbered(0), force=True)
    tune(daemons[1], numbered(0), force=True)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence") == 8, 30, "both again")
    offsets = {n["name"]: n["clock_offset_seconds"] for n in fleet.status()["nodes"]}
    assert abs(offsets["node-0"]) < 100
    assert abs(offsets["node-1"] + 86400) < 100
    assert abs(offsets["node-2"] - 86400) < 100


def all_have(daemons, problems, expected, timeout=30):
    wait_until(lambda: all(winners(d, problems) == expected for d in daemons), timeout, "the same answers everywhere")


@pytest.mark.ci
def test_what_came_through_a_fleet_that_was_lost_is_in_the_next_one(fleet, nodes):
    daemons = nodes(2)
    problems = numbered_list(0, 8)
    tune(daemons[0], *problems[:4])
    tune(daemons[1], *problems[4:])
    fleet.wait_delivered(8)
    fleet.serve(daemons)
    expected = winners(daemons[0], problems)
    assert origins(daemons[0], problems) == {"ORIGIN_FLEET"}  # nothing of it is local any more
    fleet.lose()
    fleet.wait_delivered(8, timeout=40)
    assert fleet.number("SELECT COUNT(*) FROM pooled") == 8
    # Both nodes brought back the same: no evidence of two.
    assert fleet.sql("SELECT DISTINCT node_count FROM pooled") == [["1"]]
    assert fleet.promote("again")["changes"] == 8
    late, = nodes(1, first=2)
    fleet.wait_release(1, [*daemons, late])
    all_have([*daemons, late], problems, expected)
    # A node that never measured anything brings nothing back where nothing was lost.
    late.agent.stop()
    fleet.agent(late.node, late)
    wait_until(lambda: late.agent.log().count("connected as") == 2, 20, "the next agent")
    assert "are new to the fleet" not in late.agent.log()
    # What a node measures itself counts more than what came back.
    tune(daemons[0], problems[0], force=True)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM evidence WHERE NOT relayed") == 1, 20, "a tuning")
    fleet.wait_delivered(8)
    assert fleet.sql("SELECT node_count FROM pooled JOIN problems USING (problem_id) "
                     f"WHERE text = '{problems[0]}'") == [["1"]]  # fmt: skip
    assert fleet.cli.ok("release", "diff", "--all", "--json").json()["change_count"] == 1


@pytest.mark.ci
def test_a_fleet_restored_from_a_dump_gets_back_what_came_after_it(fleet, nodes):
    """The agents stay connected; numbers of releases are given a second time."""
    daemons = nodes(2)
    names = [d.node for d in daemons]
    old, new = numbered_list(0, 3), numbered_list(10, 3)
    fleet.deliver(daemons[0], *old)
    fleet.wait_release(fleet.promote("kept")["release"], names)
    dumped = fleet.dump()
    fleet.deliver(daemons[0], *new)
    fleet.wait_release(fleet.promote("lost")["release"], names)
    expected = winners(daemons[0], old + new)
    fleet.restore(dumped)
    assert fleet.number("SELECT COUNT(*) FROM releases") == 1
    fleet.wait_delivered(6, timeout=40)
    assert fleet.number("SELECT COUNT(*) FROM pooled") == 6, "what came after the dump"
    # Nodes still have what no release has; who looks sees it.
    for name in names:
        wait_until(lambda: fleet.node(name)["release_extra"] == 3, 20, "what differs")
        assert fleet.node(name)["release"] == 1 and fleet.node(name)["release_missing"] == 0
    assert " 1 +3 " in fleet.cli.ok("status").out
    assert fleet.promote("again")["release"] == 2
    late, = nodes(1, first=2)
    fleet.wait_release(2, [*names, late.node])
    all_have([*daemons, late], old + new, expected)
    for name in names:
        wait_until(lambda: fleet.node(name)["release_extra"] == 0, 20, "no difference")


@pytest.mark.ci
def test_a_fleet_restored_from_before_a_nodes_new_disk_gets_back_what_it_made_since(fleet, nodes):
    """The node's numbers began anew: what it delivered before is no measure of them."""
    daemon, = nodes(1)
    fleet.deliver(daemon, *numbered_list(0, 5))
    dumped = fleet.dump()
    assert daemon.agent.stop() == 0 and daemon.stop() == 0
    shutil.rmtree(daemon.state_dir)
    daemon.start()
    tune(daemon, *numbered_list(10, 2))
    fleet.agent(daemon.node, daemon)
    fleet.wait_delivered(7)
    wait_until(lambda: outbox_depth(daemon) == 0, 20, "a drained outbox")
    assert daemon.stop() == 0  # the epoch of those two is over, too
    daemon.start()
    fleet.restore(dumped)
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 5
    fleet.wait_delivered(7, timeout=40)


def test_a_fleet_that_lost_a_release_is_brought_everything_once(fleet, nodes):
    """However often the agent connects until there is a release again."""
    daemon, = nodes(1)
    fleet.release([daemon], *numbered_list(0, 3))
    fleet.lose()
    fleet.wait_delivered(3)
    wait_until(lambda: outbox_depth(daemon) == 0, 20, "a drained outbox")
    agent = fleet.agents[0]
    assert agent.log().count("are new to the fleet") == 1
    connections = agent.log().count("connected as")
    fleet.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'convtune-fleet' "
              "AND datname = current_database()")  # fmt: skip
    wait_until(lambda: agent.log().count("connected as") > connections, 30, "the next connection")
    assert agent.log().count("are new to the fleet") == 1


def test_misses_of_programs_with_another_cudnn_hold_nothing_up_and_are_no_misses_of_this_one(fleet, nodes):
    """The environments of all of them have one name."""
    daemon, = nodes(1)
    tune(daemon, numbered(0))
    snapshot = snapshot_of(daemon)
    wait_until(lambda: snapshot.exists() and keys_in(snapshot), 20, "a published choice")
    environment, problem = keys_in(snapshot)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for version in (91200, 91300):
            other = environment[:8] + struct.pack("<I", version) + environment[12:]
            body = struct.pack("<II", 2, 3)
            header = struct.pack("<4sHHII", b"CVTD", 1, 1, 448 + len(body), 1) + other + problem
            sender.sendto(header + body, str(snapshot.parent / "datagrams.sock"))
    with daemon.client() as client:
        wait_until(lambda: client.release.ListWanted().wanted_count == 2, 10, "two wanted problems")
    fleet.wait_delivered(1)
    fleet.deliver(daemon, numbered(10))
    seen = fleet.node(daemon.node)["tuning_count"]
    tune(daemon, numbered(20))
    wait_until(lambda: fleet.node(daemon.node)["tuning_count"] > seen, 20, "a heartbeat")
    fleet.wait_delivered(3)
    assert fleet.sql("SELECT * FROM wanted") == []
    assert fleet.node(daemon.node)["last_error"] == ""


def test_what_a_node_lost_of_a_release_comes_back_with_the_next(fleet, nodes):
    """Though neither that release nor the one before has it among its changes."""
    daemons = nodes(2)
    fleet.release(daemons, *numbered_list(0, 3))
    fleet.release(daemons, numbered(20))
    with daemons[1].client() as client:
        client.tuning.DeleteTuning(problems=[{"text": numbered(0)}])
    assert winners(daemons[1], [numbered(0)]) == [None]
    fleet.release(daemons, numbered(10))
    problems = [*numbered_list(0, 3), numbered(20), numbered(10)]
    all_have([daemons[1]], problems, winners(daemons[0], problems))
    assert "the daemon lacks 1 problems of fleet release 3" in daemons[1].agent.log()


def test_agents_register_again_where_the_tables_were_made_anew(fleet, nodes):
    """Under their feet: they stay connected, and their numbers are others' now."""
    daemons = nodes(2, agents=False)
    # Numbers 2 and 3 now, 1 and 2 then.
    fleet.sql("ALTER TABLE nodes ALTER COLUMN node_id RESTART WITH 2")
    for index, daemon in enumerate(daemons):
        fleet.agent(daemon.node, daemon)
        tune(daemon, *numbered_list(10 * index, 2))
    fleet.wait_delivered(4)
    fleet.lose()
    start = time.monotonic()
    fleet.wait_delivered(4)
    print(f"delivered again after {time.monotonic() - start:.1f} s")
    assert {i for i, in fleet.sql("SELECT node_id FROM nodes")} == {"1", "2"}
    for index, daemon in enumerate(daemons):
        problems = {p for p, in fleet.sql(
            "SELECT text FROM evidence JOIN problems USING (problem_id) JOIN nodes USING (node_id) "
            f"WHERE name = '{daemon.node}'")}  # fmt: skip
        assert problems == set(numbered_list(10 * index, 2))
    fleet.deliver(daemons[0], numbered(40))


def test_an_agent_whose_row_is_gone_registers_again(fleet, nodes):
    daemon, = nodes(1)
    wait_until(lambda: "connected as" in daemon.agent.log(), 20, "the agent")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM node_devices") > 0, 20, "a heartbeat")
    fleet.sql("DELETE FROM node_devices; DELETE FROM nodes")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM nodes WHERE name = 'node-0'") == 1, 20, "its row")
    fleet.deliver(daemon, numbered(0))


def test_the_daemon_and_the_command_line_do_not_know_libpq(convtuned, convtune, fleet):
    for program in (convtuned, convtune):
        assert "libpq" not in subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    assert "libpq" in subprocess.run(["ldd", fleet.binary], capture_output=True, text=True).stdout


def test_a_node_whose_database_is_damaged_has_the_fleets_tunings_again(fleet, nodes):
    """Put aside when the daemon starts; what the fleet released is pulled again, by the agent that ran all the time."""
    daemons = nodes(2)
    first, second = daemons
    problems = numbered_list(0, 12)
    tune(first, *problems[:6])
    tune(second, *problems[6:])
    fleet.wait_delivered(12)
    release = fleet.serve(daemons)
    expected = winners(first, problems)
    assert None not in expected
    first.stop()
    database = first.state_dir / "convtune.db"
    with open(database, "r+b") as file:
        file.seek(100)
        file.write(b"\x5a" * (database.stat().st_size - 100))
    first.start()
    assert len([p for p in first.state_dir.glob("convtune.db.corrupt-*") if p.suffix != ".db-wal"]) >= 1
    with first.client() as client:
        wait_until(lambda: client.fleet.GetFleetState().release == release, 30, "the fleet's release")
    assert winners(first, problems) == expected
    assert origins(first, problems) == {"ORIGIN_FLEET"}
    with first.client() as client:
        assert client.info().worker_requests == 0
        assert client.maintenance.CheckDatabase().ok
    # What it measures from now on gets to the fleet.
    fleet.deliver(first, numbered(100))
    # And it is on its disk: the agent is not asked again.
    first.agent.kill()
    first.stop()
    first.start()
    assert winners(first, problems) == expected


def test_a_node_whose_agent_is_silent_is_marked_and_its_daemon_says_so(fleet, nodes):
    daemon, = nodes(1)
    fleet.release([daemon], numbered(0))
    assert "silent" not in fleet.cli.ok("status").out

    def silence():
        with daemon.client() as client:
            return client.fleet.GetFleetState(observer=True).agent_silence.ToTimedelta().total_seconds()

    assert silence() < 5
    daemon.agent.kill()
    # Who looks on does not count as an agent.
    wait_until(lambda: silence() > 4, 20, "silence")
    outbox_depth(daemon)
    assert silence() < 2
    fleet.sql("UPDATE nodes SET last_seen = now() - interval '3 minutes'")
    status = fleet.cli.ok("status").out
    assert re.search(rf"^{daemon.node} +silent +3 min ", status, re.MULTILINE) and "1 nodes, 1 silent; fleet release 1" in status, status
