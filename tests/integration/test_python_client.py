"""The Python package against a daemon."""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from harness import python_package

PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in range(1, 4)]

REPO = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ct():
    sys.path.insert(0, str(python_package.install()))
    import convtune

    return convtune


def test_the_lines_of_the_page_get_answers(fake_daemon):
    page = (REPO / "client/python/README.md").read_text()
    shown = re.search(r"```python\n(import sys, convtune\n.*?)```", page, re.DOTALL)[1]
    daemon = fake_daemon().start()
    result = python_package.run("-c", shown, daemon.address, *PROBLEMS)
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
        # The fake GPU's first candidate is off by 1e-4, and each one behind it by as much again.
        (exact,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_error=1.5e-4, cache_state="hot"))
        assert exact.winner.text == "graph:eng0,k2=0"
        (none,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_error=1e-5))
        assert (none.answer, none.miss) == (None, "no_candidate")
        assert client.info().version


def test_a_refused_problem_names_field_and_rule_and_the_others_are_answered(ct, fake_daemon):
    client = ct.Client(fake_daemon().start().address, timeout=60)
    client.tune(PROBLEMS[:2])
    bad = "fwd,x=1x64x7x7,w=64x63x3x3"
    mixed = [PROBLEMS[0], bad, "no problem", PROBLEMS[1], "\ud800"]
    with pytest.raises(ct.ConvtuneError) as error:
        client.get([PROBLEMS[0], bad])
    assert error.value.code == "INVALID_ARGUMENT"
    assert error.value.fields == [("problems[1].text", "w_dims[1]: must be C/groups = 64/1 = 64, is 63")]
    with pytest.raises(ValueError, match=r"problems\[4\]: must be valid UTF-8"):
        client.get(mixed)
    results = client.resolve(mixed, timeout=60)
    assert [r.winner is not None for r in results] == [True, False, False, True, False]
    assert [r.miss for r in results] == ["", "refused", "refused", "", "refused"]
    assert "w_dims[1]" in results[1].message and "UTF-8" in results[4].message
    # What is wrong with the whole request is nobody's fault alone.
    wrong = ct.Client(client.address, environment="no-such").resolve(PROBLEMS[:2], timeout=60)
    assert [r.miss for r in wrong] == ["unavailable"] * 2 and "no-such" in wrong[0].message
    # Nor does a refused one keep the others from being tuned.
    summary = ct.warm([*PROBLEMS, bad], client)
    assert (summary.problems, summary.hits, summary.tuned, summary.is_warm) == (4, 2, 1, False)
    assert [reason for reason in summary.failures if "refused: " in reason and "w_dims[1]" in reason]


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
    client = ct.Client(daemon.address, timeout=60)
    daemon.start(wait=False)
    # A call that waits for a worker has no time limit, and waits for the daemon all the same.
    assert client.get(PROBLEMS[:1], on_miss="tune")[0].winner is not None
    assert client.get(PROBLEMS[1:2], timeout=60)[0].miss == "not_found"
    with pytest.raises(ct.Unavailable):
        ct.Client(f"{daemon.address}-nobody", timeout=0.2).get(PROBLEMS, on_miss="tune")


def test_a_daemon_that_starts_late_is_found_without_grpcs_own_polling(fake_daemon):
    daemon = fake_daemon()
    code = f"import convtune; print(convtune.Client({daemon.address!r}).resolve({PROBLEMS[:1]!r}, timeout=30)[0].miss)"
    env = os.environ | {"PYTHONPATH": str(python_package.install()), "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS": "100000"}
    asking = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    daemon.start(wait=False)
    assert asking.communicate(timeout=60)[0] == "not_found\n"


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


def test_warm_takes_models_and_lists(ct, fake_daemon, tmp_path):
    path = tmp_path / "m.onnx"
    model = python_package.one_convolution(path)
    client = ct.Client(fake_daemon().start().address)
    by_path = ct.warm(path, client, batch_sizes=[1, 2])
    assert (by_path.problems, by_path.tuned) == (2, 2)
    assert ct.warm(str(path), client, batch_sizes=[1, 2]).hits == 2
    assert ct.warm(model, client, batch_sizes=[2, 4]).tuned == 1
    # Texts, however they are written, and problems, in one list.
    same = [PROBLEMS[0], " fwd , f16,x=1x64x56x56 , w=64x64x3x3,pad=1x1,nhwc"]
    problem = ct.Problem("fwd", (4, 8, 16, 16), (8, 8, 3, 3), (0, 0), (0, 0), (1, 1), (1, 1))
    summary = ct.warm([*same, problem], client)
    assert (summary.problems, summary.hits, summary.tuned) == (2, 1, 1)
    assert ct.warm(PROBLEMS[0], client).hits == 1
    with pytest.raises(ct.ModelError, match="cannot be read"):
        ct.warm(tmp_path / "none.onnx", client)
    with pytest.raises(TypeError, match="batch_sizes"):
        ct.warm(PROBLEMS, client, batch_sizes=[1])


@pytest.fixture
def command(ct, capsys):
    """command(*arguments) is what `python -m convtune` does: exit code, output, errors."""
    from convtune.__main__ import main

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's
            code = stop.code
        return (code, *capsys.readouterr())

    return run


def test_warm_on_the_command_line(command, fake_daemon, tmp_path):
    path = tmp_path / "m.onnx"
    python_package.one_convolution(path)
    daemon = fake_daemon().start()
    batches, address = ("--batch", "1,8,32"), ("--address", daemon.address)
    code, out, err = command("warm", path, *batches, *address)
    assert code == 0 and "0 had an answer, 3 were tuned" in out, (out, err)
    assert "3 had an answer, 0 were tuned" in command("warm", path, *batches, *address)[1]
    listed = tmp_path / "model.txt"
    listed.write_text(f"# recorded\n{PROBLEMS[0]}\n\n{PROBLEMS[0]}  # again\n")
    code, out, err = command("warm", path, listed, *batches, *address)
    assert code == 0 and "3 had an answer, 1 were tuned" in out, (out, err)
    assert command("warm", listed, *address, "--environment", "no-such")[0] == 3
    daemon.stop()
    code, _, err = command("warm", listed, "--address", f"unix:{tmp_path}/nobody", "--timeout", "0.3")
    assert code == 4 and "no answer from the daemon" in err


def test_what_the_command_line_cannot_do_ends_with_2(command, tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(PROBLEMS[0])
    bad.write_text(f"{PROBLEMS[0]}\nfwd,x=1x8\n")
    for arguments, why in (
        ((good, "--address", "localhost:1"), "credentials: "),
        ((good, "--budget", "-1"), "--budget"),
        ((bad,), "bad.txt:2: x, w: "),
        ((tmp_path / "none.txt",), "none.txt: cannot be read"),
    ):
        code, _, err = command("warm", *arguments)
        assert code == 2 and why in err, (arguments, err)


@pytest.mark.ci
def test_every_public_part_is_typed():
    result = python_package.run(
        "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", "/dev/null", "-p", "convtune",
        "--exclude", "v1/", "--follow-imports", "silent",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:]
