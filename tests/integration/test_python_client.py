"""The Python package against a daemon."""

import sys
import time

import pytest

from harness import python_package

PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in range(1, 4)]

# As the README shows it.
FIVE_LINES = """
import sys, convtune
client = convtune.Client(sys.argv[1])
for result in client.get(sys.argv[2:], on_miss="tune"):
    print(result.problem, result.winner.text if result.winner else result.message)
"""


@pytest.fixture(scope="module")
def ct():
    sys.path.insert(0, str(python_package.install()))
    import convtune

    return convtune


def test_five_lines_get_answers(fake_daemon):
    daemon = fake_daemon().start()
    result = python_package.run("-c", FIVE_LINES, daemon.address, *PROBLEMS)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3 and all(" graph:eng" in line or " legacy:algo" in line for line in lines), lines


def test_answers_constraints_and_misses(ct, fake_daemon):
    daemon = fake_daemon().start()
    with ct.Client(daemon.address) as client:
        (miss,) = client.get(PROBLEMS[:1])
        assert (miss.answer, miss.miss) == (None, "not_found")
        assert client.tune(PROBLEMS[:2]) == []
        found = client.get([PROBLEMS[1], PROBLEMS[0], PROBLEMS[2]])
        assert [r.winner is not None for r in found] == [True, True, False]
        answer = found[0].answer
        assert answer.evidence in ("incomplete", "measured") and answer.environment == "nvidia-h200"
        assert (answer.winner.engine_index is None) != (answer.winner.algorithm is None)
        (tight,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_workspace_bytes=0))
        assert tight.winner is None or tight.winner.workspace_bytes == 0
        assert client.info().version


def test_a_refused_problem_names_field_and_rule(ct, bare_daemon, fake_daemon):
    client = ct.Client(fake_daemon().start().address)
    with pytest.raises(ct.ConvtuneError) as error:
        client.get(["fwd,x=1x64x7x7,w=64x63x3x3"])
    assert error.value.code == "INVALID_ARGUMENT" and "w_dims[1]" in str(error.value)
    (result,) = client.resolve(["fwd,x=1x64x7x7,w=64x63x3x3"])
    assert result.miss == "unavailable" and "w_dims[1]" in result.message


def test_without_a_daemon_resolve_is_back_in_time_and_get_raises(ct, tmp_path):
    client = ct.Client(f"unix:{tmp_path}/nobody")
    start = time.monotonic()
    results = client.resolve(PROBLEMS, timeout=0.3)
    assert [r.miss for r in results] == ["unavailable"] * 3
    assert time.monotonic() - start < 30
    with pytest.raises(ct.Unavailable):
        client.get(PROBLEMS, timeout=0.3)
    with pytest.raises(ValueError, match="mutual TLS"):
        ct.Client("localhost:1")


def test_unavailable_is_tried_again_until_the_daemon_is_there(ct, fake_daemon):
    daemon = fake_daemon()
    client = ct.Client(daemon.address)
    daemon.start(wait=False)
    assert client.get(PROBLEMS[:1], timeout=60)[0].miss == "not_found"


def test_warming_asks_only_for_what_is_missing(ct, fake_daemon):
    daemon = fake_daemon().start()
    workload = ct.Workload(
        ct.Problem("fwd", (n, 8, 16, 16), (8, 8, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), dtype="f16") for n in (1, 2, 3)
    )
    client = ct.Client(daemon.address)
    client.tune([workload[0]])
    progress = []
    first = ct.warm(workload, client, on_progress=lambda done, total: progress.append((done, total)))
    assert (first.hits, first.tuned, first.is_warm) == (1, 2, True)
    assert progress[-1] == (2, 2)
    requests = client.info().worker_requests
    second = ct.warm(workload, client)
    assert (second.hits, second.tuned) == (3, 0)
    assert client.info().worker_requests == requests


def test_warm_from_a_model_on_the_command_line(fake_daemon, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weight = helper.make_tensor("w", 1, (8, 8, 3, 3), bytes(8 * 8 * 9 * 4), raw=True)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, ["n", 8, 16, 16])],
        [helper.make_tensor_value_info("y", 1, None)], [weight],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    daemon = fake_daemon().start()
    command = ["-m", "convtune", "warm", path, "--batch", "1,8,32", "--address", daemon.address]
    first = python_package.run(*command)
    assert first.returncode == 0 and "0 had an answer, 3 were tuned" in first.stdout, (first.stdout, first.stderr)
    assert "3 had an answer, 0 were tuned" in python_package.run(*command).stdout
    daemon.stop()
    nobody = (*command[:-1], f"unix:{tmp_path}/nobody", "--timeout", "0.5")
    assert python_package.run(*nobody).returncode == 4


@pytest.mark.ci
def test_every_public_part_is_typed():
    pytest.importorskip("mypy")
    result = python_package.run(
        "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", "/dev/null", "-p", "convtune",
        "--exclude", "v1/", "--follow-imports", "silent",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:]
