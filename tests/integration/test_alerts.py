"""Each alert fires, and it alone: on series of a real daemon and a real agent, with the labels that the chart's PodMonitor gives them.

What a state makes of its series is planted; which series there are and what they are called is scraped. promtool evaluates the rules.
"""

import math
import os
import re
import shlex
import subprocess

import pytest
import yaml

from harness.chart import pod_spec, stored
from harness.fleet import tune
from harness.problems import numbered, numbered_list
from test_fleet_metrics import watched  # noqa: F401
from test_metrics import ALERTS, promtool, scrape, tls_flags, values  # noqa: F401

pytestmark = pytest.mark.ci

NODE = "gpu-node-7"
HEALTHY = "healthy"

# Alert to (series as patterns, with what becomes of each in a minute's steps; the minute at which it fires). A value `_` is none.
STATES = {
    "ConvtuneDown": ({r'up\{.*endpoint="metrics"': "1+0x9 0+0x30"}, 20),
    "ConvtuneDiskRefusesResults": ({"convtune_database_writable": "1+0x9 0+0x30"}, 20),
    "ConvtuneLogLost": ({r'convtune_log_lost_lines_total\{.*kind="audit"': "0+0x9 2+0x20"}, 15),
    "ConvtuneSocketLost": ({"convtune_sockets_lost": "0+0x9 1+0x30"}, 20),
    "ConvtuneDeviceUnavailable": ({r'convtune_device_state\{.*state="unavailable"': "0+0x9 1+0x30"}, 30),
    "ConvtuneGpuLost": ({"convtune_device_lost": "0+0x9 1+0x30"}, 20),
    "ConvtuneWorkerCrashLoop": ({"convtune_worker_deaths_total": "0+0x9 0+1x30"}, 30),
    "ConvtuneQuarantineGrows": ({"convtune_quarantined_candidates": "0+0x9 20+0x30"}, 30),
    "ConvtuneQueueStuck": ({"convtune_queue_depth": "3+0x90"}, 80),
    "ConvtuneHitRatioLow": ({"convtune_lookups_total": "0+100x150", "convtune_lookup_hits_total": "0+80x150"}, 140),
    "ConvtuneSnapshotNotPublished": ({"convtune_snapshot_up_to_date": "1+0x9 0+0x40"}, 40),
    "ConvtuneChangesWait": ({"convtune_release_waiting_changes": "2+0x10200"}, 10140),
    "ConvtuneEvidenceOld": ({r'convtune_evidence_age_seconds\{.*of="median"': "32000000+0x1600"}, 1500),
    # The first call that fails makes the series.
    "ConvtuneErrors": ({r"grpc_server_call_duration_seconds_count\{.*BatchGet.*grpc_status=\"INTERNAL\"": "_x9 1+0x30"}, 15),
    "ConvtuneCertificateEnds": ({"convtune_tls_certificate_end_timestamp_seconds": f"{14 * 86400 + 600}+0x30"}, 20),
    "ConvtuneBackupOld": ({"convtune_backup_timestamp_seconds": "0+0x40", "convtune_backup_interval_seconds": "600+0x40"}, 40),
    "ConvtuneFleetOutOfReach": ({"convtune_fleet_connected": "1+0x9 0+0x40"}, 40),
    "ConvtuneFleetExchangeStale": ({"convtune_fleet_last_exchange_timestamp_seconds": "0+0x40"}, 30),
    "ConvtuneFleetOutboxLags": ({"convtune_fleet_outbox_lag_seconds": "0+0x9 3601+60x30"}, 20),
    "ConvtuneFleetTuningsRefused": ({"convtune_fleet_refused_total": "0+0x9 2+0x30"}, 20),
    "ConvtuneFleetDecisionRefused": ({"convtune_fleet_refused_decisions": "0+0x9 2+0x20"}, 20),
    "ConvtuneFleetBehind": ({"convtune_fleet_unheeded_decisions": "1+0x90"}, 80),
    "ConvtuneReportsUnreadable": ({"convtune_datagrams_malformed_total": "0+1x90"}, 60),
}

# What is no alert's state, by itself: (the series with their values; the minute at which nothing fires).
QUIET = {
    "another job is down": ({'up{job="other"}': "0+0x30"}, 20),
    "down for no minute yet": ({'up{job="convtune", instance="b"}': "1+0x10 0+0x20"}, 10),
    "the queue moves": ({"convtune_queue_depth": "4+0x120", "convtune_tuning_duration_seconds_count": "0+1x120"}, 100),
    "nothing is queued": ({"convtune_queue_depth": "0+0x120", "convtune_tuning_duration_seconds_count": "0+0x120"}, 100),
    "hardly a miss": ({"convtune_lookups_total": "0+100x180", "convtune_lookup_hits_total": "0+99x180"}, 170),
    "hardly a look-up": ({"convtune_lookups_total": "0+1x180", "convtune_lookup_hits_total": "0+0x180"}, 170),
    "workers died long ago": ({"convtune_worker_deaths_total": "3+0x60"}, 60),
    "callers ask for what is not there": (
        {'grpc_server_call_duration_seconds_count{grpc_method="n", grpc_status="NOT_FOUND"}': "0+9x40"}, 25),
    "the outbox is emptied": (
        {"convtune_fleet_outbox_lag_seconds": "5+0x120", "convtune_fleet_connected": "1+0x120",
         "convtune_fleet_last_exchange_timestamp_seconds": "0+60x120"}, 120),
    "an agent has just begun": ({"convtune_fleet_connected": "_x110 1+0x20"}, 115),
    "no GPU is lost yet": ({"convtune_device_lost": "0+0x10 1+0x20"}, 10),
}  # fmt: skip


def target_labels(monitor, endpoint, pod, container):
    """What the Prometheus operator makes of a PodMonitor: its documented labels, and then the endpoint's relabelings."""
    meta = {"__meta_kubernetes_pod_node_name": NODE}
    job = pod["metadata"]["labels"][monitor["spec"]["jobLabel"]] if "jobLabel" in monitor["spec"] else "ns/demo"
    labels = {"namespace": "ns", "pod": "demo-x7k2p", "container": container, "job": job, "endpoint": endpoint["port"]}
    for rule in endpoint.get("relabelings", []):
        assert rule.keys() == {"sourceLabels", "targetLabel"}, "more than this test knows"
        labels[rule["targetLabel"]] = ";".join(meta[name] for name in rule["sourceLabels"])
    return labels


def labelled(series, labels):
    name, _, own = series.partition("{")
    pairs = [f'{key}="{value}"' for key, value in labels.items()]
    return f"{name}{{{','.join([*filter(None, [own.rstrip('}')]), *pairs])}}}"


@pytest.fixture
def series(watched, fleet, daemons, fake_daemon, tmp_path):  # noqa: F811
    """{series with its labels: value} of a node's daemon and agent, as Prometheus stores a scrape."""
    daemon = fake_daemon("--metrics-address", "127.0.0.1:0", "--backup-every=6h", *tls_flags(tmp_path)).start()
    tune(daemon, *numbered_list(0, 2))
    with daemon.client() as client:
        client.get(*numbered_list(0, 2))
    manifests = stored("daemonset-fleet")
    (monitor,) = [m for m in manifests if m["kind"] == "PodMonitor"]
    (workload,) = [m for m in manifests if m["kind"] == "DaemonSet"]
    containers = {p["name"]: c["name"] for c in pod_spec(manifests)["containers"] for p in c["ports"]}
    texts = {"metrics": scrape(daemon), "fleet-metrics": watched.agent.scrape()}
    stored_series = {}
    assert [e["port"] for e in monitor["spec"]["podMetricsEndpoints"]] == list(texts)
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        labels = target_labels(monitor, endpoint, workload["spec"]["template"], containers[endpoint["port"]])
        for name, value in {"up": 1, **values(texts[endpoint["port"]])}.items():
            if not math.isnan(value):
                stored_series[labelled(name, labels)] = value
    return stored_series


def rule_test(name, series, planted, minute, fires):
    """A test of promtool's: these series, and the alerts that fire then."""
    inputs, found = [], set()
    steps = minute + 10
    for text, value in series.items():
        pattern = next((p for p in planted if re.match(p, text)), None)
        found.add(pattern)
        inputs.append({"series": text, "values": planted[pattern] if pattern else f"{value:.10g}+0x{steps}"})
    assert set(planted) <= found, f"{name}: no daemon and no agent has {set(planted) - found}"
    return {
        "name": name,
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [{
            "expr": 'count by (alertname, instance) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{alert}"{node}}}', "value": 1} for alert, node in fires],
        }],
    }  # fmt: skip


def judge(promtool, folder, *tests):  # noqa: F811
    path = folder / "alerts_test.yml"
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": list(tests)}
    path.write_text(yaml.safe_dump(document, width=10000))
    result = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


def test_every_alert_fires_by_its_own_state_alone(series, promtool, tmp_path):  # noqa: F811
    rules = {rule["alert"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
    assert rules == STATES.keys() | {"ConvtuneAbsent"}
    # A failed call's series is like that of one that did not fail, and is not there before.
    assert not [s for s in series if "INTERNAL" in s]
    ok = next(s for s in series if re.match(r'grpc_server_call_duration_seconds_count\{.*BatchGet.*grpc_status="OK"', s))
    tests = [rule_test(HEALTHY, series, {}, 180, [])]
    for alert, (planted, minute) in STATES.items():
        of = dict(series)
        if alert == "ConvtuneErrors":
            of[ok.replace('"OK"', '"INTERNAL"')] = 1
        if minute > 1000:  # days in steps of a minute: what the rule reads, and what else is needed to be healthy
            of = {s: v for s, v in of.items() if any(re.match(p, s) for p in planted) or s.startswith("up{")}
        tests.append(rule_test(alert, of, planted, minute, [(alert, f', instance="{NODE}"')]))
    tests.append(rule_test("ConvtuneAbsent", {'up{job="node-exporter"}': 1}, {}, 15, [("ConvtuneAbsent", "")]))
    judge(promtool, tmp_path, *tests)


def test_what_is_no_alerts_state_fires_none(promtool, tmp_path):  # noqa: F811
    tests = []
    for name, (planted, minute) in QUIET.items():
        series = {**dict.fromkeys(planted, 0), 'up{job="convtune"}': 1}
        tests.append(rule_test(name, series, {re.escape(text): values for text, values in planted.items()}, minute, []))
    judge(promtool, tmp_path, *tests)


def test_an_agent_that_never_exchanged_anything_is_stale(promtool, tmp_path):  # noqa: F811
    series = {f'convtune_fleet_connected{{instance="{NODE}"}}': 1, 'up{job="convtune"}': 1}
    judge(promtool, tmp_path, rule_test("never", series, {}, 30, [("ConvtuneFleetExchangeStale", f', instance="{NODE}"')]))


def test_the_commands_of_the_runbooks_do_something(nodes, fleet, cli, tmp_path):
    (tmp_path / "list").write_text(numbered(0) + "\n")
    stands_for = {"PROBLEM": numbered(0), "LIST": str(tmp_path / "list")}
    commands = {c for c in re.findall(r"`(convtune [^`]+)`", ALERTS.read_text())}
    assert {"convtune doctor", "convtune fleet status"} <= commands
    node, = nodes(1)
    # First what tunes: the others show what it made.
    for command in sorted(commands, key=lambda c: ("warm" not in c, "tune" not in c, c)):
        words = [stands_for.get(word, word) for word in shlex.split(command)[1:]]
        done = cli(node, env={"CONVTUNE_POSTGRES": fleet.conninfo, "PATH": f"{node.binary.parent}:{os.environ['PATH']}"})(*words)
        assert done.code == 0 and (done.out + done.err).strip(), (command, done)


def test_a_damaged_upload_is_no_damaged_store(fake_daemon, cli, promtool, tmp_path):  # noqa: F811
    daemon = fake_daemon("--metrics-address", "127.0.0.1:0").start()
    (tmp_path / "damaged").write_text("no bundle")
    assert "damaged at byte 0" in cli(daemon)("import", tmp_path / "damaged").err
    (counted,) = [s for s in values(scrape(daemon)) if re.match("grpc_server_call_duration_seconds_count.*ImportBundle", s)]
    tests = []
    for name, text, fires in (
        ("upload", counted, []),
        ("store", re.sub('grpc_status="[A-Z_]+"', 'grpc_status="DATA_LOSS"', counted), [("ConvtuneErrors", f', instance="{NODE}"')]),
    ):
        series = {labelled(text, {"instance": NODE}): 1, 'up{job="convtune"}': 1}
        tests.append(rule_test(name, series, {"grpc_server": "_x9 1+0x30"}, 15, fires))
    judge(promtool, tmp_path, *tests)


def test_the_chart_ships_the_rules(promtool, tmp_path):  # noqa: F811
    (rule,) = [m for m in stored("daemonset-metrics") if m["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule["spec"]))
    result = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
