"""What the chart and the compose file promise, with their own arguments, variables and volumes, as processes."""

import json
import re
import subprocess

import pytest
import yaml

from conftest import PROGRAMS, REPO
from harness import python_package
from harness.api import Client
from harness.containers import DOCKER, Compose, pod_mounts

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
