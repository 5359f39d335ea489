"""The worker without a GPU, with other versions of cuDNN than the one that it was built with."""

import json
import os
import subprocess

import pytest

from conftest import PROGRAMS, REPO
from harness import cudnn_versions
from harness.problems import VARIED

PROFILES = sorted(path.stem for path in (REPO / "deploy" / "profiles").glob("*.json"))


# GB/s as NVIDIA publishes it: what the memory's clock and its bus give.
BANDWIDTHS = {"nvidia-a100": 2039, "nvidia-h100": 3350, "nvidia-h200": 4800, "nvidia-l4": 300, "nvidia-rtx-4090": 1008, "nvidia-t4": 320}


@pytest.mark.parametrize("profile", PROFILES)
def test_clock_and_bus_of_a_profile_give_its_bandwidth(profile):
    properties = json.loads((REPO / "deploy" / "profiles" / f"{profile}.json").read_text())["properties"]
    per_clock = 2 * properties["memoryBusWidth"] / 8
    assert properties["memClockRateKHz"] * 1e3 * per_clock / 1e9 == pytest.approx(BANDWIDTHS[profile], rel=0.025)


@pytest.fixture(
    scope="module",
    params=[pytest.param(cudnn_versions.NEWEST, marks=pytest.mark.ci)]
    + [pytest.param(version, marks=pytest.mark.long) for version in cudnn_versions.OTHERS],
)
def cudnn(request, convtune, worker, tmp_path_factory):
    """The version, and the environment in which a program loads it."""
    folder = cudnn_versions.fetch(convtune, worker, request.param, tmp_path_factory.mktemp("versions"))
    return request.param, {**os.environ, "LD_LIBRARY_PATH": cudnn_versions.library_path(worker, folder)}


def test_the_deviceless_unit_tests_pass_with_it(cudnn):
    version, env = cudnn
    # Those of the libraries' files are about the cuDNN that the program was built with.
    done = subprocess.run(
        [PROGRAMS / "worker_cudnn_test", "--gtest_filter=*Deviceless*", "--gtest_brief=1"],
        capture_output=True, text=True, env=env, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0 and "[  PASSED  ]" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_driver_stub_comes_with_the_versions_that_need_one(cudnn):
    version, env = cudnn
    done = subprocess.run(
        [PROGRAMS / "worker_process_test", "--gtest_filter=*BringsADriverStub*", "--gtest_brief=1"],
        capture_output=True, text=True, env=env, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and "[  PASSED  ] 1 test" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_taken_and_answers(daemons, worker, cudnn, profile):
    version, env = cudnn
    daemon = daemons("--devices", "none", "--profile", profile, "--worker", worker, env=env).start()
    with daemon.client() as client:
        (environment,) = client.tuning.ListEnvironments().environments
        assert environment.cudnn_version == ".".join(version.split("+")[0].split(".")[:3])
        # A T4 has no bf16.
        results = client.get(*(text for text in VARIED[:8] if "bf16" not in text and "i8" not in text), on_miss="ON_MISS_HEURISTIC", timeout=300)
    assert {r.WhichOneof("outcome") for r in results} == {"answer"}
    assert all(r.answer.winner.text.startswith("graph:eng") for r in results)


def test_a_profile_without_memory_bus_width_is_refused_with_the_reason(worker, cudnn, tmp_path):
    """From 9.27 on; earlier versions take it."""
    version, env = cudnn
    profile = json.loads((REPO / "deploy" / "profiles" / "nvidia-h200.json").read_text())
    del profile["properties"]["memoryBusWidth"]
    (tmp_path / "old.json").write_text(json.dumps(profile))
    done = subprocess.run([worker, "--probe", "--profile", tmp_path / "old.json"], capture_output=True, text=True, env=env)
    probed = json.loads(done.stdout)
    if int(version.split(".")[1]) < 27:
        assert not probed["error"]
    else:
        assert "properties.memoryBusWidth: must be given from cuDNN 9.27 on" in probed["error"]
