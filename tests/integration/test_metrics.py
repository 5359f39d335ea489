"""Metrics of a running daemon, and that what reads them fits them."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import grpc
import pytest

from harness import site
from harness.certificates import Certificates
from harness.daemon import wait_until
from harness.needs import missing
from harness.problems import numbered_list

REPO = pathlib.Path(__file__).resolve().parents[2]
MONITORING = REPO / "deploy" / "monitoring"
ALERTS = REPO / "deploy" / "helm" / "convtune" / "alerts.yml"


@pytest.fixture(scope="session")
def promtool():
    found = os.environ.get("CONVTUNE_TEST_PROMTOOL") or shutil.which("promtool") or REPO / ".venv" / "bin" / "promtool"
    if not pathlib.Path(found).exists():
        missing("promtool", "prometheus")
    return str(found)


def tls_flags(folder):
    """A second address, which is TCP: what is counted of TLS is there then."""
    return ("--listen", "localhost:0", *Certificates(folder).server_flags())


@pytest.fixture
def watched(fake_daemon, convtuned, tmp_path):
    """A daemon with metrics; skips where it was built without."""
    if "Not in this build" in subprocess.run([convtuned, "--help"], capture_output=True, text=True).stdout:
        pytest.skip("convtuned was built without prometheus-cpp (deploy/install-deps brings it)")
    return fake_daemon("--metrics-address", "127.0.0.1:0", "--backup-every=6h", *tls_flags(tmp_path)).start()


def url_of(daemon):
    return re.search(r"metrics at (http://\S+)", daemon.log())[1]


def scrape(daemon):
    with urllib.request.urlopen(url_of(daemon), timeout=20) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        return reply.read().decode()


def values(text):
    """Sample name with labels to its value."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def test_look_ups_hits_and_misses_add_up(watched, cli):
    problems = numbered_list(0, 5)
    run = cli(watched)
    assert run("get", *problems).code == 3
    run.ok("tune", *problems[:2])
    before = values(scrape(watched))
    run.ok("get", *problems[:2])
    with watched.client() as client:
        client.get(problems[0], program={"cudnn_version": "9.12.0"})
    now = values(scrape(watched))
    assert now["convtune_lookups_total"] == now["convtune_lookup_hits_total"] + sum(
        v for k, v in now.items() if k.startswith("convtune_lookup_misses_total")
    )
    assert now["convtune_lookup_hits_total"] - before["convtune_lookup_hits_total"] == 2
    assert now['convtune_lookup_misses_total{reason="not_found"}'] >= 5
    assert now['convtune_lookup_misses_total{reason="other_environment"}'] == 1
    assert now['convtune_tuning_duration_seconds_count{device="gpu:0",outcome="succeeded"}'] == 2
    assert now['convtune_worker_starts_total{device="gpu:0"}'] == 1
    method = 'grpc_method="convtune.v1.TuningService/BatchGet"'
    assert now[f"grpc_server_call_started_total{{{method}}}"] >= 2
    assert now[f'grpc_server_call_duration_seconds_count{{{method},grpc_status="OK"}}'] >= 2
    assert now["convtune_database_writable"] == 1
    (state,) = [k for k, v in now.items() if k.startswith("convtune_device_state") and v == 1]
    assert 'device="gpu:0"' in state


def test_failed_calls_are_counted_by_their_status(watched):
    with watched.client() as client, pytest.raises(grpc.RpcError):
        client.get("fwd,x=1x64x7x7,w=64x63x3x3")
    assert values(scrape(watched))[
        'grpc_server_call_duration_seconds_count{grpc_method="convtune.v1.TuningService/BatchGet",'
        'grpc_status="INVALID_ARGUMENT"}'
    ] == 1  # fmt: skip


def test_doctor_says_where_the_metrics_are(watched, bare_daemon, cli):
    assert f"metrics at {url_of(watched)}" in cli(watched)("doctor").out
    assert "metrics are off" in cli(bare_daemon.start())("doctor").out


def test_slow_clients_do_not_keep_prometheus_out(watched):
    host, port = re.match(r"http://(.+):(\d+)/", url_of(watched)).groups()
    with contextlib.ExitStack() as held:
        for _ in range(32):
            client = held.enter_context(socket.create_connection((host, int(port))))
            client.sendall(b"GET /metrics HTTP/1.1\r\n")  # and no end
        began = time.monotonic()
        scrape(watched)
        assert time.monotonic() - began < 10, "Prometheus gives up after so many seconds"


def test_an_address_that_is_taken_is_an_error_that_names_it(watched, daemons):
    taken = url_of(watched).removeprefix("http://").removesuffix("/metrics")
    second = daemons("--devices", "none", "--metrics-address", taken).start(wait=False)
    assert second.wait(30) == 1
    assert f"--metrics-address: cannot listen on {taken}" in second.log()


def test_promtool_accepts_the_metrics(watched, cli, promtool):
    cli(watched).ok("tune", *numbered_list(0, 1))
    result = subprocess.run([promtool, "check", "metrics"], input=scrape(watched), capture_output=True, text=True)
    # What prometheus-cpp says of itself is not ours to name.
    complaints = [l for l in (result.stdout + result.stderr).splitlines() if l and not l.startswith("exposer_")]
    assert complaints == []


def test_prometheus_finds_the_rules_beside_its_file_and_accepts_them(promtool, tmp_path):
    shutil.copy(MONITORING / "scrape.yml", tmp_path / "prometheus.yml")
    shutil.copy(ALERTS, tmp_path)
    result = subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert result.returncode == 0 and "1 rule files found" in result.stdout, result


def expressions():
    """Where it stands, and the PromQL, of every rule, panel and objective."""
    import yaml

    for rule in yaml.safe_load((MONITORING / "objectives.yml").read_text())["groups"][0]["rules"]:
        yield f"objective {rule['record']}", rule["expr"]
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        yield f"alert {rule['alert']}", rule["expr"]
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]


def test_every_alert_says_what_to_do():
    import yaml

    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        assert len(rule["annotations"]["runbook"]) > 40, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket", "info")


def test_rules_and_panels_are_promql(promtool, tmp_path):
    import yaml

    rules = [
        {"record": f"x{i}", "expr": e.replace("$__rate_interval", "5m").replace('"$instance"', '".*"')}
        for i, (_, e) in enumerate(expressions())
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]}))
    result = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_dashboard_hangs_together():
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        box = panel["gridPos"]
        cells = {(box["x"] + x, box["y"] + y) for x in range(box["w"]) for y in range(box["h"])}
        assert box["x"] + box["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["datasource"]["uid"] == "${datasource}"
    instance = next(v for v in dashboard["templating"]["list"] if v["name"] == "instance")
    # The daemon and the fleet's agent are two instances, each with a metric of its own: both are to choose from.
    selected = re.search(r'__name__=~"([^"]+)"', instance["query"]["query"])[1].split("|")
    assert selected == ["convtune_build_info", "convtune_fleet_connected"]
    assert instance["includeAll"] and instance["allValue"] == ".*"


def test_rules_panels_and_pages_name_metrics_that_there_are(watched, cli):
    cli(watched).ok("tune", *numbered_list(0, 1))
    cli(watched).ok("get", *numbered_list(0, 1))
    cli(watched).ok("ban", "eng1", "--reason", "wrong results")
    text = scrape(watched)
    there = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    there |= {f"{name}_{part}" for name in list(there) for part in ("bucket", "count", "sum")} | {"up"}
    for where, expression in expressions():
        # Those of a fleet's agent: test_fleet_metrics.py.
        for name in re.findall(r"\b(?:convtune(?!_fleet)|grpc|process)_\w+|\bup\b", expression):
            # A status of gRPC, or a label of ours.
            if name not in ("grpc_method", "grpc_status"):
                assert name in there, (where, name)
        for method in re.findall(r'grpc_method=~"\.\*(\w+)"', expression):
            assert re.search(rf'^grpc_server_call_duration_seconds_count.*\b{method}"', text, re.MULTILINE), (where, method)
        for bound in re.findall(r'\ble="[^"]+"', expression):
            assert re.search(rf"^grpc_server_call_duration_seconds_bucket.*{bound}", text, re.MULTILINE), (where, bound)
    ours = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.startswith("exposer_")}
    page = set(re.findall(r"`((?:convtune(?!_fleet)|grpc|process)_\w+)", (MONITORING / "README.md").read_text()))
    assert page - there == set()
    listed = set(re.findall(r"^\| `((?!convtune_fleet)\w+)", site.module().metrics(), re.MULTILINE))
    assert ours - listed == set() and listed - there == set()


def test_the_debug_log_says_who_called(fake_daemon):
    daemon = fake_daemon("--log-level", "debug").start()
    with daemon.client() as client:
        client.maintenance.GetServerInfo()
    wait_until(lambda: f" GetServerInfo from unix:uid={os.geteuid()},pid={os.getpid()}: OK in " in daemon.log(), 10, "the call's line")


def test_the_alert_names_every_reason_of_a_miss():
    proto = (REPO / "proto/convtune/v1/tuning_service.proto").read_text()
    reasons = {reason.lower() for reason in re.findall(r"MISS_REASON_(\w+) = [1-9]", proto)}
    assert len(reasons) >= 7
    (runbook,) = re.findall(r"`convtune_lookup_misses_total` by reason: .*", ALERTS.read_text())
    # A look-up that fails to tune is counted by what it was before.
    assert reasons - {"tuning_failed"} <= set(re.findall(r"\w+", runbook))
