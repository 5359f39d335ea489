"""What deploy/ holds: manifests, unit, images, configuration. Programs that read them are used where they are there."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from conftest import PROGRAMS
from harness import chart
from harness.chart import GOLDEN, stored, template
from harness.containers import stages
from harness.daemon import alive

REPO = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = REPO / "deploy"

# Each mode with the values that its golden output was made with.
MODES = {
    "serving": [],
    "serving-snapshot": ["--set", "snapshot.address=demo.convtune.svc:7070,server.podDisruptionBudget.maxUnavailable=1"],
    "job": ["--set", "state.claimName=tunings,base=/usr/share/convtune/base.bundle"],
    "daemonset": [],
    "daemonset-metrics": ["--set", "metrics.podMonitor=true,metrics.prometheusRule=true"],
    "daemonset-service": ["--set", "service.enabled=true,networkPolicy.enabled=true,daemonset.backup.every=6h"],
    "daemonset-fleet": ["--set", "metrics.podMonitor=true,fleet.enabled=true,daemonset.gpus=own"],
}


def pod_spec(mode):
    return chart.pod_spec(stored(mode))


@pytest.mark.parametrize("mode", MODES)
def test_the_chart_renders_as_before(mode):
    made = template("--set", f"mode={mode.split('-')[0]}", *MODES[mode])
    assert made.stdout == (GOLDEN / f"{mode}.yaml").read_text(), made.stderr


@pytest.mark.parametrize("mode", MODES)
def test_manifests_keep_to_the_schemas(mode):
    import kubernetes_validate

    for manifest in stored(mode):
        if manifest["kind"] in ("PodMonitor", "PrometheusRule"):
            continue  # the operator's, of which there is no schema here; test_alerts reads what they hold
        for version in ("1.27", "1.31", "1.36"):
            kubernetes_validate.validate(manifest, version, strict=True)


def restricted_violations(spec):
    """Rules of the restricted Pod Security Standard that the pod breaks."""
    pod = spec.get("securityContext", {})
    broken = [f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for volume in spec.get("volumes", []):
        broken += [f"volume {volume['name']} is a {kind}" for kind in volume.keys() - {"name"} - allowed]
    for container in spec.get("initContainers", []) + spec["containers"]:
        name, own = container["name"], container.get("securityContext", {})
        both = {**pod, **own}
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            broken.append(f"{name}: may gain privileges")
        if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
            broken.append(f"{name}: may be root")
        if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            broken.append(f"{name}: seccomp")
        capabilities = own.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            broken.append(f"{name}: capabilities")
        broken += [f"{name}: host port" for port in container.get("ports", []) if port.get("hostPort")]
    return broken


@pytest.mark.parametrize("mode", ["serving", "serving-snapshot", "job"])
def test_the_modes_that_say_so_pass_the_restricted_profile(mode):
    spec = pod_spec(mode)
    assert restricted_violations(spec) == []
    for container in spec.get("initContainers", []) + spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"], container["name"]


def test_the_nodes_folders_and_who_makes_them_keep_the_daemonset_out_of_restricted_namespaces():
    broken = [b for b in restricted_violations(pod_spec("daemonset")) if not b.startswith("folders: ")]
    assert broken == ["volume state is a hostPath", "volume socket is a hostPath"]


def test_the_arguments_in_the_manifests_are_flags_of_the_daemon(convtuned):
    flags = set(re.findall(r"--[a-z-]+", subprocess.run([convtuned, "--help"], capture_output=True, text=True).stdout))
    for mode in MODES:
        spec = pod_spec(mode)
        for container in spec.get("initContainers", []) + spec["containers"]:
            if container.get("command") != ["convtuned"]:
                continue  # other programs, which run in test_chart and test_containers
            used = {argument.split("=")[0] for argument in container.get("args", [])}
            assert used <= flags, (mode, used - flags)


def test_the_unit_is_hardened():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    unit = DEPLOY / "systemd" / "convtuned.service"
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=25", unit]
    result = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in result.stderr:
        pytest.skip("systemd-analyze is older than offline checks")
    assert result.returncode == 0, result.stdout[-400:] + result.stderr
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True).stderr
    left = [line for line in verified.splitlines() if "convtuned.service" in line and "is not executable" not in line]
    assert left == []


def test_the_daemon_tells_systemd_that_it_is_ready_alive_and_stopping(daemons, short_dir):
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(short_dir / "n"))
        notify.settimeout(60)
        env = {"NOTIFY_SOCKET": short_dir / "n", "WATCHDOG_USEC": "400000"}
        daemon = daemons("--devices", "none", env=env).start()
        assert notify.recv(100) == b"READY=1"
        assert notify.recv(100) == b"WATCHDOG=1"
        daemon.stop()
        said = set()
        while b"STOPPING=1" not in said:
            said.add(notify.recv(100))
        assert said <= {b"WATCHDOG=1", b"STOPPING=1"}


def test_every_key_of_the_configuration_file_is_a_flag_and_a_variable(convtuned, daemons, tmp_path):
    text = (DEPLOY / "convtuned.toml").read_text()
    keys = re.findall(r"^#([a-z-]+) = ", text, re.MULTILINE)
    help_text = subprocess.run([convtuned, "--help"], capture_output=True, text=True).stdout
    serving, _, rest = help_text.partition("With --once:")
    serving += rest.partition("With --once and --tune-wanted:")[2]
    flags = set(re.findall(r"^ *(?:-h,)?--([a-z-]+)", serving, re.MULTILINE)) - {"help", "version", "config", "once"}
    assert set(keys) == flags
    for key in keys:
        assert f"CONVTUNE_{key.upper().replace('-', '_')}" in help_text

    # The file itself is read: with the keys that need nothing of this machine.
    values = dict(re.findall(r"^#([a-z-]+) = (.*)$", text, re.MULTILINE))
    kept = ["idle-timeout", "hang-timeout", "drain-timeout", "max-db-size", "allow-network-fs", "log-format", "log-level"]
    config = tmp_path / "c.toml"
    config.write_text('devices = "none"\n' + "".join(f"{key} = {values[key]}\n" for key in kept))
    daemon = daemons("--config", config).start()
    assert alive(daemon.pid) and daemon.workers() == []
    config.write_text("no-such-key = 1\n")
    assert daemons("--config", config).start(wait=False).wait(30) == 2


def test_images_are_multi_stage_pinned_and_not_root():
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    found = stages(text)
    assert re.search(r"^ARG DEBIAN=debian:\d+\.\d+-slim@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    for image in ("cuda", "nogpu"):
        assert found[image][0].startswith("FROM runtime ")
        assert not any(line.startswith(("USER", "RUN", "ADD")) for line in found[image])
    runtime = found["runtime"]
    assert "USER 65532:65532" in runtime and any(line.startswith("HEALTHCHECK") for line in runtime)
    assert not any(line.startswith("COPY") for line in runtime)
    # No compiler and no header in what is shipped.
    assert "-dev" not in " ".join(runtime)
    assert [line for line in text.splitlines() if line.startswith("ADD")] == []


@pytest.mark.ci
@pytest.mark.parametrize("image", ["cuda", "nogpu"])
def test_what_an_image_copies_its_build_stage_installs(image, request, tmp_path):
    found = stages((DEPLOY / "docker" / "Dockerfile").read_text())
    if image == "cuda":
        request.getfixturevalue("worker")
    build = " ".join(found[f"build-{image}"])
    listed = re.search(r"for part in ([^;]*);", build)
    parts = listed[1].split() if listed else re.findall(r"--component (\w+)", build)
    assert parts
    for part in parts:
        subprocess.run(
            ["cmake", "--install", PROGRAMS.parent, "--prefix", tmp_path / "usr", "--component", part],
            check=True, capture_output=True,
        )  # fmt: skip
    copied = [word for line in found[image] if line.startswith(f"COPY --from=build-{image}") for word in line.split()[2:-1]]
    assert copied
    for path in copied:
        assert path == "/opt/cuda/lib" or (tmp_path / path.lstrip("/")).exists(), path


@pytest.mark.ci
def test_the_image_has_every_library_that_the_programs_need(convtuned, convtune):
    if shutil.which("dpkg-query") is None or "VERSION_ID=\"12\"" not in pathlib.Path("/etc/os-release").read_text():
        pytest.skip("the images are Debian 12")
    runtime = " ".join(stages((DEPLOY / "docker" / "Dockerfile").read_text())["runtime"])
    needed = set()
    built = [PROGRAMS / "convtune-worker", PROGRAMS / "convtune-fleet", PROGRAMS.parent / "lib" / "libconvtune_preload.so"]  # not everywhere
    for program in (convtuned, convtune, *filter(pathlib.Path.exists, built)):
        listed = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
        needed |= set(re.findall(r"NEEDED +(\S+)", listed))
    # cuDNN and the CUDA runtime are the image's own, in /opt/cuda/lib.
    for library in (name for name in needed if not re.match("lib(cudnn|cudart|cublas|nv)", name)):
        owners = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True).stdout
        packages = {line.split(":")[0] for line in owners.splitlines()}
        essential = {"libc6", "libstdc++6", "libgcc-s1"}  # libgrpc++ brings the last two
        assert packages & essential or any(p in runtime.split() for p in packages), (library, packages)


def test_every_program_that_can_be_built_has_its_package():
    """Nothing else says so: cpack is content with fewer."""
    build = PROGRAMS.parent
    packed = re.search(r'^set\(CPACK_COMPONENTS_ALL "(.*)"\)$', (build / "CPackConfig.cmake").read_text(), re.MULTILINE)[1].split(";")
    targets = {"worker": "convtune-worker", "fleet": "convtune-fleet", "preload": "convtune_preload", "python": "convtune_python_messages"}
    known = {line.split()[0] for line in (build / "convtune-targets.txt").read_text().splitlines()}
    assert set(packed) == {"convtune", "libconvtune", "libconvtune-dev", *(name for name, target in targets.items() if target in known)}


def test_compose_is_as_strict_as_the_manifests():
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("candidate, there", [("1.2-3", True), ("(none)", False)])
def test_a_package_is_available_however_long_its_version_table_is(tmp_path, candidate, there):
    """apt-cache goes on printing after the line that decides; it must not be taken for one that failed."""
    apt_cache = tmp_path / "apt-cache"
    apt_cache.write_text(
        "#!/bin/sh\n"
        f"printf 'chromium:\\n  Installed: (none)\\n  Candidate: {candidate}\\n  Version table:\\n'\n"
        "seq 100000\n"
    )
    apt_cache.chmod(0o755)
    script = (REPO / "tests/install-optional").read_text()
    (function,) = re.findall(r"^available\(\).*$", script, re.MULTILINE)
    ran = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{function}\navailable chromium"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
    )
    assert (ran.returncode == 0) == there, ran.stderr
