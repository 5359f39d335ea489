"""convtune doctor --program: which cuDNN a program loads, with libraries of the shape of cuDNN's, and no cuDNN."""

import subprocess

import pytest
from harness import cudnn_shapes as shapes
from harness.cudnn_shapes import ENGINES, cudnn, library
from harness.fakes import script

PIP = "-m pip install --no-deps 'nvidia-cudnn-cu13>9.20.0.48,<10'"


def program(path, *args):
    command = ["cc", "-x", "c", "-", "-x", "none", "-o", path, *args]
    subprocess.run(command, input="int main(void){return 7;}\n", text=True, check=True)
    return path


def linked(path, folder):
    return program(path, "-Wl,--no-as-needed", folder / "libcudnn.so.9", f"-Wl,-rpath,{folder}")


@pytest.fixture
def venv(tmp_path):
    """venv(**what) is a Python's folder, and that of the cuDNN which its torch loads."""
    return lambda **what: (tmp_path / "venv", shapes.venv(tmp_path / "venv", **what))


@pytest.fixture
def said(cli):
    """said(program, daemon=, env=) is what the doctor says of the program: [severity, what, advice]."""

    def run(path, daemon=None, env=None):
        result = cli(daemon, env={"LD_LIBRARY_PATH": "", **(env or {})})("doctor", "--program", path, "--json")
        assert result.code in (0, 1, 4), result
        findings = [list(f.values()) for f in result.json()["findings"] if "cuDNN" in f["what"]]
        if any(severity == "problem" for severity, _, _ in findings):
            assert result.code in (1, 4), result
        return [f for f in findings if not f[1].startswith("nvidia-")]  # what the daemon's own libraries are

    return run


def test_a_wheel_that_lacks_what_it_names_is_a_problem(said, venv):
    folder, wheel = venv(has=ENGINES[:1])
    [[severity, what, advice]] = said(folder)
    assert severity == "problem" and what.startswith(f"{folder}/bin/python's torch loads cuDNN 9.20.0 of {wheel}"), what
    assert "which lacks libcudnn_engines_lent: " in what and "engines_precompiled" not in what
    assert advice == f"{folder}/bin/python {PIP}"
    library(wheel / "libcudnn_engines_lent.so.9", "int engine;\n")
    [[severity, what, advice]] = said(folder / "bin" / "python")
    assert severity == "ok" and what.endswith("which is whole: it has the 3 libraries that it names") and not advice, what


def test_what_another_cudnn_would_lend_is_named(said, venv, tmp_path):
    """As a system's cuDNN does, which the loader finds where the wheel lacks a library."""
    folder, wheel = venv(has=ENGINES[:1])
    system = cudnn(tmp_path / "system", version=0x091702)
    [[severity, what, advice]] = said(folder, env={"LD_LIBRARY_PATH": str(system)})
    assert severity == "problem" and f"libcudnn_engines_precompiled of {system} (cuDNN 9.23.2)" in what, what
    assert advice == f"start it with LD_LIBRARY_PATH={wheel}, so that its own come first"
    # It comes by a name that only the other has.
    for path in system.iterdir():
        if path.name != "libcudnn_graph.so.9" and "lent" not in path.name:
            path.unlink()
    (system / "libcudnn_graph.so.9").rename(system / "libcudnn_graph.so.9.23.2")
    [[severity, what, advice]] = said(folder, env={"LD_LIBRARY_PATH": str(system)})
    assert severity == "problem" and advice == f"{folder}/bin/python {PIP}", advice
    assert f"mixes in libcudnn_engines_lent of {system} (cuDNN of an unknown version): " in what, what


def test_a_whole_cudnn_behind_another_is_put_in_front(said, tmp_path):
    own, other = cudnn(tmp_path / "own"), cudnn(tmp_path / "other", version=0x091300)
    (other / "libcudnn.so.9").unlink()
    binary = linked(tmp_path / "serve", own)
    [[severity, what, advice]] = said(binary, env={"LD_LIBRARY_PATH": str(other)})
    assert severity == "problem" and f"libcudnn_graph of {other} (cuDNN 9.19.0)" in what, what
    assert advice == f"start it with LD_LIBRARY_PATH={own}, so that its own come first"
    [[severity, what, advice]] = said(binary, env={"LD_LIBRARY_PATH": str(own)})
    assert severity == "ok", what


def test_one_folder_may_hold_two_versions(said, tmp_path):
    own = cudnn(tmp_path / "own", names=("libcudnn_ops",), has=())
    library(own / "libcudnn_ops.so.9", "const unsigned cudnn_ops_infer_version = 0x091300;\n")
    [[severity, what, _]] = said(linked(tmp_path / "serve", own))
    assert severity == "problem" and f"mixes in libcudnn_ops of {own} (cuDNN 9.19.0)" in what, what


def test_a_program_that_opens_cudnn_gets_the_loaders(said, tmp_path):
    binary, own = program(tmp_path / "serve"), cudnn(tmp_path / "own")
    [[severity, what, advice]] = said(binary, env={"LD_LIBRARY_PATH": str(own)})
    assert severity == "ok" and what.startswith(f"{binary}, if it opens cuDNN, loads cuDNN 9.20.0 of {own}, "), what
    script_of = tmp_path / "serve.sh"
    script_of.write_text(f"#!{binary} --all\n")
    script_of.chmod(0o755)
    assert said(script_of, env={"LD_LIBRARY_PATH": str(own)}) == [[severity, what, advice]]


def test_a_folder_of_cudnn_is_looked_at(said, tmp_path):
    [[severity, what, _]] = said(cudnn(tmp_path / "own", has=ENGINES[:1]))
    assert severity == "problem" and f" loads cuDNN 9.20.0 of {tmp_path}/own, which lacks libcudnn_engines_lent: " in what, what


def test_an_older_cudnn_is_not_taken_for_the_systems(said, cli, tmp_path):
    """torch 1.13 links libcudnn.so.8, and this machine may have a libcudnn.so.9 for whoever opens one."""
    system, own = cudnn(tmp_path / "system"), tmp_path / "wheel"
    library(own / "libcudnn.so.8", "int old;\n", "-Wl,-soname,libcudnn.so.8")
    binary = program(tmp_path / "serve", "-Wl,--no-as-needed", own / "libcudnn.so.8", f"-Wl,-rpath,{own}")
    [[severity, what, _]] = said(binary, env={"LD_LIBRARY_PATH": str(system)})
    assert severity == "problem" and what == f"{binary} loads cuDNN 8 of {own}, and convtune serves cuDNN 9 alone", what


def test_the_wheel_that_no_package_finds_is_said_beside_the_systems(said, cli, venv, tmp_path):
    """onnxruntime finds the system's cuDNN, and with preload_dlls() its wheel's."""
    folder, wheel = venv()
    (wheel.parents[2] / "torch/lib/libtorch_cuda.so").unlink()
    library(wheel.parents[2] / "onnxruntime/capi/libonnxruntime_providers_cuda.so", "int provider;\n")
    (wheel.parents[2] / "onnxruntime/__init__.py").write_text("raise SystemExit('onnxruntime was imported')\n")
    system = cudnn(tmp_path / "system", version=0x091300)
    (first, second) = said(folder, env={"LD_LIBRARY_PATH": str(system)})
    assert first[0] == "ok" and first[1].startswith(f"{folder}/bin/python's onnxruntime, if it opens cuDNN, loads cuDNN 9.19.0 of {system}, "), first
    # Its graph library is found first in the folders that the program names.
    assert "'s wheel, if a program opens it (onnxruntime.preload_dlls() does), loads cuDNN 9.20.0 of " in second[1], second
    # So the venv does not say which of them an upgrade is from.
    (tmp_path / "list").write_text("fwd,x=1x8x8x8,w=8x8x3x3\n")
    asked = cli(None, env={"LD_LIBRARY_PATH": str(system)})("upgrade-check", tmp_path / "list", "--profile", "nvidia-h200", "--from", folder, "--to", system)
    assert asked.code == 2 and f"--from: must name the folder of one cuDNN: {folder} has that of {wheel}, and " in asked.err, asked
    assert f"onnxruntime, if it opens cuDNN, loads that of {system}" in asked.err, asked


def test_a_venv_in_the_current_folder_needs_no_dot(said, venv, tmp_path, monkeypatch):
    venv()
    monkeypatch.chdir(tmp_path)
    assert said("venv")[0][1].startswith("venv/bin/python's torch loads cuDNN 9.20.0 of "), said("venv")


def test_the_daemons_environments_are_compared(said, fake_daemon, tmp_path):
    daemon = fake_daemon(env=script(environment="nvidia-h200,cc=9.0,sms=132,cudnn=9.20.0,lib=full")).start()
    own = linked(tmp_path / "own", cudnn(tmp_path / "cudnn"))
    other = linked(tmp_path / "other", cudnn(tmp_path / "newer", version=0x091800))
    jit = linked(tmp_path / "jit", cudnn(tmp_path / "small", names=ENGINES[1:], has=()))
    assert said(own, daemon)[1] == ["ok", "the daemon tunes for cuDNN 9.20.0: nvidia-h200", ""]
    severity, what, advice = said(other, daemon)[1]
    assert severity == "notice" and what.startswith("no device of the daemon has cuDNN 9.24.0, and no tuning"), what
    assert advice == f"start the daemon with --cudnn-of {tmp_path}/newer"
    (severity, what, _), (_, environment, _) = said(jit, daemon)
    assert severity == "notice" and f", which has no precompiled engines: it lacks {ENGINES[1]}" in what, what
    assert "cuDNN 9.20.0 without precompiled engines" in environment


def test_bad_input_is_one_clear_error(cli, tmp_path):
    (tmp_path / "text").write_text("words\n")
    (tmp_path / "text").chmod(0o755)
    (tmp_path / "folder").mkdir()
    for path, words in (
        (tmp_path / "none", "--program: must be a program, or the folder of a venv or of libcudnn.so.9, is "),
        (tmp_path / "folder", "--program: must be a program, or the folder of a venv or of libcudnn.so.9, is "),
        ("convtune-no-such-program", "--program: must be a program, or the folder of a venv or of libcudnn.so.9, is convtune-no-such"),
        (tmp_path / "text", f"--program: must be a program of this machine, whose loader cannot read {tmp_path}/text: "),
    ):
        result = cli(None)("doctor", "--program", path)
        assert result.code == 2 and words in result.err and result.out == "", result
