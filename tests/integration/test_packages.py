"""Debian packages: what is in them, and install, upgrade, downgrade and removal with dpkg, in a root of their own."""

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from conftest import PROGRAMS
from harness import sbom
from harness.daemon import Daemon, wait_until
from harness.needs import missing
from harness.simulator import simulators

BUILD = PROGRAMS.parent
PROBLEM = "fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Name to file of each package that can be made of what was built."""
    if shutil.which("dpkg-deb") is None or shutil.which("dpkg-shlibdeps") is None:
        missing("dpkg-dev", "dpkg-dev")
    folder = tmp_path_factory.mktemp("packages")
    components = "convtune;libconvtune;libconvtune-dev;python"
    components += ";preload" if has_preload() else ""
    components += ";fleet" if has_fleet() else ""
    subprocess.run(
        ["cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder,
         "-D", f"CPACK_COMPONENTS_ALL={components}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


def has_preload():
    """Without cuDNN there is neither a worker nor an interposer."""
    return (BUILD / "lib" / "libconvtune_preload.so").exists()


def has_fleet():
    return (BUILD / "bin" / "convtune-fleet").exists()


def test_debian_packages(packages):
    expected = {"convtune", "libconvtune0", "libconvtune-dev", "python3-convtune"}
    assert packages.keys() == expected | ({"convtune-preload"} if has_preload() else set()) | (
        {"convtune-fleet"} if has_fleet() else set())  # fmt: skip

    def field(package, name):
        return subprocess.run(["dpkg-deb", "-f", packages[package], name], capture_output=True, text=True).stdout

    def content(package):
        listed = subprocess.run(["dpkg-deb", "-c", packages[package]], capture_output=True, text=True).stdout
        return {"/" + line.split()[5].lstrip("./") for line in listed.splitlines()}

    assert not simulators(path for package in packages for path in content(package))
    if has_fleet():
        assert "libpq5" in field("convtune-fleet", "Depends")
        assert {"/usr/bin/convtune-fleet", "/usr/lib/systemd/system/convtune-fleet.service"} <= content("convtune-fleet")
    # The daemon's package never asks for PostgreSQL's library.
    assert "libpq" not in field("convtune", "Depends")
    assert "libgrpc++1" in field("convtune", "Depends") and "libsqlite3-0" in field("convtune", "Depends")
    assert "libconvtune0 (= 0.1.0)" in field("libconvtune-dev", "Depends")
    assert {"/usr/bin/convtune", "/usr/bin/convtuned", "/usr/lib/systemd/system/convtuned.service",
            "/usr/share/convtune/profiles/nvidia-h200.json", "/usr/lib/sysusers.d/convtune.conf",
            "/usr/share/bash-completion/completions/convtune", "/usr/share/zsh/vendor-completions/_convtune",
            "/usr/share/fish/vendor_completions.d/convtune.fish"} <= content("convtune")  # fmt: skip
    assert "/usr/include/convtune/resolver.h" in content("libconvtune-dev")
    if has_preload():
        assert "/usr/lib/libconvtune_preload.so" in content("convtune-preload")
        # What goes into other people's programs needs libc alone.
        assert re.fullmatch(r"libc6 \(>= [0-9.]+\)\s*", field("convtune-preload", "Depends"))
    modules = "/usr/lib/python3/dist-packages/convtune/"
    assert {modules + "client.py", modules + "v1/tuning_service_pb2.py", modules + "v1/tuning_pb2.pyi", modules + "py.typed"} <= content("python3-convtune")


def test_the_sbom_has_what_the_packages_need_and_are_made_of(packages, tmp_path):
    found, listed = sbom.make(tmp_path, BUILD, *packages.values())
    assert found.keys() == packages.keys()
    assert {"libgrpc++1.51" if "libgrpc++1.51" in listed else "libgrpc++1.51t64", "libsqlite3-0"} <= found["convtune"]["DEPENDS_ON"]
    # Headers alone, so no package's dependency says it; those of the tests are in nothing that is shipped.
    assert {"nlohmann-json3-dev", "libcli11-dev"} <= found["convtune"]["BUILD_DEPENDENCY_OF"]
    assert not {"libgtest-dev", "libgmock-dev"} & listed.keys()
    for name, path in packages.items():
        assert listed[name]["checksums"] == [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}]
    assert all(listed[name]["versionInfo"] for own in found.values() for name in own["BUILD_DEPENDENCY_OF"] if "cuda" not in name)


class Root:
    """A root with a dpkg of its own; maintainer scripts run outside of it, with DPKG_ROOT."""

    def __init__(self, path):
        self.path = path
        for folder in ("updates", "info", "triggers"):
            (path / "var/lib/dpkg" / folder).mkdir(parents=True)
        (path / "var/lib/dpkg/status").touch()
        (path / "etc").mkdir()

    def dpkg(self, *arguments):
        forced = [f"--force-{what}" for what in ("depends", "script-chrootless", "not-root", "bad-path")]
        done = subprocess.run(["dpkg", f"--root={self.path}", *forced, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def version(self):
        listed = self.dpkg("-s", "convtune")
        return re.search(r"^Version: (.*)$", listed, re.MULTILINE)[1]


def older_version_of(package, folder):
    """The same program as a package of before, with a file that the next one does not have."""
    subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
    control = folder / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 0.0.9", control.read_text(), flags=re.MULTILINE))
    (folder / "usr/share/convtune/gone.txt").write_text("only in 0.0.9")
    made = folder.with_suffix(".deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", folder, made], check=True, capture_output=True)
    return made


def test_upgrade_downgrade_and_removal_keep_the_database(packages, fake_worker, cli, short_dir, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to install packages")
    root = Root(short_dir / "root")
    older = older_version_of(packages["convtune"], tmp_path / "older")
    state = root.path / "var/lib/convtune"
    database = state / "convtune.db"
    served = []

    def start():
        daemon = Daemon(root.path / "usr/bin/convtuned", short_dir, ["--devices", "0", "--worker", fake_worker])
        daemon.state_dir = state
        served.append(daemon)
        return daemon.start(wait=False)

    def answers_from_the_database():
        daemon = start()
        daemon.wait_ready()
        cli(daemon).ok("get", PROBLEM)
        with daemon.client() as client:
            assert client.info().worker_starts == 0
        assert daemon.stop() == 0

    try:
        root.dpkg("-i", older)
        assert root.version() == "0.0.9" and (root.path / "usr/share/convtune/gone.txt").exists()
        if shutil.which("systemd-sysusers"):
            assert re.search("^convtune:", (root.path / "etc/passwd").read_text(), re.MULTILINE)
        daemon = start()
        daemon.wait_ready()
        cli(daemon).ok("tune", PROBLEM)
        assert daemon.stop() == 0

        root.dpkg("-i", packages["convtune"])
        assert root.version() == "0.1.0" and not (root.path / "usr/share/convtune/gone.txt").exists()
        answers_from_the_database()

        # A later program added a migration that this one can live with, then one that it cannot.
        with sqlite3.connect(database) as connection:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {schema + 1}")
        connection.close()
        root.dpkg("-i", older)
        assert root.version() == "0.0.9"
        answers_from_the_database()
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'compatible_version'", [schema + 1])
        connection.close()
        before = database.read_bytes()
        refused = start()
        assert refused.wait(60) == 1
        assert f"needs a program that knows version {schema + 1}; this one knows version {schema}" in refused.log()
        assert database.read_bytes() == before

        for removal in ("--remove", "--purge"):
            root.dpkg(removal, "convtune")
            assert not (root.path / "usr/bin/convtuned").exists() and database.read_bytes() == before
    finally:
        for daemon in served:
            daemon.close()


def test_the_interposers_package_is_found_by_run(packages, tmp_path):
    if not has_preload():
        pytest.skip("libconvtune_preload.so was not built (no cuDNN)")
    for name in ("convtune", "convtune-preload"):
        subprocess.run(["dpkg-deb", "-x", packages[name], tmp_path], check=True)
    command = [tmp_path / "usr/bin/convtune", "run", "--", "/bin/echo", "hello"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran


ASK = """
import sys, convtune, convtune.v1.tuning_pb2
assert convtune.__file__.startswith(sys.argv[1]), convtune.__file__
for result in convtune.Client("unix:/nobody", snapshot=sys.argv[2]).resolve(sys.argv[3:], timeout=0.1):
    print(result.source, result.winner.text if result.winner else result.message)
"""


def test_debians_python_has_the_package_and_asks(packages, fake_daemon, cli, tmp_path):
    """With Debian's own gRPC, Protobuf and xxHash, which are older than PyPI's."""
    wanted = ["python3-grpcio", "python3-protobuf", "python3-xxhash"]
    fetched = subprocess.run(["apt-get", "-q", "download", *wanted], cwd=tmp_path, capture_output=True, text=True)
    if fetched.returncode != 0 or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip(f"Debian's packages cannot be had: {fetched.stderr[-200:]}")
    root = tmp_path / "root"
    for package in (*tmp_path.glob("*.deb"), packages["python3-convtune"]):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    daemon = fake_daemon().start()
    cli(daemon).ok("tune", PROBLEM)
    modules = root / "usr/lib/python3/dist-packages"

    def run(script, *arguments):
        env = {**os.environ, "PYTHONPATH": str(modules)}
        done = subprocess.run(["/usr/bin/python3", "-c", script, *map(str, arguments)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    found = run("import sys, convtune\nfor r in convtune.Client(sys.argv[1]).resolve(sys.argv[2:], timeout=60):"
                " print(r.source, r.miss, r.message)", daemon.address, PROBLEM, "fwd,x=1x64x7x7,w=64x63x3x3")  # fmt: skip
    assert found.splitlines()[0].split() == ["daemon"] and "daemon refused" in found and "w_dims[1]" in found
    snapshot = daemon.state_dir / "snapshot"
    wait_until(lambda: run(ASK, root, snapshot, PROBLEM).startswith("snapshot graph:"), 60, "the snapshot")
