"""What is installed works outside the tree: programs, the C++ library, packages."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAMS

BUILD = PROGRAMS.parent
PROBLEM = "fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"

# As the README shows it.
CONSUMER = """
#include <convtune/resolver.h>
#include <cstdio>
int main(int argc, char** argv) {
  convtune::client::Resolver resolver;
  for (const auto& result : resolver.Resolve({{argv[argc - 1]}}, std::chrono::seconds(10))) {
    std::printf("%s %s\\n", result.problem.c_str(),
                result.found ? result.winner.text.c_str() : result.why.c_str());
  }
}
"""
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
    assert missing.returncode == 0 and missing.stdout.startswith(PROBLEM + " "), missing


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


def test_pkg_config_knows_it(prefix, tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not there")
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
    assert defined and all(name.startswith("convtune::client::") for name in defined), defined[:20]
    header = (prefix / "include" / "convtune" / "resolver.h").read_text()
    assert set(re.findall(r"#include [<\"](\S+)[>\"]", header)) == {
        "chrono", "cstdint", "functional", "memory", "optional", "string", "utility", "vector",
    }  # fmt: skip


def test_the_installed_programs_run_and_find_their_profiles(prefix):
    for program in ("convtune", "convtuned"):
        subprocess.run([prefix / "bin" / program, "--version"], check=True, capture_output=True)
    assert list((prefix / "share" / "convtune" / "profiles").glob("*.json"))
    assert (prefix / "lib" / "systemd" / "system" / "convtuned.service").exists()


def test_debian_packages(tmp_path):
    if shutil.which("dpkg-deb") is None or shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("dpkg-dev is not there")
    # Without a worker: CI may lack cuDNN, and then there is no interposer either.
    has_preload = (BUILD / "lib" / "libconvtune_preload.so").exists()
    has_fleet = (BUILD / "bin" / "convtune-fleet").exists()
    components = "convtune;libconvtune;libconvtune-dev;python" + (";preload" if has_preload else "")
    components += ";fleet" if has_fleet else ""
    subprocess.run(
        ["cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", tmp_path,
         "-D", f"CPACK_COMPONENTS_ALL={components}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    packages = {path.name.split("_")[0]: path for path in tmp_path.glob("*.deb")}
    expected = {"convtune", "libconvtune0", "libconvtune-dev", "python3-convtune"}
    assert packages.keys() == expected | ({"convtune-preload"} if has_preload else set()) | (
        {"convtune-fleet"} if has_fleet else set())  # fmt: skip

    def field(package, name):
        return subprocess.run(["dpkg-deb", "-f", packages[package], name], capture_output=True, text=True).stdout

    def content(package):
        listed = subprocess.run(["dpkg-deb", "-c", packages[package]], capture_output=True, text=True).stdout
        return {"/" + line.split()[5].lstrip("./") for line in listed.splitlines()}

    if has_fleet:
        assert "libpq5" in field("convtune-fleet", "Depends")
        assert {"/usr/bin/convtune-fleet", "/usr/lib/systemd/system/convtune-fleet.service"} <= content("convtune-fleet")
    # The daemon's package never asks for PostgreSQL's library.
    assert "libpq" not in field("convtune", "Depends")
    assert "libgrpc++1" in field("convtune", "Depends") and "libsqlite3-0" in field("convtune", "Depends")
    assert "libconvtune0 (= 0.1.0)" in field("libconvtune-dev", "Depends")
    assert {"/usr/bin/convtune", "/usr/bin/convtuned", "/usr/lib/systemd/system/convtuned.service",
            "/usr/share/convtune/profiles/nvidia-h200.json", "/usr/lib/sysusers.d/convtune.conf"} <= content("convtune")  # fmt: skip
    assert "/usr/include/convtune/resolver.h" in content("libconvtune-dev")
    if has_preload:
        assert {"/usr/lib/libconvtune_preload.so", "/usr/lib/libconvtune_audit.so"} <= content("convtune-preload")
        # What goes into other people's programs needs libc alone.
        assert re.fullmatch(r"libc6 \(>= [0-9.]+\)\s*", field("convtune-preload", "Depends"))
    modules = "/usr/lib/python3/dist-packages/convtune/"
    assert {modules + "client.py", modules + "v1/tuning_service_pb2.py"} <= content("python3-convtune")
    for script in ("postinst", "prerm"):
        subprocess.run(["sh", "-n", pathlib.Path(__file__).parents[2] / "deploy" / "debian" / script], check=True)
    # As dpkg does it, into a folder: upgrade over an older one, then removal.
    root = tmp_path / "root"
    for _ in range(2):
        subprocess.run(["dpkg-deb", "-x", packages["convtune"], root], check=True)
    subprocess.run([root / "usr" / "bin" / "convtuned", "--version"], check=True, capture_output=True)
    if has_preload:
        # `convtune run` finds the library of the package beside it.
        subprocess.run(["dpkg-deb", "-x", packages["convtune-preload"], root], check=True)
        ran = subprocess.run([root / "usr" / "bin" / "convtune", "run", "--", "/bin/echo", "hello"],
                             capture_output=True, text=True)  # fmt: skip
        assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran
