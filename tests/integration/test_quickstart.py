"""deploy/quickstart with the programs that are built: only what installs and compiles stands still."""

import os
import shutil
import subprocess

import pytest

from conftest import PROGRAMS, REPO

# Run by root in a mount namespace: the machine's own folders are not touched.
MACHINE = """
set -e
mount -t tmpfs none /var/lib
mount -t tmpfs none /run
mkdir -m 0750 /var/lib/convtune
chown nobody: /var/lib/convtune
"$1/deploy/quickstart"
"$1/deploy/quickstart" --stop
find /var/lib/convtune -mindepth 1
"""


@pytest.mark.ci
def test_root_leaves_nothing_in_the_state_directory_of_the_service(worker, convtune, short_dir):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount namespaces")
    checkout = short_dir / "checkout"
    (checkout / "deploy" / "examples").mkdir(parents=True)
    shutil.copy(REPO / "deploy" / "quickstart", checkout / "deploy")
    shutil.copy(REPO / "deploy" / "examples" / "resnet50.csv", checkout / "deploy" / "examples")
    (checkout / "build").symlink_to(PROGRAMS.parent)
    (checkout / ".venv").symlink_to(REPO / ".venv")
    tools = short_dir / "tools"
    tools.mkdir()
    for tool in (tools / "cmake", tools / "ninja", checkout / "deploy" / "install-deps"):
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    env = {**os.environ, "HOME": str(short_dir / "home"), "PATH": f"{tools}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if not name.startswith(("CONVTUNE_", "XDG_"))}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", MACHINE, "bash", checkout], env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert "answered from the database: 0 of 46" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("stopped convtuned"), done.stdout[-500:]
    assert (short_dir / "home/.local/state/convtune/convtune.db").exists()
