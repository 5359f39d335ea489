"""Fixtures: the programs under test come from $CONVTUNE_BUILD_DIR/bin."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from harness import clean  # first: whatever follows meets the environment that it leaves
from harness import postgres, python_package
from harness.certificates import Certificates
from harness.cli import Cli
from harness.daemon import Daemon
from harness.fakes import script
from harness.fleet import Fleet
from harness.preload import Machine
from harness.simgpu import Bench, SimulatedGpu

REPO = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(os.environ.get("CONVTUNE_BUILD_DIR", REPO / "build")).resolve() / "bin"


def pytest_addoption(parser):
    parser.addoption("--ci", action="store_true", help="also what is left out to keep the default suite short")
    parser.addoption("--long", action="store_true", help="that, also what takes longer, and the full numbers")


def pytest_configure(config):
    config.addinivalue_line("markers", "ci: runs with --ci and --long only")
    config.addinivalue_line("markers", "long: runs with --long only")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    left_out = {"long": "takes longer; runs with --long"}
    if not config.getoption("--ci"):
        left_out["ci"] = "takes longer; runs with --ci"
    for item in items:
        for marker, reason in left_out.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


def find_program(name):
    """Where it was built; None if it was not."""
    folders = [PROGRAMS]
    # Under a sanitizer: what is not built so is the plain one.
    if "CONVTUNE_OTHER_BUILD_DIR" in os.environ:
        folders.append(pathlib.Path(os.environ["CONVTUNE_OTHER_BUILD_DIR"]).resolve() / "bin")
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def program(name):
    path = find_program(name)
    if path is None:
        pytest.fail(f"{PROGRAMS / name} is not built")
    return path


@pytest.fixture(scope="session")
def long_run(request):
    """True with --long."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def convtuned():
    return program("convtuned")


@pytest.fixture(scope="session")
def convtune():
    return program("convtune")


@pytest.fixture(scope="session")
def fake_worker():
    return program("convtune-fake-worker")


@pytest.fixture(scope="session")
def worker():
    """The real worker; skips where it was not built."""
    path = find_program("convtune-worker")
    if path is None:
        pytest.skip("convtune-worker was not built (no cuDNN)")
    return path


@pytest.fixture
def short_dir():
    """A directory whose path leaves room for a socket's name (108 bytes)."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ct-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemons(request, convtuned):
    """daemons(*args, env=None, **) makes a Daemon that ends with the test."""
    made = []

    def make(*args, env=None, directory=None, listen=None):
        directory = directory or pathlib.Path(tempfile.mkdtemp(prefix="ct-"))
        daemon = Daemon(convtuned, directory, args, env=env, listen=listen)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.close()
        report = getattr(request.node, "call_report", None)
        if report is not None and report.failed:
            print(f"--- log of {daemon.address}\n{daemon.log()[-6000:]}")
        shutil.rmtree(daemon.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def module_daemon(convtuned):
    """module_daemon(*args, env=None) makes a Daemon that ends with the module."""
    made = []

    def make(*args, env=None):
        made.append(Daemon(convtuned, tempfile.mkdtemp(prefix="ct-"), args, env=env))
        return made[-1]

    yield make
    for daemon in made:
        daemon.close()
        shutil.rmtree(daemon.directory, ignore_errors=True)


@pytest.fixture
def fake_daemon(daemons, fake_worker):
    """fake_daemon(script=None, *args) makes one with a GPU that is not there."""

    def make(*args, env=None, **kwargs):
        return daemons("--devices", "0", "--worker", fake_worker, *args, env=env, **kwargs)

    return make


@pytest.fixture
def simulated_gpu(tmp_path):
    """What the GPU of `simulated_daemon` is like; skips where the real worker was not built."""
    if find_program("convtune-worker-sim") is None:
        pytest.skip("convtune-worker-sim was not built (no cuDNN)")
    return SimulatedGpu(tmp_path / "gpu", PROGRAMS.parent / "tests" / "fakes" / "nvml")


@pytest.fixture
def simulated_daemon(daemons, simulated_gpu):
    """simulated_daemon(*args, **settings of the GPU) makes one whose worker is the real one, on a GPU of software."""

    def make(*args, **settings):
        worker = find_program("convtune-worker-sim")
        return daemons("--devices", "0", "--worker", worker, *args, env=simulated_gpu.env(**settings))

    return make


@pytest.fixture
def bench(simulated_daemon, simulated_gpu, cli):
    """bench(*faults, **settings) starts a daemon on a GPU with these faults."""

    def make(*faults, hang_timeout="2s", **settings):
        simulated_gpu.script(*faults)
        daemon = simulated_daemon("--hang-timeout", hang_timeout, **settings).start()
        return Bench(daemon, cli(daemon), simulated_gpu)

    return make


@pytest.fixture
def bare_daemon(daemons):
    """One without any device."""
    return daemons("--devices", "none")


@pytest.fixture
def mounts():
    """mounts(*args of mount) mounts until the test ends; skips who may not."""
    made = []

    def mount(*args):
        done = subprocess.run(["mount", *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip("only root can mount" if os.geteuid() else f"nothing can be mounted here: {done.stderr.strip()}")
        made.append(str(args[-1]))

    yield mount
    for path in reversed(made):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


@pytest.fixture
def emptied():
    """emptied(*folders) begins a command that finds these folders empty, and cannot write to them."""

    def make(*folders):
        mount = " && ".join(f"mount -t tmpfs -o ro none '{folder}'" for folder in folders)
        command = ["unshare", "--mount", "sh", "-c", mount + ' && exec "$@"', "sh"]
        if subprocess.run([*command, "true"], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        return command

    return make


@pytest.fixture
def cli(convtune):
    """cli(daemon) runs commands against it."""
    return lambda daemon=None, **kwargs: Cli(convtune, daemon.address if daemon else None, **kwargs)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.call_report = report


@pytest.fixture(scope="session")
def ct():
    """The Python package."""
    sys.path.insert(0, str(python_package.install()))
    import convtune.client

    return convtune


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def preload(tmp_path_factory):
    """Programs with the interposer; skips where it was not built."""
    if not (PROGRAMS.parent / "lib" / "libconvtune_preload.so").exists():
        pytest.skip("libconvtune_preload.so was not built (no cuDNN)")
    machine = Machine(PROGRAMS.parent, tmp_path_factory.mktemp("preload"))
    yield machine
    machine.check_reports()


@pytest.fixture
def counters(tmp_path):
    """Where the interposer writes its counters."""
    return tmp_path / "counters"


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server; skips where there can be none."""
    reason = postgres.why_not()
    if reason:
        pytest.skip(reason)
    server = postgres.Server()
    yield server
    server.close()


@pytest.fixture
def fleet(request, postgres_server, tmp_path):
    """A fleet's empty database, with its tables; skips without convtune-fleet."""
    path = PROGRAMS / "convtune-fleet"
    if not path.exists():
        pytest.skip("convtune-fleet was not built (deploy/install-deps brings libpq)")
    made = Fleet(path, postgres_server, tmp_path).migrate()
    yield made
    made.close()
    report = getattr(request.node, "call_report", None)
    if report is not None and report.failed:
        for agent in made.agents:
            print(f"--- log of agent {agent.node}\n{agent.log()[-3000:]}")


@pytest.fixture
def nodes(fleet, fake_daemon):
    """nodes(count, first=0) starts daemons with a GPU each, and an agent beside each."""

    def make(count, first=0, agents=True, agent_args=(), **keys):
        made = []
        for index in range(first, first + count):
            keys.setdefault("measure_delay_ms", 0)
            daemon = fake_daemon(env=script(**{**keys, "seed": keys.get("seed", 100 + index)}))
            daemon.node = f"node-{index}"
            made.append(daemon)
        for daemon in made:
            daemon.start(wait=False)
        for daemon in made:
            daemon.wait_ready()
            if agents:
                daemon.agent = fleet.agent(daemon.node, daemon, *agent_args)
        return made

    return make
