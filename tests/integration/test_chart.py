"""What the chart's values do, mode by mode; test_deploy has its stored manifests and test_containers runs a pod of them."""

import os
import subprocess

import pytest

from harness.chart import pod_spec, rendered, stored, template
from harness.containers import pod_mounts
from harness.daemon import wait_until
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
    assert spec.get("runtimeClassName") == ("nvidia" if mode == "daemonset" else None)
    assert spec.get("nodeSelector") == ({"nvidia.com/gpu.present": "true"} if mode == "daemonset" else None)


def test_nothing_is_said_of_nodes_where_all_is_empty():
    spec = pod("daemonset", "tolerations=null", "daemonset=null")
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
    assert daemon["volumeMounts"][-1] == {"name": "keys", "mountPath": "/keys"}
    assert spec["volumes"][-1] == {"name": "keys", "secret": {"secretName": "keys"}}


def test_a_server_has_its_own_variables_beside_the_snapshots_and_its_probes():
    (server,) = pod(
        "serving", "server.env[0].name=LD_PRELOAD", "server.env[0].value=/usr/lib/x.so",
        "server.probes.readinessProbe.httpGet.path=/ready", "server.probes.readinessProbe.httpGet.port=http",
    )["containers"]  # fmt: skip
    assert [variable["name"] for variable in server["env"]] == ["CONVTUNE_SNAPSHOT", "LD_PRELOAD"]
    assert server["readinessProbe"] == {"httpGet": {"path": "/ready", "port": "http"}}


def test_the_chart_refuses_another_mode_and_an_agent_where_no_daemon_stays():
    refused = template("--set", "mode=other")
    assert refused.returncode != 0 and "mode: must be serving, job or daemonset" in refused.stderr
    refused = template("--set", "mode=job,fleet.enabled=true")
    assert refused.returncode != 0 and "fleet.enabled: is for mode daemonset" in refused.stderr


def test_the_pod_monitor_reads_the_agent_too():
    (monitor,) = [m for m in stored("daemonset-fleet") if m["kind"] == "PodMonitor"]
    spec = pod_spec(stored("daemonset-fleet"))
    ports = {p["name"]: p["containerPort"] for c in spec["containers"] for p in c["ports"]}
    assert [e["port"] for e in monitor["spec"]["podMetricsEndpoints"]] == list(ports)
    (agent,) = [c for c in spec["containers"] if c["name"] == "fleet"]
    assert f"--metrics-address=0.0.0.0:{ports['fleet-metrics']}" in agent["args"]


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
    env["CONVTUNE_NODE"] = "gpu-node-7"
    process = subprocess.Popen([fleet.binary, *map(inside, arguments)], env=env, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: process.poll() is not None or fleet.number("SELECT COUNT(*) FROM evidence") == 1, 30, "delivery")
        assert process.poll() is None, process.stderr.read()
        assert [n["name"] for n in fleet.status()["nodes"]] == ["gpu-node-7"]
    finally:
        process.terminate()
        process.communicate(timeout=30)
