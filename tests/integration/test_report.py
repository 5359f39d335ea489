"""convtune report: one node, the bundles of a fleet, and the page in a browser."""

import csv
import io
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import REPO
from harness import cudnn_versions
from harness.needs import missing
from harness.problems import numbered_list


RESNET = REPO / "deploy" / "examples" / "resnet50.csv"


@pytest.fixture(scope="session")
def fleet(convtune, tmp_path_factory):
    """fleet(nodes, problems, per_node, *more) gives the bundles of a simulated fleet."""
    program = convtune.parent / "convtune-make-fleet"
    made = {}

    def make(*args):
        if args not in made:
            folder = tmp_path_factory.mktemp("fleet")
            subprocess.run([program, folder, *map(str, args)], check=True)
            made[args] = sorted(folder.glob("*.bundle"))
        return made[args]

    return make


@pytest.fixture(scope="session")
def chromium():
    found = os.environ.get("CONVTUNE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        missing("chromium", "chromium")
    return found


def dump_dom(chromium, folder, url, *more):
    """The page as Chromium has it once its scripts ran."""
    command = [
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom", *more, url,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


@pytest.fixture
def browser(chromium, tmp_path):
    """browser(page, fragment) opens the file and gives what it drew, once nothing went wrong and nothing was loaded."""

    def open_page(page, fragment=""):
        log = tmp_path / "net.json"
        log.unlink(missing_ok=True)
        result = dump_dom(chromium, tmp_path, f"file://{page}{fragment}", f"--log-net-log={log}")
        dom = result.stdout
        assert "data-drawn" in dom, result.stderr[-2000:]
        assert "data-errors" not in dom and "CONSOLE" not in result.stderr, result.stderr[-2000:]
        # Requests of the page itself: the browser's own have no page that began them.
        asked = set(re.findall(r'"initiator":"(?!not an origin)[^"]*"[^{}]*"url":"(\w+://[^"]+)"', log.read_text()))
        assert {url for url in asked if not url.startswith(("file://", "data:"))} == set()
        drawn = re.search(r'data-drawn="([^"]*)"', dom)[1].replace("&quot;", '"')
        return json.loads(drawn), dom

    return open_page


def tiles(dom):
    return dict(re.findall(r'data-tile="(\w+)"><div class="name">[^<]*</div><div class="value[^"]*">([^<]*)<', dom))


def same(drawn, headline):
    """The page computes its headline by itself."""
    for key, value in drawn.items():
        assert headline[key] == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value), key


def test_one_node_says_what_it_counted(fake_daemon, cli, tmp_path):
    daemon = fake_daemon().start()
    run = cli(daemon, env={"TMPDIR": str(tmp_path)})
    run.ok("tune", *numbered_list(0, 3))
    run.ok("get", *numbered_list(0, 3))
    report = run.ok("report", "--json").json()
    assert report["headline"]["rows"] == 3
    with daemon.client() as client:
        info = client.info()
    assert report["headline"]["hit_ratio"] == pytest.approx(info.hits / info.lookups)
    words = run.ok("report").out
    assert re.search(r"^tunings +3 ", words, re.MULTILINE) and re.search(r"^search time +", words, re.MULTILINE)
    # What it was asked for on the way is gone.
    assert list(tmp_path.iterdir()) == []


def test_results_carry_the_nodes_name(fake_daemon, cli, tmp_path):
    run = cli(fake_daemon(env={"CONVTUNE_NODE": "gpu-node-7"}).start())
    run.ok("tune", *numbered_list(0, 1))
    run.ok("export", tmp_path / "node.bundle")
    for words in (["report", "--csv"], ["report", tmp_path / "node.bundle", "--csv"]):
        (row,) = csv.DictReader(io.StringIO(run.ok(*words).out))
        assert row["node"] == "gpu-node-7"


def test_the_same_numbers_everywhere(convtune, cli, fleet, tmp_path, browser):
    bundles = fleet(60, 200, 100)
    run = cli()
    report = run.ok("report", *bundles, "--json").json()
    headline = report["headline"]
    assert headline["nodes"] == 60 and headline["rows"] > 6000 and headline["hit_ratio"] is None
    page = tmp_path / "page.html"
    run.ok("report", *bundles, "--html", page)
    drawn, dom = browser(page)
    same(drawn, headline)
    shown = tiles(dom)
    assert shown["gain"] == f"{headline['gain']:.2f}\u00d7"
    assert shown["regressions"] == f"{headline['regressions']:,}" and headline["regressions"] > 0
    assert shown["hit_ratio"] == "-"
    words = run.ok("report", *bundles).out
    assert re.search(rf"^faster than stock +{headline['gain']:.2f}x", words, re.MULTILINE)
    assert re.search(rf"^regressions +{headline['regressions']} ", words, re.MULTILINE)
    rows = list(csv.DictReader(io.StringIO(run.ok("report", *bundles, "--csv").out)))
    assert len(rows) == headline["rows"]
    assert {row["node"] for row in rows} == {place["node"] for place in report["places"]}


def test_the_numbers_are_those_of_earlier_versions(cli, fleet):
    kept = json.loads((REPO / "tests" / "data" / "report" / "numbers.json").read_text())
    args = ("--gpu", "L4", "--op", "fwd", "--filter", "x7x7,", "--stale-after", "876000h")
    report = cli().ok("report", *fleet(60, 200, 100), *args, "--json").json()
    assert {key: report[key] for key in kept} == kept


def test_a_selection_in_the_link_is_what_the_options_select(cli, fleet, tmp_path, browser):
    bundles = fleet(60, 200, 100)
    run = cli()
    page = tmp_path / "page.html"
    run.ok("report", *bundles, "--html", page)
    headline = run.ok("report", *bundles, "--json", "--gpu", "H200", "--op", "fwd", "--dtype", "f16").json()["headline"]
    drawn, dom = browser(page, "#gpu=NVIDIA+H200&op=fwd&dtype=f16")
    # Clocks and speeds are compared among all rows here and among the chosen ones there.
    for key in ("rows", "nodes", "problems", "pairs", "timed_pairs", "coverage", "search_seconds", "stale"):
        assert drawn[key] == pytest.approx(headline[key], rel=1e-5), key
    assert drawn["gain"] == pytest.approx(headline["gain"], rel=0.005)
    assert "filtered" in dom


def test_nothing_timed_says_so(cli, fleet, tmp_path, browser):
    bundles = fleet(2, 40, 40, "untimed")
    run = cli()
    assert "Nothing was timed" in run.ok("report", *bundles).out
    page = tmp_path / "page.html"
    run.ok("report", *bundles, "--html", page)
    drawn, dom = browser(page)
    assert drawn["timed_pairs"] == 0 and drawn["gain"] is None
    shown = tiles(dom)
    assert shown["gain"] == shown["regressions"] == shown["slow_gpus"] == "-" and shown["coverage"] == "0.0%"
    assert "<b>Nothing was timed.</b>" in dom


@pytest.mark.ci
def test_nothing_and_one_row_are_pages_too(bare_daemon, cli, fleet, tmp_path, browser):
    run = cli(bare_daemon.start())
    empty = tmp_path / "empty.html"
    run.ok("report", "--html", empty)
    drawn, dom = browser(empty)
    assert drawn["rows"] == 0 and drawn["coverage"] is None and "There is nothing to report yet" in dom
    one = tmp_path / "one.html"
    run.ok("report", *fleet(1, 1, 1), "--html", one)
    drawn, dom = browser(one)
    assert drawn["problems"] == 1
    assert not re.search("NaN|undefined|Infinity", dom.split("<script")[0])


@pytest.mark.ci
def test_what_an_upgrade_changes_is_a_section(convtune, worker, cli, tmp_path, browser):
    folder = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    page = tmp_path / "upgrade.html"
    args = (RESNET, "--op", "fwd", "--dtype", "f16", "--layout", "nhwc", "--to", folder, "--profile", "nvidia-h200,nvidia-t4")
    profiles = cli()("upgrade-check", *args, "--worker", worker, "--html", page, "--json").json()["profiles"]
    drawn, dom = browser(page)
    dom = dom.split("<script")[0]
    assert drawn["rows"] == 0 and "There is nothing to report" not in dom and "Before an upgrade of cuDNN" in dom
    assert tiles(dom) == {} and 'data-to="rows"' not in dom
    for found in profiles:
        total, changed, grew = (found["summary"][key] for key in ("problems", "choice", "workspaceGrew"))
        assert f"{total} problems, {changed} with another first choice, {grew} with more workspace, 0 lost" in dom
    changed = [p for found in profiles for p in found["problems"] if p["change"] in ("knobs", "engine")]
    assert len(changed) > 12 and dom.count("<tr>") > len(changed) and "The first 12" not in dom  # a row for each
    footer = dom[dom.index("<footer"):]
    assert "Made by <code>convtune upgrade-check</code>. Nothing was timed;" in footer and "medians" not in footer
    _, dom = browser(page, "#q=w=64x64x3x3")
    assert "nvidia-h200, cuDNN" in dom and ": 1 problem," in dom
    assert not re.search("NaN|undefined|Infinity", dom.split("<script")[0])


@pytest.mark.long
def test_a_hundred_thousand_rows(cli, fleet, tmp_path, browser):
    run = cli()
    page = tmp_path / "page.html"
    bundles = fleet(610, 10000, 150)
    run.ok("report", *bundles, "--html", page)
    drawn, dom = browser(page)
    assert drawn["rows"] >= 100_000
    assert dom.count("<circle") < 5000


def test_what_cannot_be_read_or_written_is_named(cli, fleet, tmp_path):
    run = cli()
    damaged = tmp_path / "damaged.bundle"
    content = bytearray(fleet(1, 1, 1)[0].read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    result = run("report", damaged)
    assert result.code == 1 and "damaged at byte" in result.err and result.out == ""
    result = run("report", *fleet(1, 1, 1), "--html", tmp_path / "no" / "page.html")
    assert result.code == 2 and f"--html: {tmp_path}/no/page.html cannot be written" in result.err
    assert run("report", *fleet(1, 1, 1), "--dtype", "f17").code == 2
    assert run("report", *fleet(1, 1, 1), "--stale-after", "soon").code == 2
