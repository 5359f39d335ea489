"""The Python package against a daemon."""

import asyncio
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest

from conftest import PROGRAMS, REPO
from harness import python_package
from harness.daemon import wait_until
from harness.fakes import script

H200 = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"
PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in range(1, 4)]
BAD = "fwd,x=1x64x7x7,w=64x63x3x3"

# A plain build's: what a sanitizer made does not go into this Python.
FAKES = pathlib.Path(os.environ.get("CONVTUNE_OTHER_BUILD_DIR", PROGRAMS.parent)) / "tests" / "fakes" / "program"


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
        assert client.tune(PROBLEMS[:2]) == {}
        found = client.get([PROBLEMS[1], PROBLEMS[0], PROBLEMS[2]])
        assert [r.winner is not None for r in found] == [True, True, False]
        answer = found[0].answer
        assert answer.evidence in ("incomplete", "measured") and found[2].environment.name == "nvidia-h200"
        assert found[0].environment.text == H200 and found[0].environment.sm_count == 132
        assert (answer.winner.engine_index is None) != (answer.winner.algorithm is None)
        (tight,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_workspace_bytes=0))
        assert tight.winner is None or tight.winner.workspace_bytes == 0
        # The fake GPU's first candidate is off by 1e-4, and each one behind it by as much again.
        (exact,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_error=1.5e-4, cache_state="hot"))
        assert exact.winner.text == "graph:eng0,k2=0"
        (none,) = client.get(PROBLEMS[:1], constraints=ct.Constraints(max_error=1e-5))
        assert (none.answer, none.miss) == (None, "no_candidate")
        assert client.get(PROBLEMS[:1], max_age_s=3600)[0].answer == client.get(PROBLEMS[:1])[0].answer
        wait_until(lambda: client.get(PROBLEMS[:1], max_age_s=1)[0].miss == "too_old", 30, "it to be a second old")
        with pytest.raises(ct.ConvtuneError, match="max_age: must be 1s to"):
            client.get(PROBLEMS[:1], max_age_s=-1)
        with pytest.raises(ValueError, match="max_age_s: must be a number of seconds, is 'old'"):
            client.get(PROBLEMS[:1], max_age_s="old")
        assert client.info().version


@pytest.fixture
def scripted(ct, short_dir):
    """scripted(reply) is the address of a daemon; reply(problems, context) gives the fields of a BatchGetResponse."""
    from convtune.v1 import tuning_service_pb2, tuning_service_pb2_grpc

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))

    def serve(reply):
        class Daemon(tuning_service_pb2_grpc.TuningServiceServicer):
            def BatchGet(self, request, context):
                return tuning_service_pb2.BatchGetResponse(**reply(request.problems, context))

        tuning_service_pb2_grpc.add_TuningServiceServicer_to_server(Daemon(), server)
        server.add_insecure_port(f"unix:{short_dir}/s")
        server.start()
        return f"unix:{short_dir}/s"

    yield serve
    server.stop(None)


def test_a_daemon_that_does_not_know_a_field_is_noticed(ct, scripted):
    from convtune.v1.tuning_service_pb2 import BatchGetRequest

    known = []
    address = scripted(lambda problems, context: {"results": [{"answer": {}}], "known_fields": known})

    async def ask(**demand):
        async with ct.AsyncClient(address) as client:
            return await client.get(PROBLEMS[:1], **demand)

    with ct.Client(address) as client:
        calls = (lambda **demand: client.get(PROBLEMS[:1], **demand)), (lambda **demand: asyncio.run(ask(**demand)))
        for call in calls:
            known.clear()
            assert call()[0].answer
            with pytest.raises(ct.ConvtuneError, match="^max_age: the daemon is too old to know it"):
                call(max_age_s=60)
            known.append(BatchGetRequest.MAX_AGE_FIELD_NUMBER)
            assert call(max_age_s=60)[0].answer


def test_what_a_reply_leaves_out_is_asked_for_again_unless_it_leaves_out_all(ct, scripted):
    asked, answered = [], [1]

    def reply(problems, context):
        asked.append(len(problems))
        if len(asked) > 50:
            context.abort(grpc.StatusCode.INTERNAL, "asked too often")
        results = [{"problem_text": problem.text, "answer": {}} for problem in problems[: answered[0]]]
        return {"results": results, "unanswered_count": asked[-1] - len(results)}

    with ct.Client(scripted(reply)) as client:
        for call in client.get, client.resolve:
            asked.clear()
            assert [r.problem for r in call(PROBLEMS[:3])] == PROBLEMS[:3]
            assert asked == [3, 2, 1]
        answered[0] = 0
        asked.clear()
        results = client.resolve(PROBLEMS[:2])
        assert [(r.miss, r.message) for r in results] == [("refused", "the daemon gave 0 results for 2 problems")] * 2
        with pytest.raises(ct.ConvtuneError, match="^the daemon gave 0 results for 2 problems"):
            client.get(PROBLEMS[:2])
        assert asked == [2, 2]


def test_a_refused_problem_names_field_and_rule_and_the_others_are_answered(ct, fake_daemon):
    client = ct.Client(fake_daemon().start().address, timeout=60)
    client.tune(PROBLEMS[:2])
    mixed = [PROBLEMS[0], BAD, "no problem", PROBLEMS[1], "\ud800"]
    with pytest.raises(ct.ConvtuneError) as error:
        client.get([PROBLEMS[0], BAD])
    assert error.value.code == "INVALID_ARGUMENT"
    assert error.value.fields == [("problems[1].text", "w_dims[1]: must be C/groups = 64/1 = 64, is 63")]
    with pytest.raises(ct.ConvtuneError) as error:
        client.get(mixed)
    assert [field for field, _ in error.value.fields] == [f"problems[{place}].text" for place in (1, 2, 4)]
    results = client.resolve(mixed, timeout=60)
    assert [r.winner is not None for r in results] == [True, False, False, True, False]
    assert [r.miss for r in results] == ["", "refused", "refused", "", "refused"]
    assert "w_dims[1]" in results[1].message and results[4].problem == "?"
    # What is wrong with the whole request is nobody's fault alone.
    wrong = ct.Client(client.address, environment="no-such").resolve(PROBLEMS[:2], timeout=60)
    assert [r.miss for r in wrong] == ["refused"] * 2 and "no-such" in wrong[0].message
    # Nor does a refused one keep the others from being tuned.
    summary = ct.warm([*PROBLEMS, BAD], client)
    assert (summary.problems, summary.hits, summary.tuned, summary.is_warm) == (4, 2, 1, False)
    assert [reason for reason in summary.failures if "refused: " in reason and "w_dims[1]" in reason]


def test_answers_are_those_of_the_programs_own_environment(ct, fake_daemon):
    address = fake_daemon().start().address
    ct.Client(address).tune(PROBLEMS[:1])

    def client(**program):
        return ct.Client(address, program=ct.Environment(**program))

    for program, fits in (
        ({"cudnn_version": "9.19.0", "library_configuration": "full"}, True),
        ({"cudnn_version": "9.12.0"}, False),
        ({"library_configuration": "graph_jit_only"}, False),
        ({"gpu_model": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132}, True),
        ({"gpu_model": "NVIDIA H200", "sm_count": 66}, False),
        ({"gpu_model": "NVIDIA H200", "profile": True}, False),
    ):
        for result in (client(**program).get(PROBLEMS[:1])[0], client(**program).resolve(PROBLEMS[:1], timeout=60)[0]):
            assert (result.winner is not None, result.miss) == (fits, "" if fits else "other_environment"), program
            assert result.environment.text == H200  # what it would hold for
    (miss,) = client(cudnn_version="9.12.0").get(PROBLEMS[1:2], on_miss="tune")
    assert miss.message == (f"other environment: the program has cudnn=9.12.0; answers are for {H200}; start convtuned "
                            "with the program's GPU and cuDNN, or import a bundle of its environment")  # fmt: skip
    with pytest.raises(ct.ConvtuneError, match="other environment: the program has cudnn=9.12.0") as error:
        ct.warm(PROBLEMS, client(cudnn_version="9.12.0"))
    assert error.value.code == "FAILED_PRECONDITION"
    with pytest.raises(ValueError, match="^program.cudnn_version: must be 3 numbers separated by '.', is '9.12'$"):
        client(cudnn_version="9.12")


# A program that has loaded a cuDNN, and perhaps a driver, and then asks.
LOADED = """
import ctypes, sys, convtune
libraries = [ctypes.CDLL(path) for path in sys.argv[2:]]
client = convtune.Client(sys.argv[1])
(result,) = client.resolve([%r], timeout=60)
print(client.program(), result.miss, result.environment.text, sep="|")
""" % PROBLEMS[0]  # fmt: skip


def test_the_loaded_cudnn_and_gpu_are_found(ct, fake_daemon, tmp_path):
    address = fake_daemon().start().address
    ct.Client(address).tune(PROBLEMS[:1])
    shutil.copy(FAKES / "libcudnn.so.9", tmp_path)

    def ask(*libraries, **env):
        result = python_package.run("-c", LOADED, address, *libraries, env=env)
        assert result.returncode == 0, result.stderr
        program, miss, environment = result.stdout.strip().split("|")
        assert environment == H200
        return program, miss

    assert ask() == (str(ct.Environment()), "")
    cudnn, driver = tmp_path / "libcudnn.so.9", FAKES / "libcuda.so.1"
    program, miss = ask(cudnn, FAKE_CUDNN_VERSION="91200")
    assert "cudnn_version='9.12.0', library_configuration='graph_jit_only'" in program and miss == "other_environment"
    assert ask(cudnn, FAKE_CUDNN_VERSION="91900")[1] == "other_environment"  # without precompiled engines
    (tmp_path / "libcudnn_engines_precompiled.so.9").touch()
    assert ask(cudnn, FAKE_CUDNN_VERSION="91900")[1] == ""
    program, miss = ask(cudnn, driver, FAKE_CUDNN_VERSION="91900")
    assert "gpu_model='NVIDIA H200', compute_capability='9.0', sm_count=132" in program and miss == ""
    # Without a context, the only kind that there is.
    assert ask(driver, FAKE_GPUS="hh")[0] == ask(driver)[0]
    assert ask(driver, FAKE_GPUS="l")[1] == "other_environment"
    assert ask(driver, FAKE_GPUS="hl") == (str(ct.Environment()), "")
    assert "cudnn_version='8.9.2', library_configuration=''" in ask(cudnn, FAKE_CUDNN_VERSION="8902")[0]


# A program whose main thread has a context on the second of two GPUs, and that refreshes.
REFRESHES = """
import ctypes, queue, sys, convtune
ctypes.CDLL(sys.argv[2]).FakeSetContext(1)
client, answers = convtune.Client(sys.argv[1]), queue.Queue()
client.start_refresh([%r], answers.put, period_s=0.01, timeout=60)
print(answers.get(timeout=60)[0].miss)
client.close()
""" % PROBLEMS[0]  # fmt: skip


def test_a_refresh_is_for_the_gpu_of_its_callers_context(ct, fake_daemon):
    address = fake_daemon().start().address
    ct.Client(address).tune(PROBLEMS[:1])
    result = python_package.run("-c", REFRESHES, address, FAKES / "libcuda.so.1", env={"FAKE_GPUS": "hl"})
    assert (result.returncode, result.stdout) == (0, "other_environment\n"), result


def test_an_environment_is_named_by_its_text_too(ct, fake_daemon):
    address = fake_daemon().start().address
    client = ct.Client(address, environment=H200)
    assert client.tune(PROBLEMS[:1]) == {}
    assert client.get(PROBLEMS[:1])[0].winner is not None
    with pytest.raises(ct.ConvtuneError, match="environment: there is no"):
        ct.Client(address, environment=H200.replace("132", "66")).get(PROBLEMS[:1])
    with pytest.raises(ct.ConvtuneError, match="environment: sms: required"):
        ct.Client(address, environment="nvidia-h200,cc=9.0").get(PROBLEMS[:1])


def stop(daemon):
    """It hangs once this is back: a signal takes its time to reach every thread."""
    os.kill(daemon.pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{daemon.pid}/task")
    wait_until(lambda: all(") T " in (thread / "stat").read_text() for thread in threads.iterdir()), 60, "the stop")


@pytest.mark.ci
def test_of_a_daemon_that_hangs_the_snapshot_answers_after_half_of_the_time(ct, fake_daemon):
    daemon = fake_daemon().start()
    client = ct.Client(daemon.address, snapshot=str(daemon.state_dir / "snapshot"))
    client.tune(PROBLEMS[:1])
    nobody = ct.Client(f"{daemon.address}-nobody", snapshot=str(daemon.state_dir / "snapshot"))
    wait_until(lambda: nobody.resolve(PROBLEMS[:1], timeout=0)[0].winner, 60, "the snapshot")
    asked = ct.AsyncClient

    async def resolve(timeout):
        async with asked(daemon.address, snapshot=str(daemon.state_dir / "snapshot")) as other:
            return await other.resolve(PROBLEMS[:1], timeout=timeout)

    stop(daemon)
    try:
        for way in (lambda t: client.resolve(PROBLEMS[:1], timeout=t), lambda t: asyncio.run(resolve(t))):
            start = time.monotonic()
            (result,) = way(8)
            took = time.monotonic() - start
            assert result.source == "snapshot" and 4 <= took < 8, (result, took)
        start = time.monotonic()
        results = client.resolve(PROBLEMS[:2], timeout=1)
        assert [r.source for r in results] == ["snapshot", ""] and time.monotonic() - start >= 1
        with pytest.raises(ct.Unavailable, match="the daemon did not answer within the timeout"):
            ct.Client(daemon.address).get(PROBLEMS[:1], timeout=1)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    # A daemon that goes on within the time answers.
    stop(daemon)
    threading.Timer(1, os.kill, (daemon.pid, signal.SIGCONT)).start()
    assert client.resolve(PROBLEMS[:1], timeout=60)[0].source == "daemon"


def test_an_asyncio_program_asks_without_blocking_its_loop(ct, fake_daemon):
    daemon = fake_daemon(env=script(measure_delay_ms=50)).start()
    seen = []

    async def beat():
        while True:
            seen.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def ask():
        async with ct.AsyncClient(daemon.address, timeout=60) as client:
            heart = asyncio.create_task(beat())
            progress = []
            assert await client.tune(PROBLEMS[:2], on_progress=lambda *counts: progress.append(counts)) == {}
            assert progress[-1] == (2, 2)
            first, second = await asyncio.gather(client.get(PROBLEMS[:1]), client.get(PROBLEMS[2:], on_miss="tune"))
            assert first[0].winner is not None and second[0].winner is not None
            heart.cancel()
            with pytest.raises(ct.ConvtuneError) as error:
                await client.get([PROBLEMS[0], BAD])
            assert error.value.fields[0][0] == "problems[1].text"
            results = await client.resolve([PROBLEMS[0], BAD, "\ud800"], timeout=60)
            assert [r.miss for r in results] == ["", "refused", "refused"]
            with pytest.raises(ValueError, match="^on_miss: must be one of"):
                await client.get(PROBLEMS, on_miss="bogus")
            # A call that is given up is given up at the daemon, too.
            waiting = asyncio.create_task(client.get(["fwd,x=9x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"], on_miss="tune"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with ct.AsyncClient(f"{daemon.address}-nobody", use_snapshot=False) as client:
            (result,) = await client.resolve(PROBLEMS[:1], timeout=0.2)
            assert result.miss == "unavailable" and result.problem.endswith("acc=f32")
            with pytest.raises(ct.Unavailable):
                await client.get(PROBLEMS, timeout=0.2)
        async with ct.AsyncClient(daemon.address, program=ct.Environment(cudnn_version="9.12.0")) as client:
            assert (await client.get(PROBLEMS[:1]))[0].miss == "other_environment"

    asyncio.run(ask())
    assert len(seen) > 5 and max(b - a for a, b in zip(seen, seen[1:])) < 2


def test_a_miss_that_is_enqueued_names_its_job(ct, fake_daemon):
    client = ct.Client(fake_daemon().start().address)
    (miss,) = client.get(PROBLEMS[:1], on_miss="enqueue")
    assert miss.miss == "not_found" and re.fullmatch(r"jobs/\d+", miss.job), miss
    wait_until(lambda: client.get(PROBLEMS[:1])[0].winner, 60, "the tuning")


def test_without_a_daemon_it_is_said_where_none_is_how_to_start_one_and_that_it_waits(ct, command, caplog, tmp_path):
    address = f"unix:{tmp_path}/nobody"
    why = rf"^no answer from the daemon at {address}: .*; start one with `convtuned`, or say where it is with CONVTUNE_ADDRESS"
    line = PROBLEMS[0]
    client = ct.Client(address, timeout=5)
    for call in (lambda: ct.warm([line], client), lambda: client.get([line], timeout=2)):
        with pytest.raises(ct.Unavailable, match=why):
            call()
    (unavailable,) = client.resolve([line], timeout=0.1)
    assert unavailable.miss == "unavailable" and re.search(why, unavailable.message)
    # Once for each client.
    (record,) = [record for record in caplog.records if record.name == "convtune"]
    assert re.search(why + ".*; waiting for one, up to [45][.0-9]* s$", record.getMessage())
    listed = tmp_path / "model.txt"
    listed.write_text(line)
    code, out, err = command("warm", listed, "--address", address, "--timeout", "0.3")
    assert (code, out) == (4, "") and re.search("^error: " + why[1:], err) and "Traceback" not in err, err


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


def test_a_warm_model_says_what_unmodified_programs_are_not_served(ct, fake_daemon):
    daemon = fake_daemon("--publish-evidence", "measured", env=script(environment="profile:" + H200)).start()
    summary = ct.warm(PROBLEMS, ct.Client(daemon.address))
    assert (summary.is_warm, summary.not_published) == (True, len(PROBLEMS))
    assert f"not published: {len(PROBLEMS)}, of less than --publish-evidence" in str(summary)
    heuristic = fake_daemon("--publish-evidence", "heuristic", env=script(environment="profile:" + H200)).start()
    assert "not published" not in str(ct.warm(PROBLEMS, ct.Client(heuristic.address)))


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
    # One text for one problem, whoever says it.
    line = ct.Problem("fwd", (4, 8, 128), (8, 8, 7), (3,), (3,), (1,), (1,), dtype="f16")
    assert [r.problem for r in client.get([problem, line])] == [str(problem), str(line)]
    with pytest.raises(ct.ModelError, match="cannot be read"):
        ct.warm(tmp_path / "none.onnx", client)
    with pytest.raises(TypeError, match="batch_sizes"):
        ct.warm(PROBLEMS, client, batch_sizes=[1])
    with pytest.raises(TypeError, match="^model: must be the path of an ONNX model, .* is int$"):
        ct.warm(5, client)
    with pytest.raises(TypeError, match=r"^problems\[1\]: must be a text or a convtune.Problem, is int$"):
        ct.warm([PROBLEMS[0], 5], client)
    with pytest.raises(TypeError, match="^problems: must be texts or convtune.Problem, is int$"):
        client.get(5)


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


def test_what_the_command_line_cannot_do_ends_with_2(command, tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(PROBLEMS[0])
    bad.write_text(f"{PROBLEMS[0]}\nfwd,x=1x8\n")
    for arguments, why in (
        ((good, "--address", "localhost:1"), "credentials: "),
        ((good, "--budget", "-1"), "--budget"),
        ((bad,), "bad.txt:2: x, w: "),
        ((tmp_path / "none.txt",), "none.txt: cannot be read"),
        ((good, "--batch", "99999999999999999999"), "argument --batch: must be from 0 to 2^31-1"),
        ((good, "--batch", "1,2147483648"), "argument --batch: must be from 0 to 2^31-1"),
        ((good, "--dim", "h=99999999999999999999"), "argument --dim: must be from 0 to 2^31-1"),
    ):
        code, _, err = command("warm", *arguments)
        assert code == 2 and why in err, (arguments, err)


def test_a_full_disk_behind_the_output_is_said(tmp_path):
    listed = tmp_path / "model.txt"
    listed.write_text(PROBLEMS[0])
    env = {**os.environ, "PYTHONPATH": str(python_package.install())}
    command = [sys.executable, "-m", "convtune", "problems", str(listed)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")
    # A reader that has seen enough is no error.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=env)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


# Python without the package onnx.
WITHOUT_ONNX = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name == "onnx":
            raise ModuleNotFoundError("No module named 'onnx'", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_without_onnx_one_line_says_how_to_get_it(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"model")
    line = "No module named 'onnx'; install it with: pip install 'onnx>=1.15'\n"
    code = "import convtune\ntry: convtune.warm('m.onnx', convtune.Client('unix:/nobody'))\n"
    result = python_package.run("-c", WITHOUT_ONNX + code + "except convtune.ModelError as error: print(error)")
    assert result.stdout == line, result.stderr
    code = f"from convtune.__main__ import main; sys.exit(main(['problems', {str(path)!r}]))"
    result = python_package.run("-c", WITHOUT_ONNX + code)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"error: {line}")


@pytest.mark.ci
def test_every_public_part_is_typed():
    result = python_package.run(
        "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", "/dev/null", "-p", "convtune",
        "--exclude", "v1/", "--follow-imports", "silent",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:]
