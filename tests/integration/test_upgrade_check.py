"""convtune upgrade-check with real cuDNN and no GPU."""

import csv
import io
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile

import onnx
import pytest
from onnx import TensorProto, helper

from conftest import PROGRAMS, REPO
from harness import cudnn_versions, python_package
from harness.fakes import script
from harness.problems import VARIED

BENCH = REPO / "tests" / "bench" / "cudnn_versions"
RESNET = (REPO / "deploy" / "examples" / "resnet50.csv", "--op", "fwd", "--dtype", "f16", "--layout", "nhwc")
NETWORKS = REPO / "tests" / "data" / "workloads" / "networks.csv"
EVERYTHING = "changed,workspace,notes,lost"


@pytest.fixture
def check(cli, worker):
    """check(*args, daemon=, env=) runs the verb."""

    def run(*args, daemon=None, env=None):
        return cli(daemon, env=env)("upgrade-check", *args, "--worker", worker)

    return run


@pytest.fixture(scope="module")
def own_cudnn(worker):
    said = subprocess.run([worker, "--libraries"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines())["cudnn"]


def rows_of(result):
    return list(csv.DictReader(io.StringIO(result.out)))


def test_the_plot_of_all_versions_is_that_of_the_page():
    bench = runpy.run_path(str(BENCH))
    versions, gpus, shares = bench["read_page"](bench["PAGE"].read_text())
    assert len(versions) == 28 and len(gpus) == 6 and shares["9.19.0.56", "A100"] == (54.3, 28.3)
    assert bench["PLOT"].read_text() == bench["plot"](versions, gpus, shares), f"draw it again: {BENCH} --plot"
    assert "<g>" not in bench["plot"](versions, gpus, {})


def test_the_same_cudnn_changes_nothing(check, own_cudnn, tmp_path):
    tune_list = tmp_path / "again.csv"
    args = (*RESNET, "--to", own_cudnn, "--profile", "nvidia-h200,nvidia-l4", "--fail-on", EVERYTHING)
    result = check(*args, "--csv", "--tune-list", tune_list)
    assert result.code == 0, result
    rows = rows_of(result)
    assert len(rows) == 2 * len({row["problem"] for row in rows}) and {row["change"] for row in rows} == {"same"}
    assert all(row["from"] == row["to"] and row["from"].startswith("graph:eng") for row in rows)
    assert {row["profile"] for row in rows} == {"nvidia-h200", "nvidia-l4"}
    assert tune_list.read_text() == "problem,count\n"
    assert "nothing was timed" in result.err and "0 (0.0%)" in result.err
    few = tmp_path / "few.txt"
    few.write_text(rows[0]["problem"] + "\n")
    args = (few, *args[len(RESNET) :])
    assert check(*args).out == ""  # the table has what changes alone
    document = check(*args, "--json").json()
    assert [p["profile"] for p in document["profiles"]] == ["nvidia-h200", "nvidia-l4"]
    assert document["profiles"][0]["summary"]["choice"] == 0


def test_winners_of_the_database_are_tried(check, daemons, worker, own_cudnn):
    daemon = daemons("--devices", "none", "--profile", "nvidia-a100", "--worker", worker).start()
    with daemon.client() as client:
        client.get(*VARIED[:8], on_miss="ON_MISS_HEURISTIC", timeout=300)
    result = check("--to", own_cudnn, "--csv", "--profile", "nvidia-a100", daemon=daemon)
    assert result.code == 0, result
    rows = rows_of(result)
    assert len(rows) == 8 and all(row["winner"].startswith("graph:eng") for row in rows)
    assert {row["winner_lost"] for row in rows} == {"false"}
    assert "of 8 stored winners 0 cannot be built any more" in result.err
    # An A100's winners on a T4: no version builds what needs compute capability 8.0, so no upgrade loses it.
    result = check("--to", own_cudnn, "--csv", "--profile", "nvidia-t4", "--fail-on", "lost", daemon=daemon)
    assert result.code == 0 and {row["winner_lost"] for row in rows_of(result)} == {"false"}, result


def test_bad_input_is_one_clear_error(check, own_cudnn, tmp_path, bare_daemon):
    empty = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
    )  # fmt: skip
    onnx.save(helper.make_model(empty), tmp_path / "relu.onnx")
    (tmp_path / "text").write_text("not a problem\n")
    cache = ("--cache", tmp_path / "cache")
    h200 = ("--profile", "nvidia-h200")
    python = {"CONVTUNE_PYTHON": sys.executable, "PYTHONPATH": str(python_package.install())}
    offline = {"CONVTUNE_PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    for args, env, code, words in (
        ((*RESNET, "--to", tmp_path, *h200), {}, 2, f"--to: there is no libcudnn.so.9 in {tmp_path}"),
        ((*RESNET, "--to", own_cudnn), {}, 2, "--profile: must be given"),
        ((*RESNET, "--to", own_cudnn, "--profile", "nvidia-none"), {}, 2, "--profile: nvidia-none is neither"),
        ((*RESNET, "--to", "9.28", *h200, *cache), offline, 1, "--to: PyPI cannot be reached"),
        ((tmp_path / "relu.onnx", "--to", own_cudnn, *h200), python, 2, "relu.onnx"),
        ((tmp_path / "text", "--to", own_cudnn, *h200), {}, 2, "text:1"),
        ((tmp_path / "none", "--to", own_cudnn, *h200), {}, 2, "No such file or directory"),
        ((*RESNET, "--to", own_cudnn, *h200, "--fail-on", "slower"), {}, 2, "--fail-on"),
    ):
        result = check(*args, env=env)
        assert result.code == code and words in result.err, result
        assert result.out == "" and result.err.count("error:") <= 1, result
    assert not [p for p in (tmp_path / "cache").iterdir() if p.name != "lock"]
    bare_daemon.start()
    result = check("--to", own_cudnn, *h200, daemon=bare_daemon)
    assert result.code == 2 and "FILE: must be given, since the database has no tunings" in result.err
    assert check("--to", own_cudnn, *h200, env={"CONVTUNE_ADDRESS": f"unix:{tmp_path}/none"}).code == 4


def test_a_worker_that_cannot_start_is_an_error_in_its_words(check, own_cudnn, tmp_path):
    (tmp_path / "broken.json").write_text("{}")
    result = check(*RESNET, "--to", own_cudnn, "--profile", tmp_path / "broken.json")
    assert result.code == 1 and "broken.json" in result.err and "deviceName" in result.err, result


def test_libraries_of_two_cudnns_are_named_where_cudnn_only_fails(check, own_cudnn, tmp_path):
    """As a system's cuDNN lends a library that a wheel lacks. cuDNN opens it, and then fails without its name."""
    name = "libcudnn_engines_runtime_compiled.so.9"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-o", tmp_path / name], check=True)
    result = check(*RESNET, "--to", own_cudnn, "--profile", "nvidia-h200", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert result.code == 1 and result.out == "", result
    assert f"cuDNN's libraries are mixed: {name} of folder {tmp_path}, and libcudnn" in result.err, result


def test_a_file_behind_a_list_of_names_is_a_file(check, own_cudnn):
    result = check("--to", own_cudnn, "--fail-on", "lost", RESNET[0], "--profile", "nvidia-h200", *RESNET[1:])
    assert result.code == 0, result
    result = check("--to", own_cudnn, *RESNET[1:], "--profile", "nvidia-h200", RESNET[0])
    assert result.code == 0 and "nvidia-h200, cuDNN 9." in result.err, result


def wrapped(tmp_path, worker, lines):
    """A worker that is another program first; what asks for its libraries gets the real one's."""
    path = tmp_path / "worker"
    path.write_text(f'#!/bin/sh\n[ "$1" != --libraries ] || exec \'{worker}\' "$@"\n{lines}\n')
    path.chmod(0o755)
    return path


def test_the_end_of_a_worker_is_seen_at_once(cli, worker, own_cudnn, tmp_path):
    dying = wrapped(tmp_path, worker, "kill -PIPE $$")
    result = cli(None)("upgrade-check", *RESNET, "--to", own_cudnn, "--profile", "nvidia-h200", "--worker", dying)
    assert result.code == 1 and "the worker died: signal 13 (SIGPIPE)" in result.err, result


def test_what_cudnn_says_of_the_driver_stub_is_left_out(cli, worker, own_cudnn, tmp_path):
    line = "Could not load symbol cuDriverGetVersion. Error: /proc/self/fd/4: undefined symbol: cuDriverGetVersion"
    saying = wrapped(tmp_path, worker, f"echo '{line}' >&2; echo 'other words' >&2; exec '{worker}' \"$@\"")
    result = cli(None)("upgrade-check", *RESNET, "--to", own_cudnn, "--profile", "nvidia-h200", "--worker", saying)
    assert result.code == 0 and "cuDriverGetVersion" not in result.err, result
    assert result.err.count("other words\n") == 2  # of both workers


@pytest.mark.ci
def test_what_makes_it_fail_is_said(check, convtune, worker, tmp_path):
    folder = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    args = (*RESNET, "--to", folder, "--profile", "nvidia-h200", "--csv")
    result = check(*args, "--fail-on", "changed,workspace,lost")
    rows = rows_of(result)
    changed = sum(row["change"] in ("knobs", "engine") for row in rows)
    grew = sum(int(row["to_workspace_bytes"]) > int(row["from_workspace_bytes"]) for row in rows)
    assert changed and grew and result.code == 1
    assert result.err.splitlines()[-1] == f"failed: changed ({changed}), workspace ({grew})"
    result = check(*args, "--fail-on", "lost")
    assert result.code == 0 and "failed" not in result.err, result
    # A growth that the rounded sizes do not show.
    (tmp_path / "one.txt").write_text("fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nchw,f16\n")
    result = check(tmp_path / "one.txt", "--to", folder, "--profile", "nvidia-h200", "--fail-on", "workspace")
    assert "6.2 MiB +131 B" in result.out and "(most: 6.2 MiB +131 B)" in result.err, result
    assert result.code == 1 and result.err.endswith("failed: workspace (1)\n"), result


@pytest.mark.ci
def test_a_first_choice_that_falls_to_last_resort_is_said(check, convtune, worker, own_cudnn, tmp_path):
    """9.28 lists no engine for f64 without padding in modes A and B that can be built."""
    new = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    (tmp_path / "f64.txt").write_text("fwd,x=4x64x28x28,w=128x64x3x3,f64\nfwd,x=4x64x28x28,w=128x64x3x3,f16\n")
    args = (tmp_path / "f64.txt", "--to", new, "--profile", "nvidia-h200", "--fail-on", "last-resort")
    result = check(*args)
    assert result.code == 1 and result.err.endswith("failed: last-resort (1)\n"), result
    assert "engine, last resort" in result.out and ", to an engine of last resort for 1;" in result.err, result
    f64, f16 = rows_of(check(*args, "--csv"))
    assert (f64["from_mode"], f64["to_mode"], f64["last_resort"]) == ("A", "FALLBACK", "true")
    assert (f16["from_mode"], f16["to_mode"], f16["last_resort"]) == ("A", "A", "false")
    [profile] = check(*args, "--json").json()["profiles"]
    assert profile["summary"]["lastResort"] == 1
    assert [(p["fromMode"], p["toMode"], p["lastResort"]) for p in profile["problems"]] == [
        ("A", "FALLBACK", True), ("A", "A", False)]  # fmt: skip
    back = check(args[0], "--from", new, "--to", own_cudnn, *args[3:])
    assert back.code == 0 and "last resort" not in back.out + back.err, back


def test_the_databases_cudnn_is_the_one_of_today(check, fake_daemon, own_cudnn, tmp_path):
    """Its tunings are of 9.12.0, the worker beside the command line is of another."""
    text = "nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full"
    daemon = fake_daemon(env=script(environment=text)).start()
    with daemon.client() as client:
        client.get(*VARIED[:3], on_miss="ON_MISS_TUNE", timeout=60)
    args = ("--to", own_cudnn, "--profile", "nvidia-h200", "--cache", tmp_path / "cache")
    offline = {"CONVTUNE_PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    result = check(*args, daemon=daemon, env=offline)
    assert result.code == 1 and "--from: PyPI cannot be reached" in result.err and "9.12.0" in result.err, result
    result = check(*args, "--from", own_cudnn, daemon=daemon, env=offline)
    assert result.code == 2 and "--from: must be the cuDNN of the database's 3 tunings, 9.12.0, is 9." in result.err, result
    assert result.out == ""


def test_a_folder_of_the_cache_with_another_version_is_refused(check, own_cudnn, tmp_path):
    for cuda in ("cu12", "cu13"):
        (tmp_path / f"{cuda}-9.99.0.1").mkdir()
        (tmp_path / f"{cuda}-9.99.0.1" / "lib").symlink_to(own_cudnn)
    result = check(*RESNET, "--to", "9.99", "--profile", "nvidia-h200", "--cache", tmp_path)
    assert (result.code, result.out) == (1, "") and "--cache: the worker took cuDNN 9." in result.err, result
    assert "in place of 9.99" in result.err, result


def test_a_file_that_is_no_library_is_an_error_at_once(check, tmp_path):
    """The worker ends before it says anything."""
    (tmp_path / "libcudnn.so.9").write_bytes(b"")
    result = check(*RESNET, "--to", tmp_path, "--profile", "nvidia-h200")
    assert result.code == 1 and f"error: cuDNN in {tmp_path}: the worker does not start: the worker died: exit status 127" in result.err, result
    assert "libcudnn.so.9: file too short" in result.err and result.out == ""


def make_wheel(folder, name, version, files=(), needs=()):
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files:
            wheel.writestr(path, content)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_the_cudnn_of_a_torch_is_that_of_its_metadata(check, worker, own_cudnn, tmp_path):
    """By the real pip, which has no network. The wheel's cuDNN is in the cache, and is the worker's own."""
    h200 = next((REPO / "deploy" / "profiles").glob("*h200.json"))
    probe = subprocess.run([worker, "--probe", "--devices", "none", "--profile", h200], capture_output=True, text=True)
    own = re.search(r"cudnn=([\d.]+)", json.loads(probe.stdout)["environment"])[1]
    for cuda in ("cu12", "cu13"):
        (tmp_path / "cache" / f"{cuda}-{own}.77").mkdir(parents=True)
        (tmp_path / "cache" / f"{cuda}-{own}.77" / "lib").symlink_to(own_cudnn)
    make_wheel(tmp_path, "torch", "2.15.0", needs=["filelock", f'nvidia-cudnn-cu13=={own}.77; platform_system == "Linux"'])
    env = {"CONVTUNE_PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    args = (*RESNET, "--profile", "nvidia-h200", "--cache", tmp_path / "cache")
    result = check(*args, "--from", own_cudnn, "--to", "torch==2.15", env=env)
    assert result.code == 0 and f"torch 2.15.0 needs cuDNN {own}.77+cu13" in result.err, result
    assert f"cuDNN {own} > {own}: 23 problems" in result.err, result
    make_wheel(tmp_path, "torch", "2.13.0")
    result = check(*args, "--to", "torch==2.99", env=env)
    assert result.code == 1 and "--to: PyPI has no torch 2.99: it has 2.13.0 to 2.15.0" in result.err and result.out == "", result


def test_a_disk_that_fills_while_a_wheel_is_unpacked_keeps_nothing(check, mounts, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounts("-t", "tmpfs", "-o", "size=8m", "none", disk)
    env = {"CONVTUNE_PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    args = (*RESNET, "--to", "9.27", "--profile", "nvidia-h200", "--cache", disk)
    entries = lambda: [path.name for path in disk.iterdir() if path.name != "lock"]
    # A wheel that is small until it is unpacked.
    zeros = lambda size: make_wheel(tmp_path, "nvidia_cudnn_cu13", "9.27.0.42", [("nvidia/cudnn/lib/libcudnn.so.9", bytes(size))])
    zeros(12 << 20)
    result = check(*args, env=env)
    assert result.code == 1 and result.err.count("error: ") == 1 and result.out == "", result
    assert "error: --to: pip could not get nvidia-cudnn-cu13: " in result.err, result
    assert "No space left on device" in result.err and entries() == [], result
    # With room for it the same wheel is unpacked and kept.
    zeros(1 << 20)
    result = check(*args, env=env)
    assert f"error: cuDNN in {disk}/cu13-9.27.0.42/" in result.err and entries() == ["cu13-9.27.0.42"], result


@pytest.mark.ci
def test_a_version_that_pypi_lacks_is_named(check, tmp_path):
    args = ("--from", "9.18", "--to", "9.99", "--profile", "nvidia-h200")
    result = check(*RESNET, *args, "--cache", tmp_path / "cache",
                   env={"CONVTUNE_PYTHON": sys.executable})  # fmt: skip
    if "PyPI cannot be reached" in result.err:
        pytest.skip("PyPI cannot be reached")
    assert result.code == 1 and "--to: PyPI has no nvidia-cudnn-cu13 9.99: it has 9.1" in result.err, result
    assert "getting nvidia-cudnn-cu12 9.18" not in result.err and "9.18 from" not in result.err, "the other version was downloaded"


@pytest.mark.ci
def test_three_hundred_problems_agree_with_a_program_of_raw_calls(check, convtune, worker, tmp_path):
    """First choices and workspaces under the newest version, and what changed since the pinned one."""
    folder = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    args = (NETWORKS, "--op", "fwd", "--dtype", "f16", "--layout", "nhwc", "--to", folder, "--profile", "nvidia-h200")
    rows = rows_of(check(*args, "--csv"))
    assert len(rows) > 290
    # Raw calls know the problem in fewer words.
    short = lambda text: ",".join(t for t in text.split(",") if t.split("=")[0] not in ("acc", "out", "align", "mode"))
    env = {**os.environ, "LD_LIBRARY_PATH": cudnn_versions.library_path(worker, folder)}
    stub = PROGRAMS.parent / "server" / "worker" / "libconvtune-driver-stub.so"
    done = subprocess.run(
        [sys.executable, BENCH, "--list", folder, stub, "nvidia-h200"], env=env, capture_output=True, text=True,
        input=json.dumps([short(row["problem"]) for row in rows]), timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    raw = json.loads(done.stdout.splitlines()[-1])["choices"]
    assert [[row["to"], int(row["to_workspace_bytes"])] for row in rows] == raw
    assert any(row["change"] == "engine" for row in rows)
