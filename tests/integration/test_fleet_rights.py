"""What the role of agents may do on each table: every statement, on a fleet that has a row of everything."""

import subprocess

import pytest

from harness.postgres import Session, psql
from test_fleet_roles import logins  # noqa: F401

# What else than reading an agent may do, of its own node's rows alone for UPDATE and DELETE. A
# table that is not here fails.
MAY = {
    "schema_migrations": set(), "fleet": set(), "upkeep": set(), "pool_queue": set(),
    "pooled": set(), "pooled_payloads": set(), "releases": set(), "release_choices": set(), "pins": set(), "bans": set(),
    "distrusts": set(),
    "environments": {"INSERT"}, "problems": {"INSERT"}, "provenances": {"INSERT"}, "batches": {"INSERT"},
    "task_failures": {"INSERT"}, "nodes": {"INSERT", "UPDATE"}, "node_epochs": {"INSERT", "UPDATE"},
    "node_devices": {"INSERT", "UPDATE"}, "evidence": {"INSERT", "UPDATE"}, "tasks": {"INSERT", "UPDATE"},
    "wanted": {"INSERT", "DELETE"},
}  # fmt: skip
COLUMNS = {
    "evidence": {"current", "payload"},
    "tasks": {"state", "failures", "lost_leases", "node_id", "lease_token", "lease_until", "not_before", "end_time",
              "nodes_wanted", "tuned_by"},
}  # others: all of the table
# What an agent may not change of its own node: under another name it would be trusted again.
FIXED = {"nodes": {"node_id", "name", "create_time", "forget_time"}}
FUNCTIONS = {"queue_pooling", "thin_is_due", "thin", "forget_node"}

# A row of everything, of another node than the agent's: `mine` is the agent's, `theirs` another login's.
ROWS = """
INSERT INTO environments (text, name, gpu_model) VALUES ('e', 'e', 'e');
INSERT INTO problems (text) VALUES ('p'), ('q');
INSERT INTO nodes (name, login) VALUES ('mine', '{login}'), ('theirs', 'ann');
INSERT INTO node_epochs (node_id, epoch, ordinal, last_sequence) SELECT node_id, 1, 1, 1 FROM nodes;
INSERT INTO node_devices (node_id, device, environment_id, driver_version, current) SELECT node_id, 'd', 1, '1', true FROM nodes;
INSERT INTO provenances (node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, memory_bytes)
  SELECT node_id, '', '', '', '', '', 0 FROM nodes;
INSERT INTO evidence (node_id, epoch_ordinal, sequence, environment_id, problem_id, provenance_id, evidence, full_listing, clean,
  current, digest, payload) SELECT node_id, 1, 1, 1, 1, provenance_id, 40, true, true, true, decode(repeat('ab', 16), 'hex'), ''
  FROM provenances;
INSERT INTO wanted (environment_id, problem_id, node_id, misses) SELECT 1, 1, node_id, 1 FROM nodes;
INSERT INTO pool_queue (environment_id, problem_id) VALUES (1, 1);
INSERT INTO pooled_payloads VALUES (decode(repeat('ab', 16), 'hex'), '');
INSERT INTO pooled (environment_id, problem_id, candidates, lows_us, node_count, evidence, digest, report_rows)
  SELECT 1, 1, '{{}}', '{{}}', 1, 40, digest, '' FROM pooled_payloads;
INSERT INTO releases (release_number, state, canary_permille, change_count, author, reason) VALUES (1, 1, 0, 1, 'ann', 'x');
INSERT INTO release_choices (environment_id, problem_id, release_number, node_count, evidence, digest)
  SELECT 1, 1, 1, 1, 40, digest FROM pooled_payloads;
INSERT INTO pins (environment_id, problem_id, candidate, author, reason) VALUES (1, 1, 'c', 'ann', 'x');
INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, author, reason) VALUES ('c', '', '', 0, 0, 0, 'ann', 'x');
INSERT INTO distrusts (node, author, reason) VALUES ('mine', 'ann', 'x');
INSERT INTO batches (kind, author, reason, budget_ms) VALUES (1, 'ann', 'x', 1);
INSERT INTO tasks (batch_id, environment_id, problem_id, weight, state, node_id, lease_until)
  SELECT 1, 1, node_id, 1, 2, node_id, now() + interval '1 hour' FROM nodes;
INSERT INTO task_failures (task_id, attempt, node_id, lost_lease, reason) SELECT task_id, 1, node_id, false, 'x' FROM tasks;
"""


@pytest.fixture
def agent(fleet, logins):  # noqa: F811
    """say(statement) runs it as an agent and takes it back: PostgreSQL's error, or how many rows it changed."""
    conninfo = logins["node"]
    login = conninfo.split("user=")[1].split()[0]
    fleet.sql(ROWS.format(login=login))

    session = Session(conninfo)
    session("\\set ON_ERROR_STOP off\n\\set QUIET off")

    def say(statement):
        said = session(f"BEGIN;\n{statement};\nROLLBACK;")
        if any(line.startswith("ERROR:") for line in said):
            return "\n".join(said)
        return int(next(line for line in said if line.split()[0] in ("INSERT", "UPDATE", "DELETE")).split()[-1])

    yield say
    session.close()


def tables(fleet):
    return [row[0] for row in fleet.sql("SELECT relname FROM pg_class WHERE relnamespace = 'convtune'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1")]


def denied(said):
    return isinstance(said, str) and "permission denied" in said


def test_agents_may_on_each_table_what_is_listed_and_nothing_else(fleet, agent, logins):  # noqa: F811
    assert set(tables(fleet)) == set(MAY), "list the new table here"
    for table in tables(fleet):
        # One that PostgreSQL numbers itself may be set to DEFAULT alone.
        columns = dict(fleet.sql(f"SELECT attname, CASE attidentity WHEN '' THEN attname ELSE 'DEFAULT' END FROM pg_attribute "
                                 f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"))  # fmt: skip
        rows = fleet.number(f"SELECT COUNT(*) FROM {table}")
        assert rows > 0, f"{table}: nothing would be changed"
        assert denied(agent(f"TRUNCATE {table} CASCADE")), table
        assert psql(logins["node"], f"SELECT COUNT(*) FROM {table}") == [[str(rows)]], table
        # Rows of its own node are half of a node's rows.
        own = rows // 2
        said = agent(f"DELETE FROM {table}")
        assert said == own if "DELETE" in MAY[table] else denied(said), (table, said)
        said = agent(f"INSERT INTO {table} DEFAULT VALUES")
        assert denied(said) == ("INSERT" not in MAY[table]), (table, said)
        for column, value in columns.items():
            said = agent(f"UPDATE {table} SET {column} = {value}")
            if "UPDATE" in MAY[table] and column in COLUMNS.get(table, set(columns) - FIXED.get(table, set())):
                assert said == own or (value == "DEFAULT" and not denied(said)), (table, column, said)
            else:
                assert denied(said), (table, column, said)


def test_an_agent_adds_and_takes_no_rows_of_another_logins_node(fleet, agent):
    theirs = "(SELECT node_id FROM nodes WHERE name = 'theirs')"
    mine = "(SELECT node_id FROM nodes WHERE name = 'mine')"
    for statement in (
        "INSERT INTO nodes (name, login) VALUES ('new', 'ann')",
        "INSERT INTO nodes (name) VALUES ('new')",
        "UPDATE nodes SET login = 'ann' WHERE name = 'mine'",
        "INSERT INTO nodes (name, login, forget_time) VALUES ('new', session_user, now())",
        f"INSERT INTO wanted (environment_id, problem_id, node_id, misses) VALUES (1, 2, {theirs}, 1)",
        f"UPDATE node_epochs SET node_id = {theirs}, ordinal = 2, epoch = 2",
        f"INSERT INTO node_epochs (node_id, epoch, ordinal, last_sequence) VALUES ({theirs}, 2, 2, 1)",
        f"UPDATE tasks SET node_id = {theirs} WHERE node_id = {mine}",
    ):
        said = agent(statement)
        assert isinstance(said, str) and "row-level security" in said, (statement, said)
    assert agent(f"UPDATE tasks SET state = 3 WHERE node_id = {theirs}") == 0
    assert agent("UPDATE nodes SET last_error = 'x' WHERE name = 'theirs'") == 0
    assert agent("INSERT INTO nodes (name, login) VALUES ('new', session_user)") == 1
    # One that nobody has taken yet.
    fleet.sql("UPDATE nodes SET login = NULL WHERE name = 'theirs'")
    assert agent("UPDATE nodes SET login = session_user WHERE name = 'theirs'") == 1


def test_agents_may_call_what_is_listed_and_it_finds_the_fleets_tables_alone(fleet, agent, logins):  # noqa: F811
    known = fleet.sql("SELECT proname, prosecdef, proconfig::text FROM pg_proc WHERE pronamespace = 'convtune'::regnamespace")
    assert {name for name, *_ in known} == FUNCTIONS, "list the new function here"
    for name, as_owner, settings in known:
        assert as_owner == "t" and "search_path=convtune, pg_temp" in settings, (name, settings)
    psql(logins["node"], "CREATE TEMP TABLE pool_queue (LIKE pool_queue INCLUDING ALL); SELECT queue_pooling('{1}', '{2}')")
    assert fleet.number("SELECT COUNT(*) FROM pool_queue") == 2
    for call in ("queue_pooling('{1}', '{1}')", "thin('1 day', 1)", "thin_is_due()", "forget_node(1)"):
        done = subprocess.run(
            ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", f"SELECT convtune.{call}", logins["nobody"]], capture_output=True, text=True
        )
        assert "permission denied" in done.stderr, (call, done)
    denied_to_agents = subprocess.run(
        ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", "SELECT convtune.forget_node(1)", logins["node"]], capture_output=True, text=True
    )
    assert "permission denied for function forget_node" in denied_to_agents.stderr, denied_to_agents


def test_an_agent_removes_no_tuning_that_was_pooled_since_its_transaction_began(fleet, agent, logins):  # noqa: F811
    fleet.sql("INSERT INTO pooled_payloads VALUES (decode(repeat('cd', 16), 'hex'), '')")
    session = Session(logins["node"])
    session("BEGIN ISOLATION LEVEL REPEATABLE READ;")
    session("SELECT COUNT(*) FROM pooled;")
    fleet.sql("INSERT INTO pooled (environment_id, problem_id, candidates, lows_us, node_count, evidence, digest, report_rows) "
              "VALUES (1, 2, '{}', '{}', 1, 40, decode(repeat('cd', 16), 'hex'), '')")  # fmt: skip
    session.send("SELECT thin('1 day', 10); COMMIT;")
    with pytest.raises(AssertionError):  # PostgreSQL refuses it, which ends psql
        session.result()
    assert fleet.number("SELECT COUNT(*) FROM pooled p JOIN pooled_payloads y USING (digest)") == 2
    # What nothing refers to goes.
    fleet.sql("DELETE FROM pooled WHERE problem_id = 2")
    psql(logins["node"], "SELECT thin('1 day', 10)")
    assert fleet.number("SELECT COUNT(*) FROM pooled_payloads") == 1


def test_cancelling_with_an_agents_login_says_what_it_may_not_end(fleet, agent, logins):  # noqa: F811
    batch = fleet.number("SELECT batch_id FROM batches")
    cancelled = fleet.cli("tune", "--cancel", batch, "--postgres", logins["node"])
    assert cancelled.code == 1 and cancelled.out == "1 cancelled, 1 go on: this login may not end what another login's nodes tune\n", cancelled
    assert fleet.cli.ok("tune", "--cancel", batch).out == "1 cancelled\n"
    assert fleet.number("SELECT COUNT(*) FROM tasks WHERE state = 5") == 2


def test_migrating_again_takes_away_what_an_earlier_version_granted(fleet, logins):  # noqa: F811
    login = logins["node"].split("user=")[1].split()[0]
    role, = fleet.sql(f"SELECT r.rolname FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid WHERE m.member = '{login}'::regrole")[0]
    fleet.sql(f"GRANT INSERT, UPDATE, DELETE ON pooled_payloads, problems TO {role}")
    assert fleet.sql(f"SELECT has_table_privilege('{role}', 'pooled_payloads', 'UPDATE')") == [["t"]]
    fleet.cli.ok("migrate")
    for table in ("pooled_payloads", "problems"):
        assert fleet.sql(f"SELECT has_table_privilege('{role}', '{table}', 'UPDATE, DELETE')") == [["f"]]
    assert fleet.sql(f"SELECT has_table_privilege('{role}', 'problems', 'INSERT')") == [["t"]]
