"""convtuned --cudnn-of: workers load the cuDNN that a program loads."""

import pytest

from harness import cudnn_shapes as shapes
from harness.cudnn_shapes import ENGINES


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
    wheel = shapes.venv(tmp_path / "venv")
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
    own = shapes.cudnn(tmp_path / "jit", names=ENGINES[1:], has=())
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


def test_a_missing_one_can_be_done_without(fake_daemon, tmp_path):
    daemon = fake_daemon("--cudnn-of", tmp_path / "none", "--allow-missing-devices").start()
    with daemon.client() as client:
        devices = client.tuning.ListDevices()
    assert not devices.devices and "--cudnn-of: must be a program, or " in devices.left_out[0]
