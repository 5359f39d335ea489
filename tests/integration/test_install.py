"""What is installed works outside the tree: programs, the C++ library, packages."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAMS
from harness.needs import missing

BUILD = PROGRAMS.parent
PROBLEM = "fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "client/cpp/README.md").read_text()
# The program that the page shows, taken out of it.
CONSUMER = re.search(r"```cpp\n(#include <convtune/resolver.h>\n.*?)```", PAGE, re.DOTALL)[1]
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(consumer CXX)
find_package(convtune 0.1 REQUIRED)
add_executable(consumer main.cc)
target_link_libraries(consumer PRIVATE convtune::convtune)
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Every component that was built, installed."""
    if not (BUILD / "lib" / "libconvtune.so").exists():
        pytest.fail("libconvtune.so is not built")
    prefix = tmp_path_factory.mktemp("prefix")
    for component in ("convtune", "libconvtune", "libconvtune-dev"):
        command = ["cmake", "--install", BUILD, "--prefix", prefix, "--component", component]
        subprocess.run(command, check=True, capture_output=True)
    return prefix


def libdir(prefix):
    return next(prefix.glob("lib/**/libconvtune.so")).parent


def build_consumer(prefix, directory):
    (directory / "main.cc").write_text(CONSUMER)
    (directory / "CMakeLists.txt").write_text(CMAKE)
    configure = ["cmake", "-S", directory, "-B", directory / "b", f"-DCMAKE_PREFIX_PATH={prefix}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", directory / "b"], check=True, capture_output=True)
    return directory / "b" / "consumer"


@pytest.mark.ci
def test_ten_lines_outside_the_tree_get_answers(prefix, tmp_path, fake_daemon, cli):
    daemon = fake_daemon().start()
    cli(daemon).ok("tune", PROBLEM)
    consumer = build_consumer(prefix, tmp_path)
    run = lambda env: subprocess.run(  # noqa: E731
        [consumer, PROBLEM], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    found = run({"CONVTUNE_ADDRESS": daemon.address})
    assert found.returncode == 0 and re.search(r"acc=f32 (graph:eng|legacy:algo)", found.stdout), found
    # Without a daemon it has what was published, and without that it says why, within its limit.
    daemon.stop()
    snapshot = daemon.state_dir / "snapshot"
    assert run({"CONVTUNE_ADDRESS": daemon.address, "CONVTUNE_SNAPSHOT": snapshot}).stdout == found.stdout
    missing = run({"CONVTUNE_ADDRESS": daemon.address, "CONVTUNE_SNAPSHOT": tmp_path})
    assert missing.returncode == 0 and missing.stdout.startswith(found.stdout.split()[0] + " "), missing


def cache_value(name):
    line = re.search(rf"^{name}:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return line.group(1) if line else None


@pytest.mark.ci
def test_the_example_server_needs_the_installed_package_and_cudnn_alone(prefix, tmp_path):
    names = ["CUDNN_INCLUDE_DIR", "CUDNN_LIBRARY", "CUDART_INCLUDE_DIR", "CUDART_LIBRARY"]
    places = {name: cache_value(name) for name in names}
    if not (PROGRAMS / "convtune-example-server").exists() or None in places.values():
        pytest.skip("this build has no cuDNN")
    source = tmp_path / "example"
    shutil.copytree(pathlib.Path(__file__).parents[2] / "deploy" / "examples", source)
    configure = ["cmake", "-S", source, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}",
                 *(f"-D{name}={place}" for name, place in places.items())]  # fmt: skip
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "b"], check=True, capture_output=True)
    empty = subprocess.run(
        [tmp_path / "b" / "convtune-example-server", "/dev/null"], input="", capture_output=True, text=True, timeout=60
    )
    assert empty.returncode == 2 and "the device profile" in empty.stderr, empty


@pytest.mark.ci
def test_pkg_config_knows_it(prefix, tmp_path):
    if shutil.which("pkg-config") is None:
        missing("pkg-config", "pkg-config")
    env = {**os.environ, "PKG_CONFIG_PATH": str(libdir(prefix) / "pkgconfig")}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "convtune"], env=env, check=True, capture_output=True, text=True
    ).stdout.split()
    (tmp_path / "main.cc").write_text(CONSUMER)
    subprocess.run(["c++", "-std=c++17", tmp_path / "main.cc", *flags, "-o", tmp_path / "m"], check=True)


def test_the_library_shows_its_own_names_only(prefix):
    library = libdir(prefix) / "libconvtune.so"
    names = subprocess.run(["nm", "-DC", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    defined = [line.split(maxsplit=2)[2] for line in names.splitlines()]
    own = ("convtune::client::Resolver::", "convtune::client::Version")
    assert defined and all(name.startswith(own) for name in defined), defined[:20]
    header = (prefix / "include" / "convtune" / "resolver.h").read_text()
    assert set(re.findall(r"#include [<\"](\S+)[>\"]", header)) == {
        "chrono", "cstdint", "functional", "memory", "optional", "string", "utility", "vector",
    }  # fmt: skip


def test_the_installed_programs_run_and_find_their_profiles(prefix):
    for program in ("convtune", "convtuned"):
        subprocess.run([prefix / "bin" / program, "--version"], check=True, capture_output=True)
    assert list((prefix / "share" / "convtune" / "profiles").glob("*.json"))
    for shell, file in (
        ("bash", "bash-completion/completions/convtune"),
        ("zsh", "zsh/vendor-completions/_convtune"),
        ("fish", "fish/vendor_completions.d/convtune.fish"),
    ):
        own = subprocess.run([prefix / "bin/convtune", "completion", shell], capture_output=True, text=True).stdout
        assert own and (prefix / "share" / file).read_text() == own
    assert (prefix / "lib" / "systemd" / "system" / "convtuned.service").exists()
