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
"""


def quickstart(directory, script, build=PROGRAMS.parent, **programs):
    """Runs `script` on that machine, with quickstart in $1, and with programs beside those that do nothing."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount namespaces")
    checkout = directory / "checkout"
    (checkout / "deploy" / "examples").mkdir(parents=True)
    shutil.copy(REPO / "deploy" / "quickstart", checkout / "deploy")
    shutil.copy(REPO / "deploy" / "examples" / "resnet50.csv", checkout / "deploy" / "examples")
    (checkout / "build").symlink_to(build)
    (checkout / ".venv").symlink_to(REPO / ".venv")
    tools = directory / "tools"
    tools.mkdir()
    for name, text in {"cmake": "", "ninja": "", "nvidia-smi": "", **programs}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    shutil.copy(tools / "cmake", checkout / "deploy" / "install-deps")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CONVTUNE_", "XDG_"))}
    env |= {"HOME": str(directory / "home"), "PATH": f"{tools}:{env['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        ["unshare", "-m", "bash", "-c", MACHINE + script, "bash", checkout / "deploy" / "quickstart"],
        env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.ci
def test_root_leaves_nothing_in_the_state_directory_of_the_service(worker, convtune, short_dir):
    done = quickstart(short_dir, '"$1"; "$1" --stop; find /var/lib/convtune -mindepth 1')
    assert done.returncode == 0, done
    assert "answered from the database: 0 of 46" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("stopped convtuned"), done.stdout[-500:]
    assert (short_dir / "home/.local/state/convtune/convtune.db").exists()


@pytest.mark.ci
def test_what_a_daemon_without_a_gpu_says_is_not_called_measured_once_there_is_one(worker, convtune, short_dir):
    """As where the driver is installed between two runs."""
    gpu = short_dir / "gpu"
    done = quickstart(short_dir, f'"$1"; touch {gpu}; "$1"', **{"nvidia-smi": f"[ -e {gpu} ] && echo 'GPU 0: NVIDIA H200'"})
    assert "the daemon that runs was started without a GPU: starting it anew" in done.stdout, done
    assert "cuDNN heuristics for the H200 profile" in done.stdout and "measured" not in done.stdout
    assert done.returncode == 1 and "nvidia-smi lists a GPU, but convtuned has none to tune on" in done.stderr, done


@pytest.mark.ci
def test_a_gpu_that_the_daemon_cannot_use_is_no_success(worker, convtune, short_dir):
    done = quickstart(short_dir, '"$1"', **{"nvidia-smi": "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'"})
    assert done.returncode == 1, done
    assert " warning no device to tune on" in done.stderr
    assert "nvidia-smi lists a GPU, but convtuned has none to tune on" in done.stderr and "driver 580" in done.stderr
    assert "measured" not in done.stdout
    assert not (short_dir / "home/.local/state/convtune/quickstart.pid").exists()
