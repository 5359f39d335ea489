"""What the chart's values do, mode by mode; test_deploy has its stored manifests and test_containers runs a pod of them."""

import json
import os
import re
import subprocess

import pytest
import yaml

from harness.chart import CHART, pod_spec, rendered, stored, template
from harness.containers import pod_mounts
from harness.daemon import wait_until
from harness.pages import blocks
from harness.problems import numbered

MODES = ["serving", "job", "daemonset"]


def pod(mode, *values):
    return pod_spec(rendered(f"mode={mode}", *values).values())


def daemon_of(spec):
    """The container that runs convtuned."""
    (found,) = [c for c in spec.get("initContainers", []) + spec["containers"] if c["name"].startswith("convtune")]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_pods_go_where_the_values_say(mode):
    spec = pod(
        mode, r"nodeSelector.nvidia\.com/gpu\.product=NVIDIA-H200", "runtimeClassName=other", "imagePullSecrets[0].name=registry",
        "tolerations[0].key=gpus", "tolerations[0].operator=Exists",
    )  # fmt: skip
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert spec["runtimeClassName"] == "other"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["tolerations"] == [{"key": "gpus", "operator": "Exists"}]


@pytest.mark.parametrize("mode", MODES)
def test_nodes_with_the_usual_taint_are_tolerated_and_no_runtime_class_is_asked_for_beside_a_gpu(mode):
    spec = pod(mode)
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    # A cluster without that class refuses the pod; one with a GPU of its own gets the GPU all the same.
    assert "runtimeClassName" not in spec
    assert spec.get("nodeSelector") == ({"nvidia.com/gpu.present": "true"} if mode == "daemonset" else None)


def test_nothing_is_said_of_nodes_where_all_is_empty():
    spec = pod("daemonset", "tolerations=null", "daemonset.nodeSelector=null")
    assert not {"tolerations", "nodeSelector", "runtimeClassName", "imagePullSecrets"} & spec.keys()


@pytest.mark.parametrize("mode", MODES)
def test_the_daemon_gets_more_flags_variables_and_files(mode):
    spec = pod(
        mode, "extraArgs[0]=--log-format=json", "extraEnv[0].name=CONVTUNE_TUNE_WANTED", "extraEnv[0].value=yes",
        "extraVolumes[0].name=keys", "extraVolumes[0].secret.secretName=keys",
        "extraVolumeMounts[0].name=keys", "extraVolumeMounts[0].mountPath=/keys",
    )  # fmt: skip
    daemon = daemon_of(spec)
    assert daemon["args"][-1] == "--log-format=json"
    assert daemon["env"][-1] == {"name": "CONVTUNE_TUNE_WANTED", "value": "yes"}
    node = next(v for v in daemon["env"] if v["name"] == "CONVTUNE_NODE")
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}, "results name the node"
    assert daemon["volumeMounts"][-1] == {"name": "keys", "mountPath": "/keys"}
    assert spec["volumes"][-1] == {"name": "keys", "secret": {"secretName": "keys"}}


def test_the_chart_refuses_another_mode_and_an_agent_where_no_daemon_stays():
    for values, rule in {
        "mode=other": 'mode must be one of the following: "serving", "job", "daemonset"',
        "daemonset.gpus=some": 'daemonset.gpus must be one of the following: "none", "own", "all"',
        "image.digest=sha256:12": "image.digest: Does not match pattern",
        "sever.replicas=2": "Additional property sever is not allowed",
        "server.replica=2": "server: Additional property replica is not allowed",
        "server.port=0": "server.port: Must be greater than or equal to 1",
        "timeBudget=soon": "timeBudget: Does not match pattern",
        "daemonset.backup.every=daily": "daemonset.backup.every: Does not match pattern",
        "daemonset.backup.keep=0": "daemonset.backup.keep: Must be greater than or equal to 1",
        "mode=job,fleet.enabled=true": "fleet.enabled: is for mode daemonset",
        "mode=daemonset,fleet.enabled=true": "fleet.enabled: a daemon without a device of an environment gets nothing of a fleet",
        "mode=serving,service.enabled=true": "service.enabled: is for mode daemonset",
        "mode=serving,networkPolicy.enabled=true": "networkPolicy.enabled: is for mode daemonset with",
        "mode=daemonset,networkPolicy.enabled=true": "networkPolicy.enabled: is for mode daemonset with metrics.enabled",
        "mode=daemonset,snapshot.address=a:1": "snapshot.address: is for mode serving",
    }.items():
        refused = template("--set", values)
        assert refused.returncode != 0 and rule in refused.stderr, (values, refused.stderr)


def test_an_agent_is_taken_beside_a_device_or_a_profile():
    for values in ("daemonset.gpus=own", "daemonset.gpus=all", "extraArgs[0]=--profile=nvidia-h200",
                   "extraEnv[0].name=CONVTUNE_PROFILE,extraEnv[0].value=nvidia-h200"):  # fmt: skip
        assert [c["name"] for c in pod("daemonset", "fleet.enabled=true", values)["containers"]] == ["convtuned", "fleet"]


def test_one_node_tunes_and_the_others_serve_as_the_page_has_it(tmp_path):
    (block,) = [b.text for b in blocks("deploy/docs/containers.md") if "tuner.yaml" in b.text]
    specs = {}
    for name, text in re.findall(r"^cat >(\S+)\.yaml <<'END'\n(.*?)^END$", block, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(text)
        made = template("--values", tmp_path / name)
        assert made.returncode == 0, made.stderr
        specs[name] = pod_spec([m for m in yaml.safe_load_all(made.stdout) if m])
    tuner, serving = specs["tuner"], specs["serving"]
    assert daemon_of(tuner)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert tuner["nodeSelector"] == {"convtune": "tuner"}
    assert "nvidia.com/gpu" not in daemon_of(serving)["resources"]["limits"]
    (term,) = serving["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "convtune", "operator": "NotIn", "values": ["tuner"]}]}
    agents = [next(c for c in spec["containers"] if c["name"] == "fleet")["args"] for spec in (tuner, serving)]
    assert ["--no-tune" in args for args in agents] == [False, True]


def test_every_value_has_a_rule():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def missing(value, rule, path):
        if not isinstance(value, dict) or "properties" not in rule:
            return []
        here = [f"{path}{key}" for key in value.keys() ^ rule["properties"].keys() - {"global"}]
        return here + [m for key, v in value.items() if key in rule["properties"] for m in missing(v, rule["properties"][key], f"{path}{key}.")]

    assert missing(values, schema, "") == []


@pytest.mark.parametrize("gpus", ["none", "own", "all"])
def test_the_daemonset_tunes_on_what_it_is_given(gpus):
    spec = pod("daemonset", f"daemonset.gpus={gpus}", "gpu.count=2")
    daemon = daemon_of(spec)
    assert ("--devices=none" in daemon["args"]) == (gpus == "none")
    assert daemon["resources"]["limits"].get("nvidia.com/gpu") == (2 if gpus == "own" else None)
    assert ("NVIDIA_VISIBLE_DEVICES" in [v["name"] for v in daemon["env"]]) == (gpus == "all")
    assert spec.get("runtimeClassName") == ("nvidia" if gpus == "all" else None)


@pytest.mark.parametrize("mode", MODES)
def test_the_fields_that_charts_of_the_field_have(mode):
    manifests = rendered(
        f"mode={mode}", "fullnameOverride=tuner", "annotations.a=1x", "podAnnotations.b=2x", "podLabels.team=vision", "priorityClassName=high",
        "serviceAccountName=tuner", "terminationGracePeriodSeconds=60", "affinity.podAntiAffinity.x=y",
        "topologySpreadConstraints[0].maxSkew=1", "image.digest=sha256:" + "a" * 64, "job.activeDeadlineSeconds=600",
        "server.strategy.type=Recreate",
    )  # fmt: skip
    (workload,) = [m for kind, m in manifests.items() if kind in ("Deployment", "Job", "DaemonSet")]
    meta, pods, spec = workload["metadata"], workload["spec"]["template"]["metadata"], pod_spec(manifests.values())
    assert all(m["metadata"]["name"].startswith("tuner") for m in manifests.values())
    assert meta["annotations"] == {"a": "1x"} and pods["annotations"]["b"] == "2x" and pods["labels"]["team"] == "vision"
    assert workload["spec"].get("selector", {"matchLabels": {}})["matchLabels"].items() <= pods["labels"].items()
    assert (spec["priorityClassName"], spec["serviceAccountName"], spec["terminationGracePeriodSeconds"]) == ("high", "tuner", 60)
    assert spec["affinity"] == {"podAntiAffinity": {"x": "y"}} and spec["topologySpreadConstraints"] == [{"maxSkew": 1}]
    assert spec["automountServiceAccountToken"] is False
    assert daemon_of(spec)["image"] == "convtune@sha256:" + "a" * 64
    own = {"serving": ("strategy", {"type": "Recreate"}), "job": ("ttlSecondsAfterFinished", 86400),
           "daemonset": ("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})}  # fmt: skip
    key, value = own[mode]
    assert workload["spec"][key] == value
    assert workload["spec"].get("activeDeadlineSeconds") == (600 if mode == "job" else None)


def test_another_list_of_problems_makes_new_serving_pods():
    def annotations(*values):
        return rendered("mode=serving", *values)["Deployment"]["spec"]["template"]["metadata"]["annotations"]

    one, other = annotations("problems=a"), annotations("problems=b")
    assert one.keys() == {"checksum/problems"} and one != other and one == annotations("problems=a", "server.replicas=3")


def test_a_server_has_what_it_is_given_beside_the_snapshot():
    (server,) = pod(
        "serving", "extraVolumes[0].name=model", "extraVolumes[0].persistentVolumeClaim.claimName=model",
        "server.volumeMounts[0].name=model", "server.volumeMounts[0].mountPath=/model", "server.command[0]=serve",
        "server.resources.requests.cpu=2", "server.resources.limits.memory=8Gi", "server.envFrom[0].secretRef.name=s",
        "server.env[0].name=LD_PRELOAD", "server.env[0].value=/usr/lib/x.so",
        "server.probes.readinessProbe.httpGet.path=/ready", "server.probes.readinessProbe.httpGet.port=http",
    )["containers"]  # fmt: skip
    assert {"name": "model", "mountPath": "/model"} in server["volumeMounts"]
    assert server["resources"] == {"requests": {"cpu": 2}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 1}}
    assert server["command"] == ["serve"] and server["envFrom"] == [{"secretRef": {"name": "s"}}]
    assert [variable["name"] for variable in server["env"]] == ["CONVTUNE_SNAPSHOT", "LD_PRELOAD"]
    assert server["readinessProbe"] == {"httpGet": {"path": "/ready", "port": "http"}}


@pytest.mark.parametrize("mode", ["daemonset-metrics", "daemonset-fleet"])
def test_the_pod_monitor_reads_every_port_that_a_container_listens_on(mode):
    kinds = {m["kind"]: m for m in stored(mode)}
    assert kinds["PodMonitor"]["spec"]["selector"] == kinds["DaemonSet"]["spec"]["selector"]
    ports = {p["name"]: (p["containerPort"], c["args"]) for c in pod_spec(stored(mode))["containers"] for p in c["ports"]}
    assert [e["port"] for e in kinds["PodMonitor"]["spec"]["podMetricsEndpoints"]] == list(ports)
    assert ports
    for port, arguments in ports.values():
        assert f"--metrics-address=0.0.0.0:{port}" in arguments


def test_a_network_policy_lets_named_peers_to_each_port_and_nobody_else():
    def policy(*values):
        manifests = rendered("mode=daemonset", "networkPolicy.enabled=true", *values)
        spec = manifests["NetworkPolicy"]["spec"]
        pods = manifests["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= pods.items() and spec["policyTypes"] == ["Ingress"]
        ports = [p["name"] for c in pod_spec(manifests.values())["containers"] for p in c.get("ports", [])]
        found = {p["port"]: rule["from"] for rule in spec["ingress"] for p in rule["ports"]}
        assert sorted(found) == sorted(ports), "every port that the pods have, and no other"
        return found

    prometheus, pods = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}], [{"namespaceSelector": {}}]
    assert policy("metrics.enabled=true") == {"metrics": prometheus}
    assert policy("service.enabled=true") == {"grpc": pods}
    everything = policy("metrics.podMonitor=true", "service.enabled=true", "fleet.enabled=true", "daemonset.gpus=own",
                        "networkPolicy.grpc[0].podSelector.matchLabels.app=server")  # fmt: skip
    assert everything == {"metrics": prometheus, "fleet-metrics": prometheus, "grpc": [{"podSelector": {"matchLabels": {"app": "server"}}}]}
    assert "NetworkPolicy" not in rendered("mode=daemonset", "metrics.enabled=true", "service.enabled=true")


def test_a_drain_leaves_what_the_budget_says_of_a_server_and_a_daemonset_has_none():
    assert "PodDisruptionBudget" not in rendered("mode=serving")
    manifests = rendered("mode=serving", "server.podDisruptionBudget.minAvailable=2", "server.replicas=3")
    spec = manifests["PodDisruptionBudget"]["spec"]
    assert spec["minAvailable"] == 2 and spec["selector"] == manifests["Deployment"]["spec"]["selector"]
    for mode in ("job", "daemonset"):
        assert "PodDisruptionBudget" not in rendered(f"mode={mode}", "server.podDisruptionBudget.minAvailable=2")


def test_a_daemon_that_migrates_its_database_is_not_killed_for_an_hour():
    (daemon,) = pod("daemonset")["containers"]
    startup, liveness = daemon["startupProbe"], daemon["livenessProbe"]
    assert startup["failureThreshold"] * startup.get("periodSeconds", 10) >= 3600
    # Until it has succeeded once there is no other probe, so none needs a delay.
    assert "initialDelaySeconds" not in liveness and startup["exec"]["command"][:2] == liveness["exec"]["command"][:2]


def test_the_daemon_backs_up_as_it_is_told(fake_daemon):
    def arguments(*values):
        (daemon,) = pod("daemonset", *values)["containers"]
        return [a for a in daemon["args"] if a.startswith("--backup")]

    assert arguments() == []
    made = arguments("daemonset.backup.every=6h", "daemonset.backup.keep=3", "daemonset.backup.dir=/copies")
    assert made == ["--backup-dir=/copies", "--backup-every=6h", "--backup-keep=3"]
    fake_daemon(*made).start()


def test_alerts_are_for_the_mode_in_which_something_is_scraped():
    for mode in MODES:
        kinds = rendered(f"mode={mode}", "metrics.podMonitor=true", "metrics.prometheusRule=true").keys()
        assert (kinds >= {"PodMonitor", "PrometheusRule"}) == (mode == "daemonset"), kinds
        assert bool(kinds & {"PodMonitor", "PrometheusRule"}) == (mode == "daemonset"), kinds


def test_the_pods_agent_delivers_what_its_daemon_tuned(fleet, fake_daemon, cli, short_dir):
    """The container's own command, with its secret as Kubernetes mounts it."""
    spec = pod_spec(stored("daemonset-fleet"))
    (agent,) = [container for container in spec["containers"] if container["name"] == "fleet"]
    daemon = fake_daemon().start()
    cli(daemon).ok("tune", numbered(1))
    volumes = {volume["name"]: short_dir / volume["name"] for volume in spec["volumes"]}
    for folder in volumes.values():
        folder.mkdir()
    (volumes["socket"] / "convtune.sock").symlink_to(daemon.socket)
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "fleet"]
    secret = volumes["fleet"] / "fleet.conf"
    secret.write_text(fleet.conninfo)
    # Only root's files may be readable by a group, as those of a secret are.
    secret.chmod(volume["secret"]["defaultMode"] if os.geteuid() == 0 else 0o400)

    inside = pod_mounts(agent, volumes)
    assert agent["command"] == ["convtune-fleet"]
    arguments = [a for a in agent["args"] if not a.startswith("--metrics-address=")]  # a port of this machine
    (node,) = [variable for variable in agent["env"] if variable["name"] == "CONVTUNE_NODE"]
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    env = {name: value for name, value in os.environ.items() if not name.startswith("CONVTUNE_")}
    env |= {"CONVTUNE_NODE": "gpu-node-7"} | {v["name"]: inside(v["value"]) for v in agent["env"] if "value" in v}
    probe = agent["livenessProbe"]["exec"]["command"]
    assert probe[0] == "convtune-fleet" and subprocess.run([fleet.binary, *probe[1:]], env=env, capture_output=True).returncode == 1
    process = subprocess.Popen([fleet.binary, *map(inside, arguments)], env=env, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: process.poll() is not None or fleet.number("SELECT COUNT(*) FROM evidence") == 1, 30, "delivery")
        assert process.poll() is None, process.stderr.read()
        assert [n["name"] for n in fleet.status()["nodes"]] == ["gpu-node-7"]
        assert subprocess.run([fleet.binary, *probe[1:]], env=env, capture_output=True).returncode == 0
    finally:
        process.terminate()
        process.communicate(timeout=30)
