"""What an agent says of itself, to Prometheus and to `convtune fleet status`."""

import json
import re
import signal
import subprocess

import pytest

from harness import site
from harness.clock import WallClock
from harness.daemon import wait_until
from harness.fakes import script
from harness.fleet import tune
from harness.problems import numbered, numbered_list
from test_metrics import MONITORING, expressions, promtool, values  # noqa: F401


@pytest.fixture
def watched(fleet, nodes):
    """A daemon with an agent that has metrics; skips where it was built without."""
    daemon, = nodes(1, agent_args=("--metrics-address", "127.0.0.1:0"))
    wait_until(lambda: values(daemon.agent.scrape()).get("convtune_fleet_connected") == 1, 20, "a connection")
    return daemon


def test_an_agent_says_what_it_delivered_and_when_postgresql_answered(fleet, watched):
    fleet.deliver(watched, *numbered_list(0, 3))
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_delivered_total"] == 3, 20, "the count")
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_outbox_depth"] == 0, 20, "an empty outbox")
    now = values(watched.agent.scrape())
    assert now["convtune_fleet_outbox_lag_seconds"] == 0
    assert now["convtune_fleet_release"] == 0 and now["convtune_fleet_last_exchange_timestamp_seconds"] > 1.7e9
    fleet.promote()
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_release"] == 1, 20, "the release")


def test_an_agent_stops_writing_once_its_database_is_of_a_schema_that_it_does_not_know(fleet, watched):
    fleet.sql("INSERT INTO schema_migrations (version, name) VALUES (99, 'later')")
    first = fleet.node("node-0")["silent_seconds"]
    wait_until(lambda: fleet.node("node-0")["silent_seconds"] < first, 20, "a heartbeat: older programs can live with that one")
    fleet.sql("UPDATE fleet SET compatible_version = 99")
    tune(watched, numbered(0))
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_connected"] == 0, 20, "the refusal")
    words = "schema version 99, this program knows version 2: use a newer convtune-fleet"
    wait_until(lambda: words in watched.agent.log(), 20, "the agent looks again, and says why it is refused")
    failures = values(watched.agent.scrape())["convtune_fleet_failures_total"]
    written = fleet.sql("SELECT (SELECT COUNT(*) FROM evidence), MAX(last_seen) FROM nodes")
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_failures_total"] > failures + 1, 30, "two more turns")
    assert written[0][0] == "0"
    assert fleet.sql("SELECT (SELECT COUNT(*) FROM evidence), MAX(last_seen) FROM nodes") == written
    fleet.sql("UPDATE fleet SET compatible_version = 2")
    fleet.wait_delivered(1)


def test_a_node_that_an_older_primary_takes_back_says_so(fleet, watched):
    """A dump stands for the primary of before a failover, which does not know what was decided since."""
    fleet.deliver(watched, numbered(0))
    fleet.wait_release(fleet.promote()["release"], ["node-0"])
    older = fleet.dump()
    fleet.deliver(watched, numbered(1))
    fleet.wait_release(fleet.promote()["release"], ["node-0"])
    assert values(watched.agent.scrape())["convtune_fleet_went_back_total"] == 0
    fleet.restore(older)
    words = "this PostgreSQL does not know release 2, which the node served: it went back to release 1"
    wait_until(lambda: f"warning {words}" in watched.agent.log(), 30, "a warning")
    wait_until(lambda: words in fleet.node("node-0")["last_error"], 20, "a word in status")
    assert words in fleet.cli.ok("status").out
    assert values(watched.agent.scrape())["convtune_fleet_went_back_total"] == 1
    fleet.wait_delivered(2)
    fleet.wait_release(fleet.promote()["release"], ["node-0"])
    wait_until(lambda: not fleet.node("node-0")["last_error"], 20, "a release that was decided since")


def test_a_node_says_so_where_its_release_is_another_one_after_a_restore(fleet, watched):
    fleet.deliver(watched, numbered(0))
    before = fleet.dump()
    fleet.wait_release(fleet.promote("lost")["release"], ["node-0"])
    wait_until(lambda: values(watched.agent.scrape())["convtune_fleet_release"] == 1, 20, "the release")
    assert values(watched.agent.scrape())["convtune_fleet_went_back_total"] == 0
    # The agent sees nothing of what is done meanwhile, and holds no lock.
    watched.agent.process.send_signal(signal.SIGSTOP)
    fleet.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'convtune-fleet' AND datname = current_database()")
    fleet.restore(before)
    assert fleet.promote("another")["release"] == 1
    watched.agent.process.send_signal(signal.SIGCONT)
    words = "release 1 of this PostgreSQL is another one than the node served: it serves release 1 of this one now"
    wait_until(lambda: f"warning {words}" in watched.agent.log(), 30, "a warning")
    wait_until(lambda: words in fleet.node("node-0")["last_error"], 20, "a word in status")
    assert values(watched.agent.scrape())["convtune_fleet_went_back_total"] == 1


def test_status_has_no_error_of_before_the_agent_connected_again(fleet, nodes, postgres_server):
    daemon, = nodes(1, agents=False)
    agent = fleet.agent("node-0", daemon)
    agent.kill()
    agent.log_path.unlink()
    agent.command[agent.command.index("--refresh") + 1] = "10m"  # nothing but what is written at once
    agent.start(fleet.folder)
    wait_until(lambda: "connected as node-0" in agent.log(), 20, "a connection")
    postgres_server.stop("immediate")
    try:
        wait_until(lambda: " warning " in agent.log(), 30, "the error")
    finally:
        postgres_server.start()
    wait_until(lambda: "all is well again" in agent.log(), 60, "the connection again")
    wait_until(lambda: not fleet.node("node-0")["last_error"], 5, "no error of before")


def test_promtool_accepts_the_metrics(watched, promtool):  # noqa: F811
    result = subprocess.run([promtool, "check", "metrics"], input=watched.agent.scrape(), capture_output=True, text=True)
    complaints = [l for l in (result.stdout + result.stderr).splitlines() if l and not l.startswith("exposer_")]
    assert complaints == []


def test_rules_panels_and_pages_name_metrics_that_there_are(watched):
    there = set(re.findall(r"^# TYPE (\S+)", watched.agent.scrape(), re.MULTILINE))
    named = {name for _, expression in expressions() for name in re.findall(r"\bconvtune_fleet_\w+", expression)}
    assert named and named <= there
    page = set(re.findall(r"`(convtune_fleet_\w+)", (MONITORING / "README.md").read_text()))
    assert page <= there
    # Behind the agent's own are those of both programs.
    _, _, page = site.module().metrics().partition("## The fleet's agent's")
    listed = set(re.findall(r"^\| `(convtune_\w+)", page, re.MULTILINE))
    assert listed == {name for name in there if name.startswith("convtune_")}


def test_the_agents_log_has_the_daemons_form(fleet, nodes):
    """One reader takes both: the same fields as JSON, the same text, the same levels."""
    daemon, other = nodes(2, agents=False)
    text = fleet.agent("node-0", daemon)
    wait_until(lambda: "connected as node-0" in text.log(), 20, "a connection")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info connected as node-0\n", text.log())
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info ", daemon.log())
    second = fleet.agent("node-0", daemon, "--log-format", "json", env={"CONVTUNE_LOG_LEVEL": "info"})
    # Both write into one file.
    lines = wait_until(lambda: [json.loads(l) for l in second.log().splitlines() if l.startswith("{")], 20, "a line")
    assert set(lines[0]) == {"ts", "level", "message"} and lines[0]["level"] == "warning"
    assert "another agent speaks for node-0" in lines[0]["message"]
    text.stop()
    quiet = fleet.agent("node-1", other, "--log-level", "error")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM nodes WHERE name = 'node-1'") == 1, 20, "the node")
    assert quiet.stop() == 0 and quiet.log() == ""


def test_an_address_that_is_taken_is_named_with_its_flag(fleet, watched):
    taken = re.search(r"metrics at http://(\S+)/metrics", watched.agent.log())[1]
    second = fleet.agent("node-1", watched, "--metrics-address", taken)
    assert second.process.wait(30) == 1
    assert f"error: --metrics-address: cannot listen on {taken}: another program does, or" in second.log()


def test_an_address_that_is_none_is_refused(fleet):
    done = fleet.cli("agent", "--address", "unix:/nonexistent", "--metrics-address", "9465")
    assert done.code == 2 and "--metrics-address" in done.err, done


def test_thin_says_what_it_removed(fleet, nodes):
    daemon, = nodes(1)
    for _ in range(3):
        fleet.deliver(daemon, numbered(0), force=True)
    superseded = fleet.number("SELECT COUNT(*) FROM evidence WHERE NOT current")
    assert fleet.cli.ok("prune", "--json").json()["evidence"] == 0, "it is younger"
    fleet.sql("UPDATE evidence SET receive_time = now() - interval '91 days'")
    assert fleet.cli.ok("prune", "--json").json()["evidence"] == superseded
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 1
    assert fleet.cli("prune", "--keep", "soon").code == 2


def test_a_tuning_that_breaks_a_rule_is_counted_and_named(fleet, fake_daemon, cli, tmp_path):
    """The node's clock is before 1970, where no tuning can have been made."""
    clock = WallClock(tmp_path)
    clock.step(-60 * 366 * 86400)
    daemon = fake_daemon(env={**script(measure_delay_ms=0), **clock.env}).start()
    agent = fleet.agent("node-0", daemon, "--metrics-address", "127.0.0.1:0")
    tune(daemon, *numbered_list(0, 2))
    wait_until(lambda: values(agent.scrape())["convtune_fleet_refused_total"] == 2, 20, "the count")
    assert values(agent.scrape())["convtune_fleet_delivered_total"] == 0
    wait_until(lambda: values(agent.scrape())["convtune_fleet_outbox_depth"] == 0, 20, "an empty outbox")
    rule = "tune_time: must be a Timestamp from 1970 to now"
    for problem in numbered_list(0, 2):
        assert f"not delivered: {problem}: {rule}" in agent.log()
    error = wait_until(lambda: fleet.node("node-0")["last_error"], 20, "the node's error")
    assert error.startswith("2 tunings were refused, the last of ") and error.endswith(rule)
    assert f"2 tunings were refused by the fleet, the last of {numbered_list(0, 2)[1]}: {rule}" in cli(daemon)("doctor").out
