"""The kit for a machine with a GPU: what it refuses to carry, and `go` with a study of the test's own in the verdict's place."""

import gzip
import importlib.machinery
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import types

import pytest

from conftest import PROGRAMS
from harness import shell
from harness.daemon import alive, wait_until
from harness.preload import Problem
from harness.simulator import simulators

pytestmark = pytest.mark.ci

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests" / "gpu"


def load(name):
    """A program of tests/gpu as a module."""
    sys.path.insert(0, str(GPU))
    try:
        loader = importlib.machinery.SourceFileLoader(f"gpu_{name}", str(GPU / name))
        module = types.ModuleType(loader.name)
        module.__file__ = str(GPU / name)
        loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(GPU))


@pytest.fixture(scope="module")
def dev_kit(tmp_path_factory, convtuned, fake_worker):
    """(folder, what was said) of a kit whose programs are this machine's own build."""
    if not (PROGRAMS / "convtune-worker").exists():
        pytest.skip("convtune-worker was not built (no cuDNN)")
    folder = tmp_path_factory.mktemp("kit") / "kit"
    done = subprocess.run([GPU / "kit", "--build", PROGRAMS.parent, "--out", folder], capture_output=True, text=True)
    return folder, done


def test_what_runs_on_this_machine_alone_is_no_kit(dev_kit):
    folder, done = dev_kit
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert any("bin/convtuned needs" in line and "libgrpc" in line for line in said), said
    assert any("bin/convtune-worker has a RUNPATH: " in line for line in said), said
    assert "MiB; it needs glibc 2." in done.stdout
    assert (folder / "go").exists() and not list(folder.rglob("__pycache__"))


def test_a_folder_that_is_no_kit_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("of value")
    done = subprocess.run([GPU / "kit", "--build", PROGRAMS.parent, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2 and "--out" in done.stderr
    assert (tmp_path / "mine").read_text() == "of value"


def test_options_of_a_build_are_refused_where_nothing_is_built(tmp_path):
    done = subprocess.run([GPU / "kit", "--build", PROGRAMS.parent, "-DCONVTUNE_WERROR=ON", "--out", tmp_path / "kit"], capture_output=True, text=True)
    assert done.returncode == 2 and "-D has no effect with --build" in done.stderr
    assert not (tmp_path / "kit").exists()


def test_a_kit_names_its_commit_and_what_it_holds(dev_kit, tmp_path):
    """Both at once, since a kit may be mended before it is committed."""
    folder, _ = dev_kit
    kit = load("kit")
    packed = shutil.copytree(folder, tmp_path / "kit")
    assert not simulators(path.relative_to(packed) for path in packed.rglob("*"))
    said = (packed / "COMMIT").read_text()
    for written_later in ("COMMIT", "kit.json"):
        (packed / written_later).unlink()
    assert re.fullmatch(rf"([0-9a-f]{{40}}|unknown)(, [0-9]+ files changed)?, files {kit.digest(packed)}\n", said)
    known = kit.digest(packed)
    (packed / "tests/gpu/gates.py").write_text("mended")
    mended = kit.digest(packed)
    (packed / "tests/gpu/gates.py").rename(packed / "tests/gpu/other.py")
    assert len({known, mended, kit.digest(packed)}) == 3


def test_size_glibc_and_libraries_are_looked_at(tmp_path, monkeypatch, capsys):
    kit = load("kit")
    (tmp_path / "bin").mkdir()
    shutil.copy(sys.executable if not pathlib.Path(sys.executable).is_symlink() else pathlib.Path(sys.executable).resolve(), tmp_path / "bin" / "p")
    needed = {"libc.so.6"}
    for needs, word in (
        ((needed, (2, 34), None), None),
        ((needed, (2, 35), None), "GLIBC 2.35, more than 2.34"),
        ((needed | {"libcudnn.so.9"}, (2, 34), None), "needs libcudnn.so.9"),
        ((needed, (2, 34), ""), "has a RUNPATH"),
    ):
        monkeypatch.setattr(kit.portable, "needs", lambda program, needs=needs: needs)
        wrong, glibc = kit.check(tmp_path, {"p": "bin/p"})
        assert glibc == needs[1]
        assert [word in line for line in wrong] == ([True] if word else [])
    with open(tmp_path / "large", "wb") as file:
        file.truncate((kit.portable.MOST_MIB << 20) + 1)
    wrong, _ = kit.check(tmp_path, {})
    assert len(wrong) == 1 and "more than 60" in wrong[0]
    capsys.readouterr()


# Calls have minutes, so it wants a machine that does nothing else.
@pytest.mark.long
def test_the_rehearsal_on_this_machine(dev_kit):
    """To its end, with faults of the GPU, and killed: the real worker on the simulated GPU, the study's made-up peers, no PyTorch."""
    folder, worker = dev_kit[0], PROGRAMS / "convtune-worker-sim"
    if not worker.exists():
        pytest.skip("convtune-worker-sim was not built (no cuDNN)")
    command = [sys.executable, GPU / "rehearse", "--here", "--kit", folder, "--worker", worker, "--kills", "2", "--minutes", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " kills, " in done.stdout and "with 8 faults, each of which fired" in done.stdout
    assert "gate delays: ok, delays of 50 and 500 us are right" in done.stdout


def test_the_interposer_can_be_mended_where_the_kit_is(dev_kit, tmp_path):
    """From the kit's own sources: another digest in COMMIT, and what a program finds in the library is what it finds in ours."""
    kit = shutil.copytree(dev_kit[0], tmp_path / "kit")
    headers = re.search(r"^CUDNN_INCLUDE_DIR:\w+=(.*)$", (PROGRAMS.parent / "CMakeCache.txt").read_text(), re.M)[1]
    cuda = re.search(r"^CUDART_INCLUDE_DIR:\w+=(.*)$", (PROGRAMS.parent / "CMakeCache.txt").read_text(), re.M)[1]
    found = lambda library: sorted(line.split()[-1] for line in subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout.splitlines())
    before, built = (kit / "COMMIT").read_text().strip(), (kit / "lib/libconvtune_preload.so").read_bytes()
    for _ in range(2):
        done = subprocess.run([kit / "mend", headers, cuda], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(re.escape(before) + ", interposer [0-9a-f]{8}", (kit / "COMMIT").read_text().strip())
    assert (kit / "lib/libconvtune_preload.so").read_bytes() != built
    assert found(kit / "lib/libconvtune_preload.so") == found(dev_kit[0] / "lib/libconvtune_preload.so") != []


@pytest.mark.parametrize("question, env, fault, code, answer", [
    ("replay", {}, "", 0, "a replay behind a blocked stream does not block the host: three of one graph took "),
    ("replay", {"SIMGPU_RELAUNCH_BLOCKS": "1"}, "", 1, "a replay behind a blocked stream BLOCKS the host: "),
    ("spoilt", {}, "", 0, "an error does not survive a spoilt capture: waiting in it cudaErrorStreamCaptureUnsupported, ending it cudaErrorStreamCaptureInvalidated, "),
    ("delays", {}, "", 0, "delays of 50 and 500 us are right: 5"),
    ("caches", {}, "", 0, "reads that share a flush find memory as cold as reads with one each: "),
    ("delays", {}, "kernel:convtune_blocking = slow", 1, "delays of 50 and 500 us are OFF: "),
    ("delays", {}, "jit = fail", 2, "no answer: compile: "),
    ("spoilt", {}, "kernel:convtune_blocking = sticky", 2, "no answer: wait for the stream: cudaErrorLaunchFailure"),
])  # fmt: skip
def test_the_four_questions_on_the_simulated_gpu(tmp_path, question, env, fault, code, answer):
    program, faults = PROGRAMS / "convtune-gpu-questions-sim", tmp_path / "faults"
    if not program.exists():
        pytest.skip("convtune-gpu-questions-sim was not built (no cuDNN)")
    faults.write_text(fault)
    command = [program, question, ROOT / "server/worker/device/kernels.ptx"]
    done = subprocess.run(command, env={"SIMGPU_FAULTS": str(faults), **env}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout[: len(answer)]) == (code, answer), done.stdout
    assert done.stdout.count("\n") == 1 and (not fault or fault in faults.with_name("faults.fired").read_text().splitlines())


def test_a_question_without_a_card_has_no_answer(dev_kit):
    program, kernels = dev_kit[0] / "bin/convtune-gpu-questions", dev_kit[0] / "server/worker/device/kernels.ptx"
    for question in ("replay", "spoilt", "delays", "caches"):
        done = subprocess.run([program, question, kernels], capture_output=True, text=True)
        if done.returncode != 2:
            pytest.skip("this machine has a GPU")
        assert re.fullmatch(r"no answer: [a-z ]+: cudaError\w+\n", done.stdout)
    assert subprocess.run([program, "why", kernels], capture_output=True).returncode == 2


# A study whose steps do as they are told. Each appends a record before anything else.
STUDY = '''
import json, os, pathlib, subprocess, sys, time
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
work = pathlib.Path(value("--work"))
steps = json.loads((pathlib.Path(__file__).parent / "steps.json").read_text())
records = work / "records.jsonl"
lines = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
done = [line["step"] for line in lines if line["kind"] == "done"]
def add(**record):
    with open(records, "a") as file:
        file.write(json.dumps(record) + "\\n")
if "--steps" in arguments:
    for name, step in steps.items():
        if name not in done:
            print(json.dumps({"step": name, "limit_s": step["limit_s"], "about": "a test's", "extra": step.get("extra", False)}))
elif "--table" in arguments:
    print("done: " + ", ".join(done))
else:
    name = value("--step")
    add(kind="begun", step=name, deadline=float(value("--deadline")), pid=os.getpid())
    exec(steps[name].get("do", ""))
    add(kind="done", step=name)
'''
GATES = '''
import dataclasses, sys
@dataclasses.dataclass(frozen=True)
class Gate:
    name: str
    do: str
    next: str = "mend it"
    once: bool = False
    fatal: bool = False
    later: bool = False
    limit_s: int = 60
GATES = %s
if __name__ == "__main__":
    exec(next(g for g in GATES if g.name == sys.argv[1]).do)
'''
SLEEP = "time.sleep(600)"
SLEEP_BESIDE_A_CHILD = f"p = subprocess.Popen([sys.executable, '-c', 'import time; {SLEEP}']); add(kind='child', pid=p.pid); {SLEEP}"


@pytest.fixture
def make_kit(tmp_path):
    """make_kit(steps, gates) gives a function that starts `go` of such a kit."""

    def make(steps, gates="()", settings=""):
        kit = tmp_path / "kit"
        shutil.rmtree(kit, ignore_errors=True)
        (kit / "tests/gpu/study").mkdir(parents=True)
        (kit / "tests/gpu/study/__main__.py").write_text(STUDY)
        (kit / "tests/gpu/study/steps.json").write_text(json.dumps(steps))
        (kit / "tests/gpu/gates.py").write_text(GATES % gates)
        (kit / "COMMIT").write_text("0123456789abcdef\n")
        (kit / "kit.json").write_text("{}")
        text = (GPU / "go").read_text()
        # In front of the last lines, which start it.
        head, start, tail = text.rpartition('if __name__ == "__main__":')
        (kit / "go").write_text(head + settings + "\n\n" + start + tail)
        return lambda out, *more: subprocess.Popen(
            [sys.executable, kit / "go", "--out", out, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip

    return make


def ended(process):
    """(exit code, standard output, standard error)"""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def results(out):
    """{name: bytes} of the pack."""
    with tarfile.open(out / "results.tar.gz") as archive:
        return {m.name.removeprefix("results/"): archive.extractfile(m).read() for m in archive}


def records(out):
    return [json.loads(line) for line in results(out)["records.jsonl"].splitlines()]


def test_steps_run_in_order_and_a_table_comes_after_each(make_kit, tmp_path):
    go = make_kit({"first": {"limit_s": 60}, "second": {"limit_s": 60, "do": "sys.exit('it fell over')"}, "third": {"limit_s": 60}})
    code, said, _ = ended(go(tmp_path / "out"))
    assert code == 1  # one step failed
    assert [r["step"] for r in records(tmp_path / "out") if r["kind"] == "begun"] == ["first", "second", "third"]
    assert "step second: FAILED after" in said and "it fell over" in said
    assert said.index("done: first\n") < said.index("step second:") and said.rstrip().splitlines()[-2] == "done: first, third"
    assert said.count("done: first\n") == 2  # what stands above the tables' parts, after each step
    assert (tmp_path / "out" / "table.txt").read_text() == "done: first, third\n"
    assert not list(tmp_path.glob("convtune-go-*"))


def test_a_later_call_goes_on_with_what_is_left(make_kit, tmp_path):
    steps = {"first": {"limit_s": 60}, "second": {"limit_s": 60, "do": "if not (pathlib.Path(work).parent / 'mended').exists(): print('its winners come first'); sys.exit(75)"}}
    go = make_kit(steps)
    code, said, _ = ended(go(tmp_path / "one"))
    assert code == 0 and "step second: not done after" in said and "its winners come first" in said
    (tmp_path / "mended").touch()
    code, said, _ = ended(go(tmp_path / "two", "--base", tmp_path / "one"))
    assert code == 0 and "step first" not in said
    assert [r["step"] for r in records(tmp_path / "two") if r["kind"] == "done"] == ["first", "second"]
    # Records in both count once, in whatever order they are named.
    code, said, _ = ended(go(tmp_path / "three", "--base", tmp_path / "one", "--base", tmp_path / "two" / "results.tar.gz"))
    assert code == 0 and records(tmp_path / "three") == records(tmp_path / "two")


def test_a_step_ends_at_its_limit_with_all_that_it_started(make_kit, tmp_path):
    go = make_kit({"slow": {"limit_s": 1, "do": SLEEP_BESIDE_A_CHILD}, "next": {"limit_s": 60}})
    code, said, _ = ended(go(tmp_path / "out"))
    assert code == 1 and "step slow: FAILED" in said and "at its limit" in said
    found = records(tmp_path / "out")
    assert found[-1]["kind"] == "done" and found[-1]["step"] == "next"
    pids = [r["pid"] for r in found if r["kind"] in ("begun", "child")][:2]
    wait_until(lambda: not any(map(alive, pids)), 30, "the step's processes to end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["asked to end", "killed"])
def test_what_there_is_is_packed_while_a_step_runs_and_nothing_runs_on_when_it_is_ended(make_kit, tmp_path, number):
    go = make_kit({"first": {"limit_s": 60}, "slow": {"limit_s": 300, "do": SLEEP_BESIDE_A_CHILD}}, settings="PACK_EVERY_S = 0.2")
    out = tmp_path / "out"
    process = go(out)
    wait_until(lambda: (out / "results.tar.gz").exists() and b"child" in results(out).get("records.jsonl", b""), 60, "the step's child")
    pids = [r["pid"] for r in records(out) if "pid" in r]
    process.send_signal(number)
    code, _, _ = ended(process)
    assert code == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), 30, "the step's processes to end")
    load("rehearse").check(out)
    assert [r["step"] for r in records(out) if r["kind"] == "done"] == ["first"]


def test_a_step_is_left_for_the_next_call_where_little_time_is_left(make_kit, tmp_path):
    go = make_kit({"long": {"limit_s": 100000}, "short": {"limit_s": 1}})
    code, said, _ = ended(go(tmp_path / "out", "--minutes", "2"))
    assert code == 0 and "step long: not in this call" in said
    (begun,) = [r for r in records(tmp_path / "out") if r["kind"] == "begun"]
    assert begun["step"] == "short"


CARD = """import pathlib; pathlib.Path('card.json').write_text('{"gpu": "a GPU"}'); print('a GPU')"""


def test_gates_say_what_is_next(make_kit, tmp_path):
    gates = f"""(Gate("card", {CARD!r}), Gate("good", "print('all is well')", once=True), Gate("shut", "print('it is shut'); sys.exit(1)", next="open it"))"""
    go = make_kit({"first": {"limit_s": 60}}, gates)
    code, said, _ = ended(go(tmp_path / "one"))
    assert code == 1
    assert "gate good: ok, all is well" in said and "gate shut: FAILED, it is shut\n           next: open it" in said
    assert "step first:" in said  # the GPU's time is not wasted
    code, said, _ = ended(go(tmp_path / "two", "--base", tmp_path / "one"))
    assert "gate good: ok, in an earlier call" in said and "gate shut: FAILED" in said


def test_a_mended_kit_runs_its_gates_again(make_kit, tmp_path):
    """Another digest of its files is enough."""
    go = make_kit({"first": {"limit_s": 60}}, f"""(Gate("card", {CARD!r}), Gate("once", "print('looked at')", once=True))""")
    commit = tmp_path / "kit" / "COMMIT"
    for name, digest, word in (("one", "01234567", "looked at"), ("two", "01234567", "in an earlier call"), ("three", "89abcdef", "looked at")):
        commit.write_text(f"0123456789abcdef, files {digest}\n")
        code, said, _ = ended(go(tmp_path / name, *(["--base", tmp_path / "one"] if name != "one" else [])))
        assert code == 0 and f"gate once: ok, {word}" in said, said


def test_the_one_command_of_all_calls(make_kit, tmp_path):
    """As README has it; a second call goes on with what the first one left on the machine."""
    make_kit({"first": {"limit_s": 60}, "second": {"limit_s": 60, "do": "if not (pathlib.Path(work).parent / 'mended').exists(): sys.exit(3)"}})
    (tmp_path / "kit").rename(tmp_path / "build-kit")
    (command,) = re.findall(r"^mkdir -p /tmp/k; .*$", (GPU / "README.md").read_text(), re.M)
    command = command.replace("/tmp/k", str(tmp_path / "k")).replace("--minutes M ", "--minutes 8.5 ")

    def call(name):
        (tmp_path / name).mkdir()
        env = {**os.environ, "TMPDIR": str(tmp_path), "OUT": str(tmp_path / name)}
        return subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True).returncode

    assert call("one") == 1
    (tmp_path / "mended").touch()
    assert call("two") == 0
    assert [r["step"] for r in records(tmp_path / "two") if r["kind"] == "begun"] == ["first", "second", "second"]


def test_a_gate_of_a_second_call_waits_for_it(make_kit, tmp_path):
    """A call goes on with what the kit's folder holds of an earlier one, too."""
    go = make_kit({"first": {"limit_s": 60}}, """(Gate("late", "print('looked at')", later=True),)""")
    _, said, _ = ended(go(tmp_path / "one"))
    assert "gate late: left to a later call" in said and "looked at" not in said
    _, said, _ = ended(go(tmp_path / "two", "--base", tmp_path / "one"))
    assert "gate late: ok, looked at" in said and "step first" not in said
    shutil.copy(tmp_path / "one" / "results.tar.gz", tmp_path / "kit" / "earlier.tar.gz")
    _, said, _ = ended(go(tmp_path / "three"))
    assert "gate late: ok, looked at" in said and "step first" not in said


def test_what_the_rule_does_not_need_waits_for_the_rest(make_kit, tmp_path):
    """It would have had its time, and comes when nothing else is left."""
    steps = {"rule": {"limit_s": 60, "do": "if not (pathlib.Path(work).parent / 'mended').exists(): sys.exit(75)"}, "soak": {"limit_s": 1, "extra": True}}
    go = make_kit(steps)
    _, said, _ = ended(go(tmp_path / "one"))
    assert "step soak: not in this call, the rule does not need it" in said
    (tmp_path / "mended").touch()
    code, said, _ = ended(go(tmp_path / "two", "--base", tmp_path / "one"))
    assert code == 0 and [r["step"] for r in records(tmp_path / "two") if r["kind"] == "done"] == ["rule", "soak"]


def test_the_end_fits_into_what_is_seen_of_it(make_kit, tmp_path):
    """Gates once more, what failed first, then the table: 10,000 characters, though every gate and the table say too much."""
    good = [f"Gate('good-{i}', 'print(\"g\" * 5000)')" for i in range(9)]
    shut = [f"Gate('shut-{i}', 'print(\"s\" * 5000); sys.exit(1)', next='open it')" for i in range(3)]
    go = make_kit({"first": {"limit_s": 60}}, f"({', '.join(good + shut)})", settings="Go.study = lambda self, *a, study=Go.study: [sys.executable, '-c', 'print(\"a first line\"); print(((\"row \" * 30) + chr(10)) * 300)'] if a == ('--table',) else study(self, *a)")
    code, said, _ = ended(go(tmp_path / "out"))
    assert code == 1
    end = said[said.index("=== in short") :]
    assert 5000 < len(end) <= 10_000
    lines = end.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("gate ")][:4] == ["gate shut-0", "gate shut-1", "gate shut-2", "gate good-0"]
    assert lines[2] == "           next: open it" and end.count("the rest is in table.txt") == 2
    assert end.index("gate good-0") < end.index("a first line") < end.index("row row")


def test_programs_that_lost_their_run_bits_get_them_back(make_kit, tmp_path):
    go = make_kit({"first": {"limit_s": 60}})
    program = tmp_path / "kit" / "bin" / "convtuned"
    program.parent.mkdir()
    program.touch(0o600)
    assert ended(go(tmp_path / "out"))[0] == 0 and os.access(program, os.X_OK) and program.stat().st_mode & 0o111 == 0o111


def test_slow_gates_leave_the_verdict_its_time(make_kit, tmp_path):
    """A call of two minutes, of which gates have twelve seconds: one that may take a minute is not begun."""
    go = make_kit({"first": {"limit_s": 60}}, """(Gate("slow", "print('begun')"),)""", settings="GATES_SHARE = 0.1")
    code, said, _ = ended(go(tmp_path / "out", "--minutes", "2"))
    assert code == 0 and "gate slow: no time is left for it: gates have 10% of a call" in said
    assert [r["step"] for r in records(tmp_path / "out") if r["kind"] == "done"] == ["first"]


def test_a_folder_that_a_killed_call_left_goes_and_others_stay(make_kit, tmp_path):
    """Of calls: one that was killed, and one that is alive. And a folder of such a name in which no call was."""
    slow = make_kit({"slow": {"limit_s": 300, "do": SLEEP}}, settings="PACK_EVERY_S = 0.2")
    mine = lambda: {path.name for path in tmp_path.glob("convtune-go-*")}

    def started(name):
        before, process = mine(), slow(tmp_path / name)
        wait_until(lambda: b"begun" in results(tmp_path / name).get("records.jsonl", b"") if (tmp_path / name / "results.tar.gz").exists() else False, 60, "its step")
        (folder,) = mine() - before
        return process, folder

    killed, left = started("killed")
    killed.kill()
    killed.communicate(timeout=60)
    (tmp_path / "convtune-go-foreign").mkdir()
    (tmp_path / "convtune-go-link").symlink_to(tmp_path / left)
    assert left in mine()
    # The guard of the killed one lives a moment longer.
    alive_one, folder = None, None
    try:
        wait_until(lambda: not flocked(tmp_path / left), 30, "the lock of the killed call")
        alive_one, folder = started("alive")
        assert mine() == {folder, "convtune-go-foreign", "convtune-go-link"} and not (tmp_path / left).exists()
        (tmp_path / "convtune-go-link").unlink()
        usage = ended(slow(tmp_path / "out", "--base", tmp_path / "nowhere"))
        assert usage[0] == 2 and mine() == {folder, "convtune-go-foreign"}
    finally:
        if alive_one is not None:
            alive_one.terminate()
            alive_one.communicate(timeout=60)
    assert mine() == {"convtune-go-foreign"}


def flocked(folder):
    import fcntl

    with open(folder / "tmp" / "go.lock", "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.parametrize("written, code", [("''", 77), ("'{\"error\": \"an old driver\"}'", 1), ("'no JSON'", 1)], ids=["no GPU", "no driver for it", "no answer"])
def test_without_a_card_nothing_else_is_tried(make_kit, tmp_path, written, code):
    do = f"import pathlib; pathlib.Path('probe.jsonl').write_text({written}); print('no'); sys.exit(1)"
    go = make_kit({"first": {"limit_s": 60}}, f"(Gate('probe', {do!r}, fatal=True),)")
    found, said, _ = ended(go(tmp_path / "out"))
    assert found == code and "step" not in said
    assert "gates.jsonl" in results(tmp_path / "out")


def test_what_cannot_be_gone_on_with_is_said(make_kit, tmp_path):
    go = make_kit({"first": {"limit_s": 60}})
    code, _, said = ended(go(tmp_path / "out", "--base", tmp_path / "nowhere"))
    assert code == 2 and "--base: " in said and "nowhere is not there" in said
    (tmp_path / "cut.tar.gz").write_bytes(b"no archive")
    code, _, said = ended(go(tmp_path / "out", "--base", tmp_path / "cut.tar.gz"))
    assert code == 2 and "--base: " in said and "cut.tar.gz" in said
    with tarfile.open(tmp_path / "odd.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cut.tar.gz", arcname="results/../../escaped")
    code, _, said = ended(go(tmp_path / "out", "--base", tmp_path / "odd.tar.gz"))
    assert code == 2 and "go does not write" in said and not (tmp_path / "escaped").exists()
    assert ended(go(tmp_path / "made-up", "--simulate", "/bin/true"))[0] == 0
    code, _, said = ended(go(tmp_path / "out", "--base", tmp_path / "made-up"))
    assert code == 2 and "simulated" in said
    assert ended(go(tmp_path / "out", "--minutes", "0"))[0] == 2
    assert not (tmp_path / "out").exists()


@pytest.fixture
def packer(tmp_path, monkeypatch):
    """A Packer with small limits."""
    go = load("go")
    monkeypatch.setattr(go, "MOST_BYTES", 20_000)
    monkeypatch.setattr(go, "CHUNK_BYTES", 16_384)
    work = tmp_path / "work"
    (work / "trace").mkdir(parents=True)
    return go, go.Packer(tmp_path / "out", work)


def noise(lines):
    """Lines of JSON that hardly compress."""
    return b"".join(json.dumps({"n": os.urandom(32).hex()}).encode() + b"\n" for _ in range(lines))


def test_the_trace_is_packed_in_pieces_and_the_oldest_go(packer):
    go, packs = packer
    trace, whole = packs.work / "trace" / "a.jsonl", b""
    for _ in range(30):
        data = noise(100)
        with open(trace, "ab") as file:
            file.write(data + b'{"cut')
        packs.pack()
        pieces = sorted(packs.out.glob("trace-*"), key=lambda p: int(p.name.split("-")[-1].split(".")[0]))
        assert len(pieces) <= go.TRACE_PIECES and all(p.stat().st_size <= go.MOST_BYTES for p in pieces)
        with open(trace, "r+b") as file:
            file.truncate(trace.stat().st_size - 5)
        whole += data
    kept = b"".join(gzip.decompress(p.read_bytes()) for p in pieces)
    assert whole.endswith(kept) and len(whole) // 4 < len(kept) < len(whole)
    assert "trace/a.jsonl" not in results(packs.out)
    # A later call into the same folder: there are not more pieces for that.
    later = go.Packer(packs.out, packs.work)
    later.piece_name = "trace-99999999-000000"
    later.pack()
    assert len(list(packs.out.glob("trace-*"))) == go.TRACE_PIECES


def test_what_does_not_fit_is_left_out_and_named(packer):
    go, packs = packer
    (packs.work / "records.jsonl").write_bytes(noise(50) + b'{"kind":"do')
    (packs.work / "large.bin").write_bytes(os.urandom(go.MOST_BYTES))
    (packs.work / "small.txt").write_text("small")
    for name in ("tmp", "state", "state-2", "fresh"):
        (packs.work / name).mkdir()
        (packs.work / name / "file").write_text("of this machine")
    packs.pack()
    found = results(packs.out)
    assert set(found) == {"records.jsonl", "small.txt", "left-out.txt"}
    assert found["left-out.txt"].decode().startswith("large.bin: 20000 bytes")
    assert found["records.jsonl"].count(b"\n") == 50 and found["records.jsonl"].endswith(b"\n")
    assert (packs.out / "results.tar.gz").stat().st_size <= go.MOST_BYTES


def test_the_rehearsal_sees_what_is_broken(tmp_path):
    rehearse = load("rehearse")
    assert rehearse.check(tmp_path) == set()
    (tmp_path / rehearse.UNFINISHED).write_bytes(b"half")
    rehearse.check(tmp_path)
    with tarfile.open(tmp_path / "results.tar.gz", "w:gz") as archive:
        (tmp_path / "records.jsonl").write_text('{"kind":"done","step":"a"}\n')
        archive.add(tmp_path / "records.jsonl", arcname="results/records.jsonl")
    assert rehearse.check(tmp_path) == {"a"}
    whole = (tmp_path / "results.tar.gz").read_bytes()
    for name, data, word in (
        ("results.tar.gz", whole[: len(whole) // 2], "results.tar.gz"),
        ("records.jsonl", b'{"kind":"done"}\n{"ki', "cut"),
        ("trace-1.jsonl.gz", gzip.compress(b'{"a":1}\n')[:-4], "trace-1"),
        ("a name", b"", "a name"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(rehearse.Broken, match=word):
            rehearse.check(tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / "results.tar.gz").write_bytes(whole)
    for number in range(rehearse.MOST_FILES):
        (tmp_path / f"file-{number}").touch()
    with pytest.raises(rehearse.Broken, match="files"):
        rehearse.check(tmp_path)


def test_a_gates_line_says_what_the_workers_self_check_found():
    gates = load("gates.py")
    tuning = {"conditions": {"selfCheck": {"known": True, "failed": ["clock", "captures"]}}}
    assert gates.broken_words([{}, tuning]) == "; the worker's self-check found that clock, captures do not work"
    assert gates.broken_words([{"devices": [{"name": "gpu:0"}]}, {}]) == ""


def test_which_apis_a_program_reaches_is_read_off_cudnns_own_log(preload, tmp_path):
    """Of a program of the graph API with real cuDNN, and the form in which it logs other calls."""
    gates = load("gates.py")
    for mode, number in (("a", 3), ("b", 1)):
        log = tmp_path / f"{mode}.log"
        env = {**preload.env(None), "CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": str(log)}
        preload.raw(Problem(), f"modes={mode}", env=env)
        functions, modes, _ = gates.api_calls(log.read_text(errors="replace"))
        assert modes == {number} and "cudnnBackendFinalize" in functions
        assert not any(gates.LEGACY.match(f) for f in functions)
    functions, modes, redirected = gates.api_calls("I! CuDNN (v91900 56) function cudnnConvolutionForward() called:\n")
    assert [gates.LEGACY.match(f) is not None for f in functions] == [True] and not modes and not redirected


SANITIZER = """
while [ "${1#--}" != "$1" ]; do [ "$1" = --log-file ] && log=$2; shift 2; done
echo '%s' >> "$log"
exec "$@"
"""


@pytest.mark.parametrize("errors", [0, 2])
def test_compute_sanitizer_looks_at_a_tuning_of_three_shapes(monkeypatch, tmp_path, convtuned, convtune, fake_worker, errors):
    gates = load("gates.py")
    # In the words of its manual.
    shell.program(tmp_path / "tools" / "compute-sanitizer", SANITIZER % (("=========     at void sweep<float>(int*)+0x70\\n" if errors else "") + f"========= ERROR SUMMARY: {errors} errors"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    place = gates.Place(PROGRAMS.parent, tmp_path / "work", fake_worker)
    if errors:
        with pytest.raises(gates.Failed, match=r"errors: memcheck 2 \(sweep\), racecheck 2 \(sweep\), initcheck 2 \(sweep\)"):
            gates.sanitizer(place)
    else:
        assert gates.sanitizer(place) == "errors: memcheck 0, racecheck 0, initcheck 0"
    assert (tmp_path / "work/logs/memcheck.log").exists()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert gates.sanitizer(place).startswith("skipped: compute-sanitizer is not in PATH")


def test_a_clock_that_is_off_is_sampled_in_spite_of_it(tmp_path):
    """From the gate on, in this call and in those that go on with its results, on this model of GPU."""
    gates = load("gates.py")
    work = tmp_path / "work"
    work.mkdir()
    (work / "card.json").write_text('{"gpu": "a GPU"}')
    place = gates.Place(tmp_path, work)
    assert gates.lab.IGNORE_CLOCK not in place.worker_env
    place.questions = shell.program(tmp_path / "questions", "echo delays of 50 and 500 us are OFF: 61.0 and 531.0 us by events\nexit 1")
    with pytest.raises(gates.Failed, match="are OFF: .*; from here on the worker samples in spite of it"):
        gates.delays(place)
    assert place.worker_env[gates.lab.IGNORE_CLOCK] == gates.Place(tmp_path, work).worker_env[gates.lab.IGNORE_CLOCK] == "1"
    (work / "card.json").write_text('{"gpu": "another"}')
    assert gates.lab.IGNORE_CLOCK not in gates.Place(tmp_path, work).worker_env
    # No answer is not an answer.
    shell.program(place.questions, "echo no answer: set the device: cudaErrorNoDevice\nexit 2")
    (work / "ignore-clock").unlink()
    with pytest.raises(gates.Failed, match="no answer"):
        gates.delays(place)
    assert not (work / "ignore-clock").exists()


def test_a_worker_whose_clock_fails_is_told_to_measure_all_the_same(tmp_path, convtuned, convtune):
    """By the gate that tunes: on a GPU that runs no block on SM 0 there are no stamps, and the tuning is published in spite of it."""
    if not (PROGRAMS / "convtune-worker-sim").exists():
        pytest.skip("convtune-worker-sim was not built (no cuDNN)")
    gates = load("gates.py")
    worker = shell.program(tmp_path / "worker", f'SIMGPU_NO_SM_0=1 exec {PROGRAMS}/convtune-worker-sim "$@"')
    place = gates.Place(PROGRAMS.parent, tmp_path / "work", worker)
    place.gpu = "a GPU"
    said = gates.served(place)
    assert re.search(r"evidence incomplete, \d+ candidates, .* does? not work, and samples are taken in spite of it", said), said
    assert (tmp_path / "work" / "ignore-clock").read_text() == "a GPU"
    tuning = json.loads((tmp_path / "work" / "gate-tuning.json").read_text())
    assert "INCOMPLETE_REASON_NO_CLOCK" in tuning["incompleteReasons"] and tuning["candidates"][0]["status"] == "CANDIDATE_STATUS_TIMED"
