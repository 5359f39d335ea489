"""deploy/quickstart with the programs that are built: only what installs and compiles stands still."""

import pytest

from harness.pages import Machine


@pytest.fixture
def quickstart(short_dir):
    """quickstart(script, nvidia_smi="", build=None) types the script on a machine of its own."""

    def run(script, nvidia_smi="", build=None):
        machine = Machine(short_dir)
        machine.tool("nvidia-smi", nvidia_smi)
        if build:
            (machine.checkout / "build").unlink()
            (machine.checkout / "build").symlink_to(build)
        return machine.type(script, terminals=False, check=False)

    return run


@pytest.mark.ci
def test_root_leaves_nothing_in_the_state_directory_of_the_service(worker, convtune, quickstart, short_dir):
    done = quickstart("deploy/quickstart; deploy/quickstart --stop; find /var/lib/convtune -mindepth 1")
    assert done.returncode == 0, done
    assert "answered from the database: 0 of 46" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("stopped convtuned"), done.stdout[-500:]
    assert (short_dir / "home/.local/state/convtune/convtune.db").exists()


@pytest.mark.ci
def test_what_a_daemon_without_a_gpu_says_is_not_called_measured_once_there_is_one(worker, convtune, quickstart, short_dir):
    """As where the driver is installed between two runs."""
    gpu = short_dir / "gpu"
    done = quickstart(f"deploy/quickstart; touch {gpu}; deploy/quickstart", f"[ -e {gpu} ] && echo 'GPU 0: NVIDIA H200'")
    assert "the daemon that runs was started without a GPU: starting it anew" in done.stdout, done
    assert "cuDNN heuristics for the H200 profile" in done.stdout and "measured" not in done.stdout
    assert done.returncode == 1 and "nvidia-smi lists a GPU, but convtuned has none to tune on" in done.stderr, done


@pytest.mark.ci
def test_a_gpu_that_the_daemon_cannot_use_is_no_success(worker, convtune, quickstart, short_dir):
    done = quickstart("deploy/quickstart", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    assert done.returncode == 1, done
    assert " warning no device to tune on" in done.stderr
    assert "nvidia-smi lists a GPU, but convtuned has none to tune on" in done.stderr and "driver 580" in done.stderr
    assert "measured" not in done.stdout
    assert not (short_dir / "home/.local/state/convtune/quickstart.pid").exists()
