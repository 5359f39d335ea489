"""`convtune lint`: what cuDNN itself lists for a profile, and that it times nothing on a GPU."""

import csv
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from harness import cudnn_shapes, cudnn_versions, shell
from harness.fakes import script

REPO = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = REPO / "tests" / "data" / "workloads" / "networks.csv"
RESNET = REPO / "deploy" / "examples" / "resnet50.csv"

NCHW = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nchw,f16"
NHWC = NCHW.replace("nchw", "nhwc")
ODD = "fwd,x=32x63x56x56,w=63x63x3x3,pad=1,nhwc,f16"
DEPTHWISE = "fwd,x=32x96x56x56,w=96x1x3x3,pad=1,groups=96,nhwc,f16"
PATCHES = "fwd,x=8x3x224x224,w=768x3x16x16,stride=16,nhwc,f16"
FP8 = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,e4m3"


@pytest.fixture
def profile(daemons, worker, cli):
    """A command line for a daemon with a profile, of an H200 unless it is said."""

    def make(name="nvidia-h200", **kwargs):
        return cli(daemons("--devices", "none", "--profile", name, "--worker", worker).start(), **kwargs)

    return make


def listed(run, problem):
    """What `explain` shows of the candidates that can be built: first choice, on tensor cores, least workspace."""
    rows = list(csv.DictReader(io.StringIO(run.ok("explain", problem, "--csv").out)))
    rows = sorted((r for r in rows if r["status"] == "finalized"), key=lambda r: int(r["heuristic_rank"]))
    tensor = [r for r in rows if "tensor-core" in r["notes"].split(";")]
    least = min((int(r["workspace_bytes"]) for r in tensor or rows))
    return rows[0]["candidate"], len(rows), len(tensor), least


def lint(run, path, *problems_then_options):
    """Findings by problem and kind."""
    problems = [p for p in problems_then_options if not p.startswith("--")]
    options = [p for p in problems_then_options if p.startswith("--")]
    path.write_text("\n".join(problems) + "\n")
    result = run("lint", path, "--json", "--fail-on=never", *options)
    assert result.code == 0, result
    texts = {short: run.ok("get", short, "--json").json()["results"][0]["problemText"] for short in problems}
    findings = {}
    for finding in result.json()["findings"]:
        (short,) = [s for s, text in texts.items() if text == finding["problem"]]
        findings[short, finding["finding"]] = finding
    return findings


def test_each_claim_is_what_the_lists_say(profile, tmp_path):
    run = profile()
    findings = lint(run, tmp_path / "list.txt", NCHW, NHWC, ODD, DEPTHWISE, PATCHES)
    assert set(findings) == {
        (NCHW, "layout"), (ODD, "tensor-cores"), (DEPTHWISE, "tensor-cores"), (PATCHES, "matrix-product")}  # fmt: skip

    copy = 32 * 64 * 56 * 56 * 2
    layout = findings[NCHW, "layout"]
    first, count, on_tensor_cores, least = listed(run, NCHW)
    assert least >= copy and listed(run, NHWC)[3] < copy
    assert f"{count} candidates, {on_tensor_cores} on tensor cores, first {first}" in layout["proof"][0]["candidates"]
    first, count, on_tensor_cores, _ = listed(run, NHWC)
    assert f"{count} candidates, {on_tensor_cores} on tensor cores, first {first}" in layout["proof"][1]["candidates"]
    assert ",nhwc," in layout["proposal"]

    odd = findings[ODD, "tensor-cores"]
    assert odd["severity"] == "warning" and odd["proposal"].startswith("fwd,x=32x64x56x56,w=64x64x3x3,")
    assert listed(run, ODD)[3] >= copy * 63 // 64

    # Eight groups in one are eight times the arithmetic.
    depthwise = findings[DEPTHWISE, "tensor-cores"]
    assert depthwise["severity"] == "notice" and "w=96x8x3x3" in depthwise["proposal"]
    assert any("8.00 times the arithmetic" in line["form"] for line in depthwise["proof"])
    # The first choice copies x for the patches, and would not for larger channels.
    assert findings[PATCHES, "matrix-product"]["severity"] == "warning"
    wide = "fwd,x=8x96x56x56,w=192x96x2x2,stride=2,nhwc,f16"
    assert lint(run, tmp_path / "list.txt", wide)[wide, "matrix-product"]["severity"] == "notice"

    assert findings[PATCHES, "matrix-product"]["proposal"].startswith("F.linear(x.unfold(2, 16, 16)")
    assert "1568x768 by 768x768" in findings[PATCHES, "matrix-product"]["message"]


def test_limits_and_types_without_engines(profile, tmp_path):
    run = profile()
    path = tmp_path / "list.txt"
    path.write_text(f"{FP8}\n{NCHW}\n")
    result = run("lint", path, "--max-workspace", "1MiB", "--json")
    assert result.code == 1, result
    kinds = {(f["row"].rsplit(":")[-1], f["finding"]): f for f in result.json()["findings"]}
    assert kinds["1", "no-candidate"]["severity"] == "error"
    workspace = kinds["2", "workspace"]
    assert workspace["severity"] == "warning" and "24.6 MiB" in workspace["message"], workspace
    assert listed(run, NCHW)[0] in workspace["proof"][0]["candidates"]
    assert "no-candidate" not in run.ok("lint", path, "--ignore=no-candidate").out


def test_f32_has_no_tensor_cores_without_tf32_nor_on_a_turing(profile, tmp_path):
    wide = NHWC.replace("f16", "f32")
    assert (wide, "tensor-cores") not in lint(profile(), tmp_path / "list.txt", wide)
    for run, options in ((profile(), ["--no-tf32"]), (profile("nvidia-t4"), [])):
        finding = lint(run, tmp_path / "list.txt", wide, *options)[wide, "tensor-cores"]
        assert ",f16," in finding["proposal"] and "0 on tensor cores" in finding["proof"][0]["candidates"]


@pytest.mark.ci
def test_networks_resnet_and_formats(profile):
    run = profile()
    nchw = run.ok("lint", RESNET, "--op", "fwd", "--batch", "32", "--dtype", "f16", "--json", "--fail-on=never")
    findings = nchw.json()["findings"]
    # The share of the arithmetic of the convolutions in question, most first.
    layouts = [f for f in findings if f["finding"] == "layout"]
    assert len(layouts) > 10
    assert [f["share"] for f in layouts] == sorted((f["share"] for f in layouts), reverse=True)
    assert sum(f["share"] for f in layouts) < 1.0001
    assert next(f["runs"] for f in layouts if "w=64x64x3x3" in f["problem"]) == 3
    nhwc = ("lint", RESNET, "--op", "fwd", "--batch", "32", "--dtype", "f16", "--layout", "nhwc")
    assert [f for f in run.ok(*nhwc, "--json").json()["findings"] if f["finding"] == "layout"] == []

    beside = run.ok(*nhwc, "--dtypes", "f16,f32", "--batches", "1,32", "--json").json()["variants"]
    assert [(v["dtype"], v["batch"]) for v in beside] == [
        ("f16", "32"), ("f16", "1"), ("f32", "1"), ("f32", "32")]  # fmt: skip
    assert all(v["problems"] == 23 and v["withoutCandidate"] == 0 for v in beside)

    annotations = run("lint", RESNET, "--op", "fwd", "--batch", "32", "--dtype", "f16", "--github", "--fail-on=warning")
    assert annotations.code == 1
    assert f"::warning file={RESNET},line=" in annotations.out
    # Every network is read, whatever its convolutions are; the 8-bit ones have engines of last resort alone.
    table = run.ok("lint", NETWORKS, "--op", "fwd", "--fail-on=never", "--csv")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert len(rows) > 500
    last_resort = [row for row in rows if row["finding"] == "last-resort"]
    assert len(last_resort) > 2
    for row in last_resort[:2]:
        assert ",i8," in row["problem"]
        candidates = run.ok("explain", row["problem"], "--json").json()["tuning"]["candidates"]
        assert all(c.get("modeAPlace", 0) == c.get("modeBPlace", 0) == 0 < c["fallbackPlace"] for c in candidates)
    assert "626 convolutions" in table.err


def test_on_a_gpu_nothing_is_timed(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    run = cli(fake_daemon(env=script(log=log)).start())
    (tmp_path / "list.txt").write_text(NCHW + "\n")
    run.ok("lint", tmp_path / "list.txt", "--fail-on=never")
    words = {line.split()[0] for line in log.read_text().splitlines()}
    assert "prepare" in words and not words & {"measure", "check"}, words
    # A tuning afterwards has all to do.
    assert run.ok("warm", tmp_path / "list.txt", "--json").json()["tuned"] == 1


def test_a_model_is_read_by_the_python_package(profile, tmp_path):
    onnx = pytest.importorskip("onnx")
    from harness import python_package
    from harness.onnx_models import model, node, tensor, zeros

    half, kernel = onnx.TensorProto.FLOAT16, (768, 3, 16, 16)
    patches = node("Conv", ["x", "w"], "y", strides=kernel[2:])
    onnx.save(model([patches], [tensor("x", ["n", 3, 224, 224], half)], zeros("w", kernel, half), elem_type=half), tmp_path / "vit.onnx")
    env = {"PYTHONPATH": str(python_package.install()), "CONVTUNE_PYTHON": sys.executable}
    result = profile(env=env)("lint", tmp_path / "vit.onnx", "--batch", "8", "--github", "--fail-on=warning")
    assert result.code == 1, result
    assert f"::warning file={tmp_path / 'vit.onnx'},title=convtune matrix-product::" in result.out


def test_what_a_model_lacks_is_not_taken_for_a_missing_package(cli, tmp_path):
    pytest.importorskip("onnx")
    from harness import python_package

    python_package.one_convolution(tmp_path / "model.onnx")
    env = {"PYTHONPATH": str(python_package.install()), "CONVTUNE_PYTHON": sys.executable}
    result = cli(None, env=env)("get", "--file", tmp_path / "model.onnx", "--dim", "height=224")
    assert result.code == 2 and "no input has a dimension named 'height'" in result.err, result
    assert "could not read the model" in result.err and "missing" not in result.err, result
    result = cli(None, env={**env, "PYTHONPATH": str(tmp_path)})("get", "--file", tmp_path / "model.onnx")
    assert result.code == 2 and "if the package is missing: pip install" in result.err, result
    result = cli(None, env=env)("get", tmp_path / "model.onnx", "--batch", "8")
    assert result.code == 2 and result.err == (
        f"error: PROBLEM: must be a problem, is {tmp_path}/model.onnx; a file is named with --file\n"
    ), result


def test_a_daemon_that_cannot_list_is_one_error(bare_daemon, cli, tmp_path):
    good = tmp_path / "good.txt"
    good.write_text(NHWC + "\n")
    run = cli(bare_daemon.start())
    for options, code, words in [
        ((), 1, "environment: the daemon knows no environment"),
        (("--environment", "H200"), 2, "environment: must be a name"),
    ]:
        result = run("lint", good, *options)
        assert (result.code, result.err.count("error: ")) == (code, 1) and words in result.err, result
    assert cli(None, env={"CONVTUNE_ADDRESS": f"unix:{tmp_path}/no"})("lint", good).code == 4


BACKWARD = "bwd_data,x=32x64x57x14,w=8x64x3x3,pad=1:2x0:0,stride=2,nchw,f16"
NOTHING = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nchw,e4m3"


@pytest.mark.ci
def test_why_says_what_a_daemon_lists_lint_finds_and_upgrade_check_compares(profile, cli, worker, convtune, tmp_path):
    """`convtune why` asks workers of its own; the other three commands get to the same numbers on other ways."""
    path = tmp_path / "list.txt"
    problems = [NCHW, ODD, DEPTHWISE, PATCHES, BACKWARD]
    path.write_text("\n".join(problems) + "\n")
    newest = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    alone = cli(None, env={"CONVTUNE_ADDRESS": f"unix:{tmp_path}/none"})
    rows = alone.ok("why", path, "--profile", "nvidia-h200,nvidia-t4", "--to", newest, "--json").json()["rows"]
    assert [(r["profile"], r["changed"] is None) for r in rows] == [
        ("nvidia-h200", True), ("nvidia-h200", False), ("nvidia-t4", True), ("nvidia-t4", False)]  # fmt: skip
    for own, other in (rows[:2], rows[2:]):
        run = profile(own["profile"])
        found = lint(run, path, *problems).values()
        for severity in ("error", "warning", "notice"):
            assert own[severity + "s"] == sum(f["severity"] == severity for f in found), severity
        plans, first_workspaces, least, differ = 0, [], [], 0
        for problem in problems:
            tuning = run.ok("explain", problem, "--json").json()["tuning"]
            candidates = [c for c in tuning["candidates"] if c["status"] == "CANDIDATE_STATUS_FINALIZED"]
            plans += sum("modeAPlace" in c or "fallbackPlace" in c for c in candidates)
            first = [[c["text"] for c in tuning["candidates"] if c.get(place) == 1] for place in ("modeAPlace", "modeBPlace")]
            differ += first[0] != first[1]
            rows_of_it = sorted(candidates, key=lambda c: c.get("heuristicRank", 0))
            first_workspaces.append(int(rows_of_it[0].get("workspaceBytes", 0)))
            least.append(min(int(c.get("workspaceBytes", 0)) for c in candidates))
        assert (own["plans"], own["mostWorkspaceBytes"], own["leastWorkspaceBytes"], own["modesDiffer"]) == (
            plans, max(first_workspaces), max(least), differ)  # fmt: skip
        assert own["plans"] > 50 and own["problems"] == 5 and own["withoutChoice"] == 0
        summary = alone.ok("upgrade-check", path, "--to", newest, "--profile", own["profile"], "--json").json()["profiles"][0]["summary"]
        assert other["changed"] == summary["choice"]
    assert sum(r["modesDiffer"] for r in rows) > 0 and any(r["changed"] for r in rows), "nothing that could be miscounted"


def test_why_ends_with_1_where_cudnn_has_no_choice_and_says_profiles_beside_each_other(cli, tmp_path):
    run = cli(None, env={"CONVTUNE_ADDRESS": f"unix:{tmp_path}/none"})
    path = tmp_path / "list.txt"
    path.write_text(f"{NHWC}\n{NOTHING}\n")
    result = run("why", path)
    assert result.code == 1 and len(result.out.splitlines()) == 7, result
    assert re.search(r"2 convolutions: the first choice is the same on all 6 profiles for [01]\n", result.err), result
    assert "Nothing was timed" in result.err
    assert run("why", path, "--profile", "nvidia-none").code == 2
    assert run("why", tmp_path / "none").code == 2


def test_why_without_a_profile_says_where_it_looked(convtune, emptied, tmp_path):
    (tmp_path / "list.txt").write_text(f"{NHWC}\n")
    profiles = REPO / "deploy" / "profiles"
    done = subprocess.run([*emptied(profiles), convtune, "why", tmp_path / "list.txt"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "", done
    assert "error: --profile: there is no profile in " in done.stderr and done.stderr.endswith(f" or {profiles}\n"), done.stderr


def test_why_does_not_take_a_worker_that_died_for_a_missing_choice(convtune, worker, tmp_path):
    source = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
int cudnnBackendFinalize(void *descriptor) {
  static int calls;
  if (++calls == 60) raise(SIGKILL);
  return ((int (*)(void *))dlsym(RTLD_NEXT, "cudnnBackendFinalize"))(descriptor);
}
"""
    shim = cudnn_shapes.library(tmp_path / "shim.so", source)
    # `why` starts the worker that is beside the program.
    shutil.copy(convtune, tmp_path / "convtune")
    shell.program(tmp_path / "convtune-worker", f'LD_PRELOAD={shim} exec {worker} "$@"')
    (tmp_path / "list.txt").write_text(f"{NHWC}\n{NOTHING}\n")
    done = subprocess.run(
        [tmp_path / "convtune", "why", tmp_path / "list.txt", "--profile", "nvidia-h200", "--json"], capture_output=True, text=True
    )  # fmt: skip
    [row] = json.loads(done.stdout)["rows"]
    assert done.returncode == 1 and (row["unknown"], row["withoutChoice"]) == (1, 1), done
    assert re.search(r"error: fwd,x=32x64x56x56,\S+: the worker died: signal 9 \(SIGKILL\)", done.stderr), done.stderr
