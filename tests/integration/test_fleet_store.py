"""The fleet's tables, and how they are reached."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import uuid

import pytest

from conftest import REPO, program
from harness import postgres
from harness.daemon import wait_until
from harness.fleet import tune
from harness.postgres import psql
from harness.problems import numbered


def test_the_store_does_what_its_unit_test_says(postgres_server, fleet):
    """fleet_store_test needs a server, so ctest does not run it."""
    done = subprocess.run(
        [program("fleet_store_test")], capture_output=True, text=True, timeout=300,
        env={**os.environ, "CONVTUNE_TEST_POSTGRES": postgres_server.database()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "SKIPPED" not in done.stdout
    assert int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1]) > 10


def test_migrating_again_and_at_the_same_time_does_nothing_twice(postgres_server, fleet):
    conninfo = postgres_server.database()
    command = [fleet.binary, "migrate", "--postgres", conninfo, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [p.communicate(timeout=60)[0] for p in both]
    assert [p.returncode for p in both] == [0] * 4
    # Whoever is first at one of them does it.
    migrations = len(list((REPO / "db/fleet/migrations").glob("*.sql")))
    assert sum(json.loads(s)["applied"] for s in said) == migrations, said


def test_without_tables_it_says_what_to_run(postgres_server, fleet):
    done = fleet.cli("status", "--postgres", postgres_server.database())
    assert done.code == 1 and "convtune-fleet migrate" in done.err, done


def test_credentials_come_from_a_file_for_its_owner_alone(fleet, tmp_path):
    file = tmp_path / "fleet.conf"
    file.write_text(fleet.conninfo + " password=secret\n")
    command = [fleet.binary, "status", "--json", "--postgres-file", file]
    file.chmod(0o644)
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "--postgres-file" in refused.stderr and "secret" not in refused.stderr
    file.chmod(0o600)
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_a_dump_is_restored_on_a_new_server_that_has_its_roles(postgres_server, fleet, tmp_path):
    """As fleet.md has it; without the roles nothing is changed."""
    mark = uuid.uuid4().hex[:8]
    roles = [f"agents_{mark}", f"operators_{mark}"]
    fleet.cli.ok("migrate", "--agent-role", roles[0], "--operator-role", roles[1])
    dump = tmp_path / "fleet.sql"
    new = postgres.Server()
    try:
        subprocess.run([postgres.programs() / "pg_dump", "--schema", "convtune", "--file", dump, fleet.conninfo], check=True)
        conninfo = new.database()
        page = (REPO / "deploy/docs/fleet.md").read_text()
        typed = re.search(r"^psql (.* )-f fleet.sql fleet$", page, re.MULTILINE)[1]
        command = ["psql", "-X", "-q", *shlex.split(typed), "-f", dump, conninfo]
        refused = subprocess.run(command, capture_output=True, text=True)
        assert refused.returncode != 0 and f'role "{roles[0]}" does not exist' in refused.stderr, refused
        assert psql(conninfo, "SELECT COUNT(*) FROM pg_namespace WHERE nspname = 'convtune'") == [["0"]]
        for role in roles:
            psql(conninfo, f"CREATE ROLE {role}")
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done
        assert fleet.cli.ok("status", "--postgres", conninfo).out.startswith("0 nodes; fleet release 0")
    finally:
        new.close()
        fleet.sql("".join(f"DROP OWNED BY {role}; DROP ROLE {role};" for role in roles))


def test_a_password_on_the_command_line_is_refused(fleet):
    for conninfo in ("host=/tmp password=secret", "postgresql://ann:secret@db/fleet"):
        done = subprocess.run([fleet.binary, "status", "--postgres", conninfo], capture_output=True, text=True)
        assert done.returncode == 2 and "--postgres:" in done.stderr and "secret" not in done.stderr, done


def test_an_option_wins_over_its_variable_in_every_verb(fleet):
    """Also in verbs of verbs, which have the option each."""
    for verb in (["status"], ["release", "list"], ["pins"]):
        done = fleet.cli(*verb, "--postgres", "host=/nonexistent")  # CONVTUNE_POSTGRES is good
        assert done.code == 4 and "/nonexistent" in done.err, done


@pytest.mark.parametrize("hosts", ["localhost", "/nonexistent,localhost"])
def test_over_tcp_the_server_must_prove_who_it_is(fleet, hosts):
    """Without a word about it sslmode is verify-full."""
    with socket.create_server(("localhost", 0)) as server:
        conninfo = f"host={hosts} port={server.getsockname()[1]} user=x dbname=x"
        running = subprocess.Popen(
            [fleet.binary, "status", "--postgres", conninfo], stderr=subprocess.PIPE, text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        )  # fmt: skip
        connection, _ = server.accept()
        with connection:
            assert len(connection.recv(8)) == 8  # SSLRequest
            connection.sendall(b"S")
            _, err = running.communicate(timeout=60)
    # It would have gone on with the handshake, if it had a certificate to check the server's by.
    done = subprocess.CompletedProcess(running.args, running.returncode, stderr=err)
    assert done.returncode == 4 and "root.crt" in done.stderr, done


@pytest.fixture
def pooler(postgres_server):
    """pooler(mode) starts PgBouncer before the server."""
    if shutil.which("pgbouncer") is None:
        pytest.skip("PgBouncer is not installed (deploy/install-deps --tests brings it)")
    made = []

    def start(mode):
        made.append(postgres.Pooler(postgres_server, mode))
        wait_until(lambda: (made[-1].folder / ".s.PGSQL.5432").exists(), 20, "PgBouncer's socket")
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_pooler_must_be_in_session_mode(fleet, pooler):
    """In transaction mode a command works while nobody else is there, and fails with some raw error beside others."""
    session = pooler("session").conninfo(fleet.conninfo)
    assert fleet.cli.ok("status", "--postgres", session).out.startswith("0 nodes; fleet release 0")
    pooled = pooler("transaction").conninfo(fleet.conninfo)
    for others in range(4):  # that the pooler has connections of the server for
        clients = [postgres.Session(pooled) for _ in range(others)]
        for client in clients:
            client("BEGIN;")
        for client in clients:
            client("COMMIT;")
        for verb in (["migrate"], ["status"]):
            refused = fleet.cli(*verb, "--postgres", pooled)
            assert refused.code == 1 and "(pgbouncer: pool_mode=transaction): use session mode" in refused.err, (others, refused)
        for client in clients:
            client.close()


def test_a_sequence_that_stands_behind_its_table_is_named_and_moved_on(fleet):
    """As after a restore of some tables. A number that is there must not read as a text that is there."""
    fleet.sql("INSERT INTO nodes (name) SELECT 'n' || n FROM generate_series(1, 5) n; ALTER TABLE nodes ALTER node_id RESTART;"
              "INSERT INTO distrusts (node, author, reason) VALUES ('n1', '', ''); ALTER TABLE distrusts ALTER distrust_id RESTART")  # fmt: skip
    distrust = ("node", "distrust", "n2", "--reason", "x")
    refused = fleet.cli(*distrust)
    assert refused.code == 1 and "the sequence of distrusts stands behind its rows" in refused.err, refused
    assert "`convtune-fleet migrate` moves it on" in refused.err
    fleet.cli.ok("migrate")
    # Once: a number that is free is not left out.
    fleet.cli.ok("migrate")
    assert fleet.number("INSERT INTO nodes (name) VALUES ('n6') RETURNING node_id") == 6
    fleet.cli.ok(*distrust)
    assert fleet.number("SELECT MAX(distrust_id) FROM distrusts") == 2


def test_a_key_that_no_sequence_gives_has_no_advice_about_one(fleet, nodes):
    """Of a release whose row is gone, as after a restore of some tables."""
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    fleet.promote()
    fleet.sql("ALTER TABLE release_choices DROP CONSTRAINT release_choices_release_number_fkey; DELETE FROM releases")
    refused = fleet.cli("release", "promote", "--reason", "x")
    assert refused.code == 1 and "release_choices_pkey" in refused.err and "sequence" not in refused.err, refused


def test_an_agent_names_the_sequence_that_keeps_it_from_delivering(fleet, nodes):
    daemon, = nodes(1, agents=False)
    tune(daemon, numbered(0))
    fleet.sql(f"INSERT INTO problems (text) VALUES ('{numbered(7)}'); ALTER TABLE problems ALTER problem_id RESTART")
    agent = fleet.agent(daemon.node, daemon)
    wait_until(lambda: "the sequence of problems stands behind its rows" in agent.log(), 20, "a line in the log")
    fleet.cli.ok("migrate")
    fleet.wait_delivered(1)


def test_whoever_waits_for_a_lock_says_whose_it_is(fleet, nodes):
    daemon, = nodes(1, agent_args=("--postgres-timeout", "8s"))
    wait_until(lambda: "connected as" in daemon.agent.log(), 20, "a connection")
    holder = postgres.Session(fleet.conninfo)
    process, = holder("BEGIN; LOCK TABLE nodes; SELECT pg_backend_pid();")
    says = f"waits for a lock (nodes) of process {process} (postgres, psql, idle in transaction)"
    refused = fleet.cli("status", "--postgres-timeout", "8s")
    assert refused.code == 1 and refused.err.startswith(f"PostgreSQL: {says}\n"), refused
    assert refused.err.splitlines()[1:] == [f"error: PostgreSQL: gave up {says.replace('waits', 'waiting')} after 4s"], refused
    wait_until(lambda: "PostgreSQL: gave up waiting for a lock after 4s" in daemon.agent.log(), 30, "a line in the agent's log")
    holder("ROLLBACK;")
    # A statement that takes long, and waits for nobody, is no news.
    assert fleet.cli.ok("status").err == ""
    holder.close()


def test_whoever_cannot_ask_whose_lock_it_is_says_why(fleet):
    fleet.sql("CREATE ROLE single LOGIN CONNECTION LIMIT 1; GRANT USAGE ON SCHEMA convtune TO single; "
              "GRANT SELECT ON ALL TABLES IN SCHEMA convtune TO single")  # fmt: skip
    holder = postgres.Session(fleet.conninfo)
    holder("BEGIN; LOCK TABLE nodes;")
    login = fleet.conninfo.replace("user=postgres", "user=single")
    refused = fleet.cli("status", "--postgres", login, "--postgres-timeout", "8s")
    holder("ROLLBACK; DROP OWNED BY single; DROP ROLE single;")
    holder.close()
    says, error = refused.err.splitlines()
    assert says.startswith("PostgreSQL: waits for a lock, or for the server itself; which is not known without a second connection: ")
    assert says.endswith('too many connections for role "single"'), says
    assert refused.code == 1 and error == "error: PostgreSQL: gave up waiting for a lock after 4s", refused


def test_what_was_pooled_and_is_gone_is_pooled_again(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0), numbered(1))
    pooled = fleet.sql("SELECT problem_id, winner, digest FROM pooled ORDER BY 1")
    fleet.sql("DELETE FROM pooled WHERE problem_id = (SELECT MIN(problem_id) FROM pooled)")
    assert fleet.cli.ok("release", "diff", "--json").json()["change_count"] == 2
    assert fleet.sql("SELECT problem_id, winner, digest FROM pooled ORDER BY 1") == pooled
    # What counts for nothing is not pooled each time.
    fleet.cli.ok("node", "distrust", daemon.node, "--reason", "x")
    fleet.cli.ok("release", "diff")
    assert fleet.number("SELECT COUNT(*) FROM pooled") == 0
    fleet.sql("CREATE TABLE seen (); CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO convtune.seen "
              "DEFAULT VALUES; RETURN NEW; END $$; CREATE TRIGGER see BEFORE INSERT ON pool_queue FOR EACH ROW EXECUTE FUNCTION see()")  # fmt: skip
    fleet.cli.ok("release", "diff")
    assert fleet.number("SELECT COUNT(*) FROM seen") == 0
    fleet.cli.ok("node", "trust", daemon.node)
    assert fleet.number("SELECT COUNT(*) FROM seen") == 2
