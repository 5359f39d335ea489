"""The fleet's tables, and how they are reached."""

import json
import os
import re
import shlex
import socket
import subprocess
import uuid

from conftest import REPO, program
from harness import postgres
from harness.postgres import psql


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
    done = subprocess.run(
        [fleet.binary, "status", "--postgres", postgres_server.database()], capture_output=True, text=True
    )
    assert done.returncode == 1 and "convtune-fleet migrate" in done.stderr, done


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


def test_over_tcp_the_server_must_prove_who_it_is(fleet):
    """Without a word about it sslmode is verify-full."""
    with socket.create_server(("localhost", 0)) as server:
        conninfo = f"host=localhost port={server.getsockname()[1]} user=x dbname=x"
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


def test_a_server_that_is_not_there_is_out_of_reach(fleet):
    done = subprocess.run([fleet.binary, "status", "--postgres", "host=/nonexistent"], capture_output=True, text=True)
    assert done.returncode == 4, done
