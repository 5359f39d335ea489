"""Reports from PostgreSQL: the numbers of the nodes' own bundles."""

import csv
import io
import json
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import program
from harness.fleet import tune
from harness.postgres import psql
from harness.daemon import wait_until
from harness.problems import numbered, numbered_list
from harness.reports import canonical, differences
from test_report import browser, chromium, same, tiles  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import fleet_report  # noqa: E402

NODES, PROBLEMS, EACH = 90, 600, 200


@pytest.fixture(scope="module")
def simulated(postgres_server, tmp_path_factory):
    """One simulated fleet twice: (connection string, bundles, what was planted)."""
    for name in ("convtune-fleet", "convtune-bench-fleet-rows", "convtune-make-fleet"):
        program(name)
    conninfo = postgres_server.database()
    subprocess.run([program("convtune-fleet"), "migrate", "--postgres", conninfo], check=True, stdout=subprocess.DEVNULL)
    facts = fleet_report.fill(program("convtune-fleet").parent, conninfo, EACH, nodes=NODES, problems=PROBLEMS)
    folder = tmp_path_factory.mktemp("bundles")
    subprocess.run([program("convtune-make-fleet"), folder, str(NODES), str(PROBLEMS), str(EACH)], check=True)
    return conninfo, sorted(folder.glob("*.bundle")), facts


def of_fleet(conninfo, *args):
    done = subprocess.run(
        [program("convtune-fleet"), "report", "--postgres", conninfo, *map(str, args)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(conninfo, *args):
    return json.loads(of_fleet(conninfo, "--json", *args))


@pytest.mark.parametrize(
    "selection",
    [
        [],
        pytest.param(["--gpu", "H200", "--op", "fwd", "--dtype", "f16"], marks=pytest.mark.ci),
        ["--filter", "64x64x3x3"],
    ],
)
def test_the_fleets_report_has_the_numbers_of_its_nodes_bundles(simulated, cli, selection):
    conninfo, bundles, _ = simulated
    fleets, nodes = document(conninfo, *selection), cli().ok("report", *bundles, "--json", *selection).json()
    # The nodes' counters are the database's alone.
    assert fleets["headline"].pop("hit_ratio") == pytest.approx(0.9) and nodes["headline"].pop("hit_ratio") is None
    assert fleets["headline"]["rows"] > 100
    found = differences(canonical(fleets), canonical(nodes))
    assert not found, "\n".join(found)


def test_it_finds_all_that_was_planted_and_nothing_else(simulated):
    conninfo, _, facts = simulated
    report = document(conninfo)
    assert report["headline"]["rows"] == facts["rows"] == int(psql(conninfo, "SELECT SUM(node_count) FROM pooled")[0][0])
    for fact, found in fleet_report.findings(report).items():
        planted = {tuple(f) if isinstance(f, list) else f for f in facts[fact]}
        assert planted and found == planted, (fact, found ^ planted)


def test_csv_has_a_line_for_each_row(simulated, cli):
    conninfo, bundles, facts = simulated
    rows = list(csv.DictReader(io.StringIO(of_fleet(conninfo, "--csv"))))
    assert len(rows) == facts["rows"]
    one = rows[len(rows) // 2]
    key = ("problem", "environment", "node")
    same_row, = (
        row for row in csv.DictReader(io.StringIO(cli().ok("report", *bundles, "--csv").out)) if all(row[k] == one[k] for k in key)
    )  # fmt: skip
    for number in ("winner_us", "sm_clock_mhz"):
        assert float(one[number]) == pytest.approx(float(same_row[number]), rel=1e-5) and float(one[number]) > 0


@pytest.mark.ci
def test_the_page_has_the_same_numbers(simulated, tmp_path, browser):  # noqa: F811
    conninfo, _, _ = simulated
    page = tmp_path / "fleet.html"
    of_fleet(conninfo, "--html", page)
    headline = document(conninfo)["headline"]
    drawn, dom = browser(page)
    same(drawn, headline)
    shown = tiles(dom)
    assert shown["hit_ratio"] == "90.0%" and shown["regressions"] == f"{headline['regressions']:,}"


def test_bundles_of_members_keep_what_each_measured(fleet, nodes, cli, tmp_path):
    daemons = nodes(3)
    for daemon in daemons:
        tune(daemon, *numbered_list(0, 5))
    fleet.wait_delivered(15)
    fleet.promote()
    fleet.wait_release(1, [daemon.node for daemon in daemons])
    # What a member exports is what the fleet believes.
    own = []
    for daemon in daemons:
        own.append(tmp_path / f"{daemon.node}.bundle")
        cli(daemon).ok("export", own[-1])
    assert cli().ok("report", *own, "--json").json()["headline"]["rows"] < 15

    assert fleet.cli.ok("export", tmp_path / "all").out == f"wrote 15 tunings of 3 nodes to {tmp_path / 'all'}\n"
    bundles = sorted((tmp_path / "all").iterdir())
    assert [bundle.name for bundle in bundles] == ["node-0.bundle", "node-1.bundle", "node-2.bundle"]
    cli().ok("verify", *bundles)
    fleets, members = document(fleet.conninfo), cli().ok("report", *bundles, "--json").json()
    for report in (fleets, members):
        report["headline"].pop("hit_ratio")
    assert members["headline"]["nodes"] == 3 and members["headline"]["rows"] == 15
    assert not (found := differences(canonical(fleets), canonical(members))), "\n".join(found)

    fleet.cli.ok("export", tmp_path / "one", "--node", "node-1")
    assert (tmp_path / "one" / "node-1.bundle").read_bytes() == bundles[1].read_bytes()
    missing = fleet.cli("export", tmp_path / "none", "--node", "nobody")
    assert missing.code == 3 and "--node: nobody has delivered nothing" in missing.err


def test_what_agents_deliver_is_what_a_report_says(fleet, nodes, tmp_path):
    """Through a node's outbox, delivery and pooling."""
    daemons = nodes(3)
    for daemon in daemons:
        tune(daemon, *numbered_list(0, 5))
    tune(daemons[0], numbered(7))
    fleet.wait_delivered(16)
    report = document(fleet.conninfo)
    headline = report["headline"]
    assert (headline["rows"], headline["nodes"], headline["problems"], headline["pairs"]) == (16, 3, 6, 6)
    columns = report["rows"]["columns"]
    rows = [dict(zip(columns, values)) for values in report["rows"]["values"]]
    said = sorted(
        (report["places"][r["place"]]["node"], report["problems"][r["problem"]]["text"],
         report["candidates"][r["winner"]], r["candidates"])
        for r in rows
    )  # fmt: skip
    kept = []
    for daemon in daemons:
        with daemon.client() as client:
            kept += [(daemon.node, t.problem_text, t.winner, t.candidate_count) for t in client.tuning.ListTunings().tunings]
    assert said == sorted(kept) and {r["evidence"] for r in rows} == {40}
    # Measured again: the row is replaced, in the database and in the report.
    newest = fleet.number("SELECT MAX(evidence_id) FROM evidence")
    tune(daemons[1], numbered(3), force=True)
    wait_until(lambda: fleet.number(f"SELECT COUNT(*) FROM evidence WHERE evidence_id > {newest}"), 30, "the new one is delivered")
    fleet.wait_delivered(16)
    assert document(fleet.conninfo)["headline"]["rows"] == 16
    assert re.search(r"^tunings +16 ", of_fleet(fleet.conninfo), re.MULTILINE)


@pytest.mark.ci
def test_nothing_and_one_row_are_reports_too(fleet, nodes, tmp_path, browser):  # noqa: F811
    page = tmp_path / "empty.html"
    of_fleet(fleet.conninfo, "--html", page)
    drawn, dom = browser(page)
    assert drawn["rows"] == 0 and "There is nothing to report yet" in dom
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    of_fleet(fleet.conninfo, "--html", page)
    drawn, dom = browser(page)
    assert (drawn["rows"], drawn["nodes"]) == (1, 1)
    assert not re.search("NaN|undefined|Infinity", dom.split("<script")[0])


def test_what_it_did_not_make_is_said(fleet, nodes):
    daemon, = nodes(1)
    fleet.deliver(daemon, numbered(0))
    fleet.sql("UPDATE pooled SET report_rows = substring(report_rows FROM 1 FOR length(report_rows) - 3)")
    done = subprocess.run([program("convtune-fleet"), "report", "--postgres", fleet.conninfo], capture_output=True, text=True)
    assert done.returncode == 1 and "report_rows" in done.stderr and done.stdout == "", done


def test_options_are_checked(fleet):
    for bad in (["--dtype", "f17"], ["--stale-after", "soon"], ["--json", "--csv"]):
        assert fleet.cli("report", *bad).code == 2, bad
