"""Tuning that idle nodes share."""

import json
import pathlib
import random
import re
import signal
import subprocess
import time

import grpc
import pytest

from harness.daemon import wait_until
from harness.problems import numbered, numbered_list


def write_list(fleet, problems):
    path = fleet.folder / "list.txt"
    path.write_text("\n".join(problems) + "\n")
    return path


def queue(fleet, problems, *args, budget="1s"):
    """Without waiting; returns the batch."""
    result = fleet.cli.ok("tune", "--file", write_list(fleet, problems), "--environment", fleet.environment(),
                          "--budget", budget, "--no-wait", "--json", *args)  # fmt: skip
    return result.json()["batch"]


def test_idle_nodes_share_a_list_and_its_progress_is_told(fleet, nodes):
    nodes(8, measure_delay_ms=2, seed=7)
    fleet.wait_nodes(8)
    problems = numbered_list(0, 40)
    # More time than a race takes on a loaded machine: nodes that were cut off would disagree.
    result = fleet.cli.ok("tune", "--file", write_list(fleet, problems), "--environment", fleet.environment(),
                          "--budget", "60s", "--json", "--reason", "a new model")  # fmt: skip
    summary = result.json()
    assert (summary["total"], summary["done"], summary["dead"], summary["open"]) == (40, 40, 0, 0)
    # Done is what the fleet has.
    assert fleet.number("SELECT COUNT(DISTINCT problem_id) FROM evidence WHERE current") == 40
    assert fleet.number("SELECT COUNT(DISTINCT node_id) FROM evidence") > 1
    assert measured_by(fleet) == {2}, "with the same seed they agree: two nodes each, and no third"


def measured_by(fleet):
    """How many nodes measured a problem, of all problems. Each delivery is a row: nobody measured twice."""
    rows = fleet.sql("SELECT COUNT(*), COUNT(DISTINCT node_id) FROM evidence GROUP BY problem_id")
    assert all(rows_of == nodes_of for rows_of, nodes_of in rows), rows
    return {int(count) for count, _ in rows}


@pytest.mark.parametrize("count, flags", [(3, ()), (4, ("--nodes", "1"))])
def test_in_a_small_fleet_or_where_one_is_enough_each_problem_is_tuned_once(fleet, nodes, count, flags):
    nodes(count)
    fleet.wait_nodes(count)
    fleet.cli.ok("tune", *numbered_list(0, 6), "--environment", fleet.environment(), "--budget", "1s", *flags)
    assert measured_by(fleet) == {1}


def test_where_two_nodes_disagree_a_third_measures(fleet, nodes):
    """Fakes with other seeds have other winners. The release has the problem already: it is measured all the same."""
    daemons = nodes(4)
    fleet.wait_nodes(4)
    problems = numbered_list(0, 8)
    fleet.deliver(daemons[0], *problems)
    fleet.serve(daemons, "first", "--min-nodes", "1")
    summary = fleet.cli.ok("tune", "--file", write_list(fleet, problems), "--environment", fleet.environment(), "--budget", "1s", "--json").json()
    assert (summary["done"], summary["open"]) == (8, 0)
    assert 3 in measured_by(fleet) <= {2, 3}
    wanted = dict(fleet.sql("SELECT problem_id, nodes_wanted FROM tasks"))
    measured = dict(fleet.sql("SELECT problem_id, COUNT(*) FROM evidence GROUP BY 1"))
    assert wanted == measured


@pytest.mark.ci
def test_a_watch_says_that_no_other_node_is_there_for_a_second_measurement(fleet, nodes):
    daemons = nodes(4, seed=7)
    fleet.wait_nodes(4)
    for daemon in daemons[1:]:
        daemon.agent.stop()
    fleet.sql("UPDATE nodes SET last_seen = now() - interval '1 hour' WHERE name <> 'node-0'")
    args = ("--environment", fleet.environment(), "--budget", "1s")
    alone = fleet.cli("tune", "--file", write_list(fleet, numbered_list(0, 3)), *args)
    assert alone.code == 1
    assert "0 of 3 tuned, 0 dead, 0 cancelled, 3 open" in alone.out
    assert "3 wait for another node than those that measured them, and none is heard of" in alone.out
    assert measured_by(fleet) == {1}
    again = fleet.cli("tune", "--file", write_list(fleet, numbered_list(0, 2)), *args)
    said = "every one of them is queued already, in batch 1; 2 wait for another node than those that measured them, and none is heard of"
    assert again.code == 1 and said in again.err, again
    as_json = fleet.cli("tune", numbered(0), *args, "--json")
    assert as_json.code == 1 and as_json.json() == {"batch": 0, "queued_in": [1], "lone": 1}
    fleet.agent("node-1", daemons[1])
    wait_until(lambda: fleet.node("node-1")["silent_seconds"] < 30, 20, "its heartbeat")
    fleet.cli.ok("tune", "--watch", 1)
    assert measured_by(fleet) == {2}


def test_the_weightiest_are_tuned_first(fleet, nodes):
    nodes(1, agents=False)
    daemon, = nodes(1, first=1)
    small, large = numbered(0), "fwd,x=64x256x56x56,w=256x256x3x3,pad=1,nhwc,f16"
    fleet.environment()
    daemon.agent.stop()
    batch = queue(fleet, [small, large])
    fleet.agent("node-1", daemon)
    fleet.cli.ok("tune", "--watch", batch)
    order = fleet.sql("SELECT t.weight FROM evidence JOIN tasks t USING (environment_id, problem_id) ORDER BY evidence_id")
    assert float(order[0][0]) > float(order[1][0])


@pytest.mark.ci
def test_a_problem_that_nobody_can_tune_is_dead_with_its_reasons(fleet, nodes):
    nodes(2, refused=1)
    problems = numbered_list(0, 1)
    result = fleet.cli("tune", "--file", write_list(fleet, problems), "--environment", fleet.environment(),
                       "--json", timeout=120)  # fmt: skip
    assert result.code == 1
    summary = result.json()
    assert (summary["done"], summary["dead"]) == (0, 1)
    dead, = summary["dead_letters"]
    assert dead["problem"] == problems[0]
    assert len(dead["reasons"]) == 3 and all(r.startswith("node-") and len(r) > 10 for r in dead["reasons"])
    assert problems[0] in fleet.cli.ok("tune", "--dead").out


def test_a_batch_that_is_cancelled_is_left_alone(fleet, nodes):
    daemon, = nodes(1)
    name = fleet.environment()
    daemon.agent.stop()
    batch = queue(fleet, numbered_list(0, 5))
    assert "5 cancelled" in fleet.cli.ok("tune", "--cancel", batch).out
    assert fleet.cli.ok("tune", "--cancel", batch, "--json").json() == {"batch": batch, "cancelled": 0, "open": 0}
    fleet.agent("node-0", daemon)
    again = fleet.cli.ok("tune", numbered(9), "--environment", name, "--json").json()
    assert again["done"] == 1
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 1


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_that_a_signal_ends_says_how_far_it_came(fleet, nodes, number):
    daemon, = nodes(1)
    fleet.environment()
    daemon.agent.stop()
    batch = queue(fleet, numbered_list(0, 3))
    watching = subprocess.Popen(
        [fleet.binary, "tune", "--watch", str(batch), "--json", "--postgres", fleet.conninfo],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    caught = re.compile(r"^SigCgt:\s*(\w+)$", re.MULTILINE)
    status = pathlib.Path(f"/proc/{watching.pid}/status")
    wait_until(lambda: int(caught.search(status.read_text())[1], 16) >> (number - 1) & 1, 20, "a handler")
    watching.send_signal(number)
    out, err = watching.communicate(timeout=20)
    assert watching.returncode == 1, err
    summary = json.loads(out)
    assert (summary["batch"], summary["total"], summary["done"], summary["open"]) == (batch, 3, 0, 3)


def test_what_is_queued_already_is_not_queued_again(fleet, nodes):
    daemon, = nodes(1)
    fleet.environment()
    daemon.agent.stop()
    queue(fleet, numbered_list(0, 3))
    batch = queue(fleet, numbered_list(0, 5))
    assert fleet.number(f"SELECT COUNT(*) FROM tasks WHERE batch_id = {batch}") == 2
    assert queue(fleet, numbered_list(0, 5)) == 0


def test_an_agent_that_ends_gives_its_work_back_at_once(fleet, nodes):
    first, = nodes(1, prepare_delay_ms=5000)
    batch = queue(fleet, numbered_list(0, 1), budget="5m")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks WHERE state = 2") == 1, 20, "a claim")
    assert first.agent.stop() == 0
    assert fleet.sql(f"SELECT state, lost_leases FROM tasks WHERE batch_id = {batch}") == [["1", "0"]]


@pytest.mark.ci
def test_a_task_of_tables_that_were_made_anew_is_not_taken_for_the_new_one(fleet, nodes):
    """Tasks and leases of the new tables have the same numbers."""
    nodes(1, prepare_delay_ms=3000)
    queue(fleet, [numbered(0)], budget="5m")
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM tasks WHERE state = 2") == 1, 20, "a claim")
    assert fleet.sql("SELECT task_id, lease_token FROM tasks") == [["1", "1"]]
    fleet.lose()
    batch = queue(fleet, [numbered(10)], budget="5m")
    fleet.cli.ok("tune", "--watch", batch, timeout=60)
    assert fleet.sql("SELECT task_id, lease_token, state FROM tasks") == [["1", "1", "3"]]
    assert fleet.number("SELECT COUNT(*) FROM task_failures") == 0
    assert [numbered(10)] in fleet.sql("SELECT text FROM evidence JOIN problems USING (problem_id)")


def test_the_tasks_of_one_environment_take_no_more_than_its_gpus(fleet, daemons, fake_worker, tmp_path):
    """A node with a GPU of each of two models: however weighty the tasks of one, the other's are tuned beside them."""
    names = [f"nvidia-test-{n},cc=9.0,sms=132,cudnn=9.19.0,lib=full" for n in "ab"]
    each = [f'env CONVTUNE_FAKE_SCRIPT="measure_delay_ms=0;environment={name}" {fake_worker}' for name in names]
    worker = tmp_path / "worker"
    worker.write_text(f"""#!/bin/sh
case "$*" in
*--probe*) {each[0]} --probe --devices 0; {each[1]} --probe --devices 1 ;;
*gpu:1*) exec {each[1]} "$@" ;;
*) exec {each[0]} "$@" ;;
esac
""")
    worker.chmod(0o755)
    daemon = daemons("--devices", "0,1", "--worker", worker).start()
    agent = fleet.agent("node-0", daemon)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM node_devices") == 2, 20, "both devices")
    agent.stop()
    fleet.sql("CREATE TABLE leased (environment_id integer, tasks bigint);"
              "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO leased SELECT environment_id, "
              "COUNT(*) FROM tasks WHERE state = 2 GROUP BY 1; RETURN NULL; END $$;"
              "CREATE TRIGGER look AFTER UPDATE ON tasks FOR EACH STATEMENT EXECUTE FUNCTION look()")  # fmt: skip
    large = [f"fwd,x={n}x256x56x56,w=256x256x3x3,pad=1,nhwc,f16" for n in (32, 64, 128)]
    batches = [
        fleet.cli.ok("tune", "--file", write_list(fleet, problems), "--environment", name, "--budget", "1s", "--no-wait", "--json").json()["batch"]
        for name, problems in zip(names, (large, [numbered(0)]), strict=True)
    ]
    fleet.agent("node-0", daemon)
    for batch in batches:
        fleet.cli.ok("tune", "--watch", batch)
    assert fleet.sql("SELECT MAX(tasks) FROM leased GROUP BY environment_id") == [["1"], ["1"]]


def filled(daemon):
    """Its queue takes no problem more. Returns what it says then."""
    start, count = 1000, 10_000
    with daemon.client() as client:
        while True:
            problems = [{"text": text} for text in numbered_list(start, count)]
            try:
                client.tuning.CreateTuningJob(problems=problems, timeout=60)
                start += count
            except grpc.RpcError as error:
                if count == 1:
                    return error
                count = 1


@pytest.mark.ci
@pytest.mark.parametrize("daemon_is", ["slow", "full"])
def test_a_daemon_that_takes_no_task_is_no_failure_of_the_problem(fleet, nodes, daemon_is):
    daemon, = nodes(1, measure_delay_ms=60_000 if daemon_is == "full" else 1)
    fleet.environment()
    daemon.agent.stop()
    batch = queue(fleet, [numbered(0)])
    # Whatever happens to the daemon within the claim happens before the agent's next call, that of the job.
    fleet.sql("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.state = 2 THEN PERFORM pg_sleep(5); END IF; "
              "RETURN NEW; END $$; CREATE TRIGGER wait BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION wait()")  # fmt: skip
    agent = fleet.agent("node-0", daemon)
    wait_until(lambda: fleet.number("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1, 20, "the claim")
    if daemon_is == "full":
        assert filled(daemon).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    else:
        daemon.process.send_signal(signal.SIGSTOP)
    assert fleet.number("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1, "too late"
    wait_until(lambda: fleet.sql("SELECT state, lease_token FROM tasks") == [["1", "1"]], 80, "the task, given back")
    assert fleet.number("SELECT failures + lost_leases + (SELECT COUNT(*) FROM task_failures) FROM tasks") == 0
    if daemon_is == "full":
        wait_until(lambda: "warning the queue is full" in agent.log(), 20, "a line that says why")
        return
    fleet.sql("DROP TRIGGER wait ON tasks")
    daemon.process.send_signal(signal.SIGCONT)
    fleet.cli.ok("tune", "--watch", batch, timeout=120)


def kills(fleet, daemons, count, problems, seed):
    """Kills agents and daemons that have claims, until all is tuned."""
    rng = random.Random(seed)
    agents = {d.node: d.agent for d in daemons}
    batch = queue(fleet, numbered_list(0, problems))
    done = 0
    while done < count:
        claimed = fleet.sql("SELECT DISTINCT name FROM tasks JOIN nodes USING (node_id) WHERE state = 2")
        if not claimed:
            progress = fleet.sql(f"SELECT COUNT(*) FROM tasks WHERE batch_id = {batch} AND state IN (1, 2)")
            if progress == [["0"]]:  # more work, for the kills that are left
                problems += 20
                batch = queue(fleet, numbered_list(problems - 20, 20))
            time.sleep(0.02)
            continue
        name = rng.choice(claimed)[0]
        daemon = next(d for d in daemons if d.node == name)
        agents[name].kill()
        if rng.random() < 0.5:
            daemon.kill()
            daemon.start()
        agents[name] = fleet.agent(name, daemon, "--lease", "1s")
        done += 1
    return problems


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.long)])
def test_nodes_that_are_killed_lose_no_problem(fleet, nodes, count):
    daemons = nodes(8, measure_delay_ms=5, agent_args=("--lease", "1s"))
    problems = kills(fleet, daemons, count, 40, seed=count)
    wait_until(
        lambda: fleet.number("SELECT COUNT(*) FROM tasks WHERE state IN (1, 2)") == 0, 180, "every problem tuned"
    )
    assert fleet.sql("SELECT state, COUNT(*) FROM tasks GROUP BY state") == [["3", str(problems)]]
    assert fleet.number("SELECT COUNT(DISTINCT problem_id) FROM evidence WHERE current") == problems
    assert fleet.number("SELECT COUNT(*) FROM task_failures WHERE NOT lost_lease") == 0


def test_what_is_wrong_with_a_list_is_said_and_nothing_is_queued(fleet, nodes):
    nodes(1)
    name = fleet.environment()
    bad = fleet.cli("tune", "--file", write_list(fleet, [numbered(0), "fwd,x=1"]), "--environment", name)
    assert bad.code == 2 and "list.txt:2" in bad.err, bad
    assert fleet.number("SELECT COUNT(*) FROM tasks") == 0
    assert fleet.cli("tune", numbered(0)).code == 2
    many = fleet.cli("tune", numbered(0), "--environment", name, "--nodes", 1001)
    assert many.code == 2 and "--nodes" in many.err and "1000" in many.err, many
    assert fleet.cli("tune", numbered(0), "--environment", "nvidia-none").code == 3
    assert fleet.cli("tune", "--watch", "99").code == 3


def test_the_command_line_forwards_to_the_program(fleet, convtune):
    env = {"CONVTUNE_POSTGRES": fleet.conninfo, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([convtune, "fleet", "status", "--json"], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and '"nodes":[]' in done.stdout, done
    assert subprocess.run([convtune, "fleet", "release", "promote"], capture_output=True, env=env).returncode == 2
