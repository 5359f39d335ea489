"""convtuned --cudnn-of: workers load the cuDNN that a program loads."""

import pathlib
import subprocess

import pytest

from harness import cudnn_shapes as shapes
from harness import cudnn_versions
from harness.api import API
from harness.cudnn_shapes import ENGINES
from harness.daemon import wait_until
from harness.problems import VARIED, numbered

FAKES = 0x091300  # the fake worker's cuDNN is 9.19.0


@pytest.fixture
def refused(fake_daemon):
    """refused(*flags) is what a daemon says that does not start."""

    def run(*flags, env=None):
        daemon = fake_daemon(*flags, env=env).start(wait=False)
        assert daemon.wait(30) == 1, daemon.log()
        return daemon.log()

    return run


@pytest.fixture
def worker_that_says(tmp_path, fake_worker):
    """A worker that notes the LD_LIBRARY_PATH of each of its processes; and those."""
    said = tmp_path / "said"
    wrapper = tmp_path / "worker"
    wrapper.write_text(f'#!/bin/sh\necho "$LD_LIBRARY_PATH" >>{said}\nexec {fake_worker} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper, lambda: set(said.read_text().splitlines())


@pytest.mark.parametrize("named_by", ["flag", "variable", "file"])
def test_every_worker_has_the_venvs_cudnn_and_its_cuda(daemons, tmp_path, worker_that_says, cli, named_by):
    wheel = shapes.venv(tmp_path / "venv", version=FAKES)
    cuda = wheel.parents[1] / "cu13" / "lib"
    cuda.mkdir(parents=True)
    wrapper, said = worker_that_says
    settings = tmp_path / "convtuned.toml"
    settings.write_text(f'cudnn-of = "{tmp_path}/venv"\n' if named_by == "file" else "")
    env = {"LD_LIBRARY_PATH": "/opt/other", **({"CONVTUNE_CUDNN_OF": f"{tmp_path}/venv"} if named_by == "variable" else {})}
    flags = ["--cudnn-of", f"{tmp_path}/venv/bin/python"] if named_by == "flag" else []
    daemon = daemons("--config", settings, "--devices", "0", "--worker", wrapper, *flags, env=env).start()
    with daemon.client() as client:
        client.get_one("fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16", on_miss="ON_MISS_HEURISTIC")
        [device] = client.tuning.ListDevices().devices
    assert device.worker_starts == 1 and device.cudnn_folder == str(wheel)
    assert said() == {f"{wheel}:{cuda}:/opt/other"}
    assert f"works with the cuDNN of {wheel}" in cli(daemon)("doctor").out


def test_without_it_workers_have_the_daemons_own(daemons, worker_that_says):
    wrapper, said = worker_that_says
    daemons("--devices", "0", "--worker", wrapper, env={"LD_LIBRARY_PATH": "/opt/other"}).start()
    assert said() == {"/opt/other"}


def test_what_loads_no_cudnn_is_refused_by_the_rule(refused, tmp_path):
    rule = "--cudnn-of: must be a program, or the folder of a venv or of libcudnn.so.9, is "
    (tmp_path / "empty").mkdir()
    assert rule + f"{tmp_path}/none" in refused("--cudnn-of", tmp_path / "none")
    log = refused("--cudnn-of", tmp_path / "empty")
    assert rule in log and "(--allow-missing-devices starts without it)" in log
    python = shapes.bare_venv(tmp_path / "bare") / "bin" / "python"
    assert f"--cudnn-of: must load cuDNN 9: {python} has no package that does" in refused("--cudnn-of", python)


def test_a_cudnn_that_is_not_whole_is_refused_as_the_doctor_does(refused, cli, tmp_path):
    shapes.venv(tmp_path / "venv", has=ENGINES[:1])
    log = refused("--cudnn-of", tmp_path / "venv")
    assert "--cudnn-of: must load a whole cuDNN: " in log
    # What another would lend is a mixture, of which the doctor's words are the same.
    system = shapes.cudnn(tmp_path / "system", version=0x091702)
    lent = {"LD_LIBRARY_PATH": str(system)}
    mixed = refused("--cudnn-of", tmp_path / "venv", env=lent)
    assert f"and mixes in libcudnn_engines_lent of {system} (cuDNN 9.23.2)" in mixed
    [problem] = [
        f["what"]
        for f in cli(None, env={"LD_LIBRARY_PATH": ""})("doctor", "--program", tmp_path / "venv", "--json").json()["findings"]
        if "libcudnn_engines_lent" in f["what"]
    ]
    assert problem in log


def test_a_package_for_jit_alone_is_taken(fake_daemon, tmp_path):
    own = shapes.cudnn(tmp_path / "jit", version=FAKES, names=ENGINES[1:], has=())
    fake_daemon("--cudnn-of", own).start()


def test_two_cudnn_of_one_python_must_be_told_apart(refused, tmp_path):
    wheel = shapes.venv(tmp_path / "venv")
    other = shapes.cudnn(tmp_path / "other")
    provider = wheel.parents[2] / "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    shapes.loads_cudnn(provider, other)
    (wheel.parents[2] / "onnxruntime/__init__.py").write_text("")
    log = refused("--cudnn-of", tmp_path / "venv")
    assert "--cudnn-of: must load one cuDNN, and " in log and ": name the folder" in log
    assert f"'s torch that of {wheel}" in log and f"'s onnxruntime that of {other}" in log


def test_a_program_that_may_load_none_is_refused(refused, tmp_path):
    """Its cuDNN would be the one that the loader finds for anybody."""
    found = {"LD_LIBRARY_PATH": str(shapes.cudnn(tmp_path / "system", version=FAKES))}
    start = tmp_path / "start.sh"
    start.write_text("#!/bin/sh\nexec python serve.py\n")
    start.chmod(0o755)
    for program in ("/bin/ls", start):
        assert f"--cudnn-of: must load cuDNN 9, and {program} links none: name its Python" in refused("--cudnn-of", program, env=found)


def test_the_daemons_own_library_path_is_not_the_programs(fake_daemon, tmp_path):
    """It comes before a program's RUNPATH."""
    own = shapes.cudnn(tmp_path / "own", version=FAKES)
    other = shapes.cudnn(tmp_path / "other", version=0x091C01)
    program = tmp_path / "serve"
    command = ["cc", "-x", "c", "-", "-x", "none", "-o", program, "-Wl,--no-as-needed", own / "libcudnn.so.9", f"-Wl,-rpath,{own}"]
    subprocess.run([*command, "-Wl,--enable-new-dtags"], input="int main(void){return 0;}\n", text=True, check=True)
    daemon = fake_daemon("--cudnn-of", program, env={"LD_LIBRARY_PATH": str(other)}).start()
    with daemon.client() as client:
        [device] = client.tuning.ListDevices().devices
    assert device.cudnn_folder == str(own)


def test_a_worker_that_loads_another_is_left_out(refused, tmp_path):
    own = shapes.cudnn(tmp_path / "own")
    assert f" loaded cuDNN 9.19.0 in place of 9.20.0 of {own}" in refused("--cudnn-of", own)


def test_a_python_that_hangs_ends_the_start(refused, tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nsleep 60 & exec sleep 60\n")
    python.chmod(0o755)
    assert f"--cudnn-of: {python} did not end within 10s" in refused("--cudnn-of", python)


def test_modules_of_the_current_folder_are_not_imported(refused, tmp_path, monkeypatch):
    python = shapes.bare_venv(tmp_path / "bare") / "bin" / "python"
    for module in ("csv", "email", "zipfile", "importlib"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    assert f"--cudnn-of: must load cuDNN 9: {python} has no package that does" in refused("--cudnn-of", python)


def test_a_missing_one_can_be_done_without(fake_daemon, tmp_path):
    daemon = fake_daemon("--cudnn-of", tmp_path / "none", "--allow-missing-devices").start()
    with daemon.client() as client:
        devices = client.tuning.ListDevices()
    assert not devices.devices and "--cudnn-of: must be a program, or " in devices.left_out[0]


OLDER, NEWER = (f"nvidia-h200,cc=9.0,sms=132,cudnn={version},lib=full" for version in ("9.20.0", "9.28.1"))


@pytest.fixture
def of_two(daemons, fake_worker, tmp_path):
    """of_two(*flags) is a daemon with the GPU and two cuDNN; the worker of the second says that it is newer."""
    folders = [shapes.cudnn(tmp_path / name, version=version) for name, version in (("older", 0x091400), ("newer", 0x091C01))]
    wrapper = tmp_path / "worker"
    wrapper.write_text(
        f"#!/bin/sh\nexport CONVTUNE_FAKE_SCRIPT=environment={OLDER}\n"
        f'case "$LD_LIBRARY_PATH" in {folders[1]}*) export CONVTUNE_FAKE_SCRIPT=environment={NEWER};; esac\n'
        f'exec {fake_worker} "$@"\n'
    )
    wrapper.chmod(0o755)
    flags = [word for folder in folders for word in ("--cudnn-of", folder)]
    return lambda *more: daemons("--devices", "0", "--worker", wrapper, *flags, *more).start()


def test_each_cudnn_of_a_gpu_is_a_device_with_a_worker_of_its_own(of_two, cli):
    daemon = of_two("--idle-timeout", "500ms")
    with daemon.client() as client:
        devices = lambda: client.tuning.ListDevices().devices
        assert [(d.name, d.environment) for d in devices()] == [("gpu:0", OLDER), ("gpu:0@9.28.1", NEWER)]
        program = {"cudnn_version": "9.28.1"}
        assert client.get_one(numbered(1), program=program).WhichOneof("outcome") == "miss"
        assert [d.worker_starts for d in devices()] == [0, 0]
        assert client.get_one(numbered(1), program=program, on_miss="ON_MISS_TUNE").WhichOneof("outcome") == "answer"
        assert [d.worker_starts for d in devices()] == [0, 1]
        # The exact version decides, and an environment is named by its text.
        assert client.get_one(numbered(1), environment=OLDER).WhichOneof("outcome") == "miss"
        assert "other environment" in client.get_one(numbered(1), program={"cudnn_version": "9.24.0"}).miss.message
        wait_until(lambda: not any(d.worker_pid for d in devices()), 10, "the idle worker's end")
    rows = cli(daemon)("environments", "--json").json()
    assert [e["text"] for e in rows["environments"]] == [OLDER, NEWER]
    table = cli(daemon)("environments").out.splitlines()
    assert [line.split()[-2:] for line in table[1:3]] == [["gpu:0", OLDER], ["gpu:0@9.28.1", NEWER]], table
    said = cli(daemon)("doctor").out
    assert f"gpu:0@9.28.1 ({NEWER}) works with the cuDNN of " in said and f"several environments: {OLDER}, {NEWER}" in said


def test_a_fleet_keeps_them_apart(of_two, fleet, cli):
    """Their environments have one name: tunings, releases, pins and tasks go by the text."""
    first, second = of_two(), of_two()
    fleet.agent("a", first)
    fleet.agent("b", second)
    for environment in (OLDER, NEWER):
        with first.client() as client:
            client.tune(numbered(1), environment=environment)
    fleet.wait_delivered(2)
    fleet.wait_release(fleet.promote()["release"], ["a", "b"])
    candidates = {}
    for environment in (OLDER, NEWER):
        with second.client() as client:
            answer = client.get_one(numbered(1), environment=environment).answer
        assert API.enum_name("Origin", answer.origin) == "ORIGIN_FLEET"
        candidates[environment] = answer.portfolio[-1].text
    assert sorted(fleet.node("b")["devices"]) == [OLDER, NEWER]
    wait_until(lambda: (fleet.node("b")["release_missing"], fleet.node("b")["release_extra"]) == (0, 0), 20, "the comparison")
    # One pin each of the same problem; then one ends.
    for environment, candidate in candidates.items():
        fleet.cli.ok("pin", numbered(1), candidate, "--environment", environment, "--reason", "x")

    def pinned():
        with second.client() as client:
            return {pin.environment_text: pin.candidate for pin in client.tuning.ListPins().pins}

    wait_until(lambda: pinned() == candidates, 20, "both pins")
    fleet.cli.ok("unpin", numbered(1), "--environment", NEWER)
    wait_until(lambda: pinned() == {OLDER: candidates[OLDER]}, 20, "the end of one")
    # Work that is asked for is done with that cuDNN.
    fleet.cli.ok("tune", numbered(2), "--environment", NEWER, "--nodes", "1")
    rows = fleet.sql("SELECT DISTINCT e.text FROM evidence JOIN environments e USING (environment_id) JOIN problems p USING (problem_id) "
                     f"WHERE p.text LIKE '%{numbered(2).split(',')[1]}%'")  # fmt: skip
    assert rows == [[NEWER]], rows
    assert all(fleet.node(name)["last_error"] == "" for name in ("a", "b")), fleet.status()


def test_once_tunes_for_each(convtuned, of_two, tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text(numbered(1) + "\n")
    daemon = of_two()
    command = [word for word in daemon.command() if not word.startswith("unix:") and word != "--listen"]
    assert daemon.stop() == 0
    done = subprocess.run([*command, "--once", "--file", listed], capture_output=True, text=True, env=daemon.env, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{environment}: 1 problems: 0 had an answer, 1 " in done.stdout for environment in (OLDER, NEWER)), done.stdout


def test_a_cudnn_that_the_worker_cannot_load_ends_the_start(daemons, worker, tmp_path):
    """Also where neither GPUs nor the worker were asked for."""
    own = shapes.cudnn(tmp_path / "own")  # which has no function of cuDNN's
    daemon = daemons("--cudnn-of", own).start(wait=False)
    assert daemon.wait(30) == 1 and "GPUs: it ended with exit status 127 (--allow-missing-devices" in daemon.log()


def test_the_same_cudnn_in_two_folders_is_one_device(fake_daemon, tmp_path):
    flags = [word for name in ("a", "b") for word in ("--cudnn-of", shapes.cudnn(tmp_path / name, version=FAKES))]
    daemon = fake_daemon(*flags).start()
    with daemon.client() as client:
        [device] = client.tuning.ListDevices().devices
    assert device.cudnn_folder == str(tmp_path / "a")


def test_two_real_versions_answer_as_each_alone(daemons, convtune, worker, tmp_path):
    """cuDNN's own choices for a profile, of the cuDNN that the tests have and of a newer one."""
    said = subprocess.run([worker, "--libraries"], capture_output=True, text=True, check=True).stdout
    own = pathlib.Path(dict(line.split(" ", 1) for line in said.splitlines())["cudnn"])
    newer = cudnn_versions.fetch(convtune, worker, cudnn_versions.NEWEST, tmp_path)
    problems = VARIED[:8]

    def answers(*folders):
        flags = [word for folder in folders for word in ("--cudnn-of", folder)]
        env = {"LD_LIBRARY_PATH": cudnn_versions.library_path(worker, own).partition(":")[2]}
        daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker, *flags, env=env).start()
        found = {}
        with daemon.client() as client:
            for environment in client.tuning.ListEnvironments().environments:
                results = client.get(*problems, environment=environment.text, on_miss="ON_MISS_HEURISTIC", timeout=300)
                found[environment.cudnn_version] = [result.answer.winner.text for result in results]
        daemon.stop()
        return found

    both, first, second = answers(own, newer), answers(own), answers(newer)
    assert len(both) == 2 and both == {**first, **second}
    [of_first], [of_second] = first.values(), second.values()
    assert all(of_first) and all(of_second) and of_first != of_second
