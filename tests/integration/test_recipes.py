"""deploy/examples' servers that are not C++, as deploy/docs/recipes.md has them, without a GPU."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest

from conftest import PROGRAMS, REPO
from harness import python_package
from harness.daemon import free_port, wait_until
from harness.needs import missing
from harness.preload import ALL, Problem, candidates, ids, read_counters, stock_field

EXAMPLES = REPO / "deploy/examples"

# What ComfyUI does with a folder of custom_nodes, in its order: prestartup_script.py, torch, __init__.py. In place of
# torch comes a library that links cuDNN as torch does.
COMFYUI = """
import ctypes, importlib.util, logging, os, sys
folder, library = sys.argv[1:3]
logging.basicConfig(level=logging.INFO, format="%(message)s")

def execute(name, file):
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

execute(os.path.join(folder, "prestartup_script"), "prestartup_script.py")
assert "torch" not in sys.modules
torch = ctypes.CDLL(library)
assert execute(folder.replace(".", "_x_"), "__init__.py").NODE_CLASS_MAPPINGS is not None
arguments = (ctypes.c_char_p * len(sys.argv[2:]))(*map(str.encode, sys.argv[2:]))
sys.exit(torch.raw_main(len(arguments), arguments))
"""


@pytest.fixture
def comfyui(preload, tmp_path):
    """comfyui(folder, **variables) runs one convolution; what cuDNN listed, and what ComfyUI's log has."""

    def run(folder, **variables):
        env = preload.env(None, PYTHONPATH=str(python_package.install()), CONVTUNE_PRELOAD_LIBRARY=str(preload.preload),
                          CONVTUNE_SNAPSHOT=str(folder), CONVTUNE_PRELOAD_COUNTERS=str(tmp_path / "counters"), **variables)  # fmt: skip
        node = EXAMPLES / "comfyui_convtune"
        calls = preload.lib / "libconvtune_raw_calls.so"
        done = preload.run([sys.executable, "-c", COMFYUI, str(node), str(calls), *preload.raw_args(Problem(), ALL, "modes=a")], env)
        return ids(json.loads(done.stdout)["modes"][0]), done.stderr

    return run


def test_comfyui_gets_the_stored_winner_first_within_the_limit(preload, comfyui, tmp_path):
    stock = preload.stock(Problem(), ALL)["modes"][0]
    known = candidates(stock)
    winner = next(c for c in known[1:] if c.workspace <= known[0].workspace)
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, preload.choice(Problem(), winner.field(), stock_field(known[0])))
    listed, said = comfyui(folder)
    assert listed == [winner.id, *ids(stock)]
    assert said == "convtune: stored winners come first, with a workspace of at most 256MiB\n"
    (counted,) = read_counters(tmp_path / "counters")
    assert (counted["policy"], counted["plans_served"], counted["limited"]) == ("reorder", 1, 0)
    # The limit is the user's where there is one.
    least = min(c.workspace for c in known)
    assert least < max(c.workspace for c in known), "nothing to leave out"
    listed, said = comfyui(folder, CONVTUNE_PRELOAD_MAX_WORKSPACE=f"{least}B")
    assert set(listed) <= {c.id for c in known if c.workspace <= least} and f"at most {least}B" in said


def test_comfyui_without_a_snapshot_runs_as_without_convtune(preload, comfyui, tmp_path):
    listed, said = comfyui(tmp_path)
    assert listed == ids(preload.stock(Problem(), ALL)["modes"][0])
    assert said.startswith(f"convtune: ComfyUI runs as without it: {tmp_path}/current.snapshot: No such file"), said


@pytest.mark.ci
def test_fastapi_tunes_first_and_is_ready_only_then(fake_daemon, tmp_path):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        missing("torch", "python3-torch")
    daemon = fake_daemon().start()
    packages = next((REPO / ".venv/lib").glob("python3*/site-packages"))
    path = [EXAMPLES, python_package.install(), packages, "/usr/lib/python3/dist-packages"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "CONVTUNE_ADDRESS": daemon.address,
           "CONVTUNE_SNAPSHOT": str(daemon.state_dir / "snapshot")}  # fmt: skip

    def run(*command):
        return subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=120)

    server = EXAMPLES / "fastapi_server.py"
    first, again = run(python, server), run(python, server)
    assert (first.returncode, again.returncode) == (0, 0), first
    assert [line.split(": ", 1)[1] for line in first.stdout.splitlines()] == ["2 problems: 0 had an answer, 2 were tuned, 0 have none"] * 2
    assert [line.split(": ", 1)[1] for line in again.stdout.splitlines()] == ["2 problems: 2 had an answer, 0 were tuned, 0 have none"] * 2
    port = free_port()
    command = [PROGRAMS / "convtune", "run", "--", python, "-m", "uvicorn", "fastapi_server:app", "--workers", "2", "--port", str(port)]
    with open(tmp_path / "log", "w") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as served:
        try:
            wait_until(lambda: (tmp_path / "log").read_text().count("Application startup complete") == 2, 60, "both workers")
            ready, shape = (json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/{at}", timeout=20)) for at in ("ready", "run/8"))
        finally:
            served.terminate()
    assert served.returncode == 0, (tmp_path / "log").read_text()
    assert ready["batch_sizes"] == [1, 8] and shape == {"shape": [8, 16, 32, 32]}
    daemon.stop()
    without = run(python, server)
    assert without.returncode == 1 and "Unavailable" in without.stderr, without
