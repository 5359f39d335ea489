"""What the chart and the compose file promise, with their own arguments, variables and volumes, as processes."""

import json
import re
import shutil
import subprocess
import time

import pytest
import yaml

from conftest import PROGRAMS, REPO
from harness import python_package
from harness.api import Client
from harness.chart import pod_spec, rendered, stored
from harness.containers import DOCKER, Compose, pod_mounts, stages
from harness.daemon import free_port, wait_until
from harness.pages import blocks
from harness.postgres import psql
from harness.problems import numbered

MANIFEST = REPO / "tests" / "data" / "helm" / "serving.yaml"
ASK = """
import sys, convtune
for result in convtune.Client("unix:/nobody").resolve(sys.argv[1:], timeout=0.1):
    print(result.source, result.winner.text if result.winner else result.message)
"""


def test_a_serving_pod_finds_what_its_init_container_left(convtuned, fake_worker, tmp_path):
    documents = [d for d in yaml.safe_load_all(MANIFEST.read_text()) if d]
    (deployment,) = [d for d in documents if d["kind"] == "Deployment"]
    (problems,) = [d for d in documents if d["kind"] == "ConfigMap"]
    spec = deployment["spec"]["template"]["spec"]
    volumes = {volume["name"]: tmp_path / volume["name"] for volume in spec["volumes"]}
    for folder in volumes.values():
        folder.mkdir()
    (volumes["problems"] / "problems.txt").write_text(problems["data"]["problems.txt"])

    (init,) = spec["initContainers"]
    inside = pod_mounts(init, volumes)
    command = [convtuned, *map(inside, init["args"]), "--devices", "0", "--worker", fake_worker]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    (server,) = spec["containers"]
    inside = pod_mounts(server, volumes)
    env = {variable["name"]: inside(variable["value"]) for variable in server["env"]}
    asked = problems["data"]["problems.txt"].split()
    answers = python_package.run("-c", ASK, *asked, env=env).stdout.splitlines()
    assert len(answers) == len(asked) and all(re.match("snapshot (graph|legacy):", line) for line in answers), answers
    # The server sees that and not the database.
    seen = inside(server["volumeMounts"][0]["mountPath"])
    assert seen == env["CONVTUNE_SNAPSHOT"] == str(volumes["state"] / "db" / "snapshot")


@pytest.fixture
def remote(fake_daemon, certificates, short_dir):
    """A daemon with the flags of the chart's Service, and how the pods of another namespace reach it: (daemon, container(name))."""
    tls = short_dir / "tls"
    tls.mkdir()
    for role, name in (("server", "tls"), ("client", "client-tls")):
        folder = short_dir / name
        folder.mkdir(exist_ok=True)
        for file, made in (("tls.crt", f"{role}.pem"), ("tls.key", f"{role}.key"), ("ca.crt", "ca.pem")):
            shutil.copy(certificates.path(made), folder / file)
    (container,) = pod_spec(stored("daemonset-service"))["containers"]
    inside = pod_mounts(container, {"tls": tls, "state": short_dir, "socket": short_dir, "tmp": short_dir})
    flags = [inside(a) for a in container["args"] if a.startswith(("--tls", "--role"))]
    assert len(flags) == 4, flags
    port = free_port()
    daemon = fake_daemon("--listen", f"localhost:{port}", *flags)

    spec = pod_spec(stored("serving-snapshot"))
    volumes = {volume["name"]: short_dir / volume["name"] for volume in spec["volumes"] if volume["name"] != "tls"}
    for folder in volumes.values():
        folder.mkdir()

    def made(name, **replaced):
        """A container's command, its variables, and where its folders are."""
        (found,) = [c for c in spec["initContainers"] + spec["containers"] if c["name"] == name]
        mounts = pod_mounts(found, {**volumes, "tls": short_dir / "client-tls"})
        env = {v["name"]: mounts(v["value"]) for v in found["env"]}
        env["PATH"] = f"{PROGRAMS}:/usr/bin:/bin"
        if "CONVTUNE_ADDRESS" in env:
            assert env["CONVTUNE_ADDRESS"] == "demo.convtune.svc:7070"
            env["CONVTUNE_ADDRESS"] = f"localhost:{port}"
        command = [mounts(word) for word in found.get("command", [])]
        for old, new in replaced.items():
            command = [re.sub(rf"(?<=--{old} )\S+", new, word) for word in command]
            command = [new if before == f"--{old}" else word for before, word in zip(["", *command], command)]
        return command, env

    return daemon, made


def ask(env, *problems):
    return python_package.run("-c", ASK, *problems, env=env).stdout.splitlines()


def test_a_pod_without_host_paths_takes_the_snapshot_of_a_daemon_over_mutual_tls(remote, cli):
    daemon, container = remote
    daemon.start()
    cli(daemon).ok("tune", numbered(1))
    command, env = container("convtune")
    wait_until(lambda: cli(daemon).ok("release", "list", "--json").json().get("promoted"), 20, "a release")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "wrote release 1 to " in done.stderr, done
    _, server = container("server")
    assert [line.split()[0] for line in ask(server, numbered(1))] == ["snapshot"]

    # The sidecar follows what is published, and ends when the pod does.
    command, env = container("snapshot", watch="100ms")
    sidecar = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        cli(daemon).ok("tune", numbered(2))
        wait_until(lambda: ask(server, numbered(2))[0].startswith("snapshot "), 30, "what was published since")
        daemon.stop()
        wait_until(lambda: sidecar.poll() is None and ask(server, numbered(2))[0].startswith("snapshot "), 5, "the last one")
    finally:
        sidecar.terminate()
        said = sidecar.communicate(timeout=15)[1]
    assert sidecar.returncode == 0 and "error: " in said, said

    # Its certificate may read and nothing else.
    daemon.start()
    refused = subprocess.run(["convtune", "delete", numbered(1)], env=env, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1, refused
    assert cli(daemon)("get", numbered(1)).code == 0


def test_a_pod_starts_without_a_daemon_unless_it_is_required(remote):
    _, container = remote
    command, env = container("convtune", wait="500ms")
    begun = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "no answer from the daemon" in done.stderr and time.monotonic() - begun < 30, done
    _, server = container("server")
    assert ask(server, numbered(1)), "the server runs, with misses"
    (required,) = pod_spec(rendered("mode=serving", "snapshot.address=a:1", "snapshot.required=true").values())["initContainers"]
    assert "||" not in required["command"][-1]


def test_a_damaged_snapshot_does_not_replace_a_sound_one(fake_daemon, cli, tmp_path):
    daemon = fake_daemon().start()
    run = cli(daemon)
    run.ok("tune", numbered(1))
    wait_until(lambda: run.ok("release", "list", "--json").json().get("promoted"), 20, "a release")
    first = run.ok("release", "fetch", tmp_path / "new" / "folder", "--json").json()
    file = tmp_path / "new" / "folder" / "current.snapshot"
    sound = file.read_bytes()
    assert first == {"file": str(file), "release": 1, "choices": 1, "bytes": len(sound)} and file.stat().st_mode & 0o777 == 0o644
    published = daemon.state_dir / "snapshot" / "current.snapshot"
    damaged = sound[:-1] + bytes([sound[-1] ^ 1])
    published.write_bytes(damaged)
    refused = run("release", "fetch", file.parent)
    assert refused.code == 1 and "not sound" in refused.err and file.read_bytes() == sound
    assert list(file.parent.iterdir()) == [file]
    # What was asked for is published again, and would fill the gap.
    wait_until(lambda: published.read_bytes() != damaged, 20, "a sound snapshot")
    published.unlink()
    assert run("release", "fetch", file.parent).code == 3
    assert "--watch: must be a" in run("release", "fetch", file.parent, "--watch", "often").err


def test_the_recipes_take_what_the_image_has():
    found = stages((DOCKER / "Dockerfile").read_text())
    shipped = {word for line in found["cuda"] if line.startswith("COPY") for word in line.split()[2:-1]}
    recipes = [block.text for block in blocks("deploy/docs/containers.md") if block.language == "dockerfile"]
    assert len(recipes) == 3
    copied = [line.split()[2:] for text in recipes for line in text.splitlines() if line.startswith("COPY --from=convtune")]
    assert copied and all(source in shipped for *sources, _ in copied for source in sources)
    there = {f"{target}{source.rpartition('/')[2]}" for *sources, target in copied for source in sources}
    named = re.findall(r"LD_PRELOAD=(\S+\.so)", (REPO / "deploy/docs/containers.md").read_text())
    assert named and set(named) <= there
    # A bundle lies where the daemon is told to look for it.
    (bundle,) = [text for text in recipes if "CONVTUNE_BASE" in text]
    assert re.search(r"COPY \S+ \S+ (\S+)\n", bundle)[1] == re.search(r"CONVTUNE_BASE=(\S+)", bundle)[1]


@pytest.mark.ci
def test_the_composed_fleet_takes_what_the_daemon_tuned(worker, short_dir, postgres_server):
    conninfo = postgres_server.database()
    # Everything but where PostgreSQL is.
    libpq = {"PGHOST": str(postgres_server.folder), "PGUSER": "postgres", "PGDATABASE": conninfo.rpartition("=")[2]}
    compose = Compose(PROGRAMS, short_dir, env=libpq)
    compose.up("daemon")
    try:
        compose.run("warm")
        compose.run("migrate")
        compose.up("fleet")
        wait_until(lambda: psql(conninfo, "SELECT COUNT(*) FROM evidence") != [["0"]], 60, "delivery")
        assert psql(conninfo, "SELECT name FROM nodes") == [["compose"]]
        compose.remove("fleet")
    finally:
        compose.close()


@pytest.mark.ci
def test_the_restart_demonstration(worker, short_dir):
    """Each step of the script: a container is a process, a volume a folder."""
    script = (DOCKER / "restart-demonstration").read_text().partition("\nesac\n")[2]
    steps = re.findall(r"^docker compose (?:--profile base )?(.+)$", script, re.MULTILINE)
    compose = Compose(PROGRAMS, short_dir)
    running, warmed = None, []
    try:
        for step in steps:
            verb, *_, service = step.split()
            if verb == "up":
                compose.up(service)
                running = service
            elif verb == "rm":
                compose.remove(service)
            elif service == "export":
                compose.run(service)
            elif verb == "run":
                summary = json.loads(compose.run(service, "--json"))
                socket = compose.mounts(running)("/run/convtune/convtune.sock")
                with Client(f"unix:{socket}") as client:
                    info = client.info()
                warmed.append((running, summary["hits"], summary["tuned"], summary["warm"], info.worker_starts))
    finally:
        compose.close()
    problems = warmed[0][2]
    assert problems > 10
    assert warmed[0][:4] == ("daemon", 0, problems, True) and warmed[0][4] > 0
    assert warmed[1:] == [("daemon", problems, 0, True, 0), ("base", problems, 0, True, 0)]
