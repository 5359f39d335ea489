"""What is open by default, and what is refused at start."""

import os
import sqlite3
import stat
import subprocess
import time

import grpc
import pytest

from harness.api import Client
from harness.certificates import Certificates
from harness.daemon import free_port
from harness.problems import numbered


def refused_start(daemon, within=10):
    """Exit code and log of a daemon that does not start."""
    began = time.monotonic()
    daemon.start(wait=False)
    code = daemon.process.wait(within)
    assert time.monotonic() - began < within
    assert code != 0
    return code, daemon.log()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_socket_is_for_owner_and_group_whatever_the_umask(bare_daemon, umask):
    before = os.umask(umask)
    try:
        bare_daemon.start()
    finally:
        os.umask(before)
    assert stat.S_IMODE(bare_daemon.socket.stat().st_mode) == 0o660


def test_state_is_not_for_others(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        client.tune(numbered(1))
    assert not stat.S_IMODE(daemon.state_dir.stat().st_mode) & 0o027
    for path in daemon.state_dir.rglob("*"):
        if path.is_socket():  # whoever may use the daemon may report to it
            assert stat.S_IMODE(path.stat().st_mode) == 0o660, path
            continue
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


def test_tcp_without_tls_is_refused_at_start(daemons):
    daemon = daemons("--devices", "none", listen=f"127.0.0.1:{free_port()}")
    _, log = refused_start(daemon)
    assert "tls" in log.lower()


def test_socket_path_that_is_too_long_is_refused(daemons):
    daemon = daemons("--devices", "none", listen="unix:/tmp/" + "s" * 200)
    _, log = refused_start(daemon)
    assert "107" in log or "108" in log


def test_second_daemon_on_the_same_state_names_the_first(bare_daemon, daemons):
    bare_daemon.start()
    second = daemons("--devices", "none")
    second.state_dir = bare_daemon.state_dir
    _, log = refused_start(second, within=2)
    assert str(bare_daemon.pid) in log
    assert str(bare_daemon.state_dir) in log
    with bare_daemon.client() as client:
        assert client.info().pid == bare_daemon.pid


def test_second_daemon_on_the_same_socket_is_refused(bare_daemon, daemons):
    bare_daemon.start()
    second = daemons("--devices", "none", listen=bare_daemon.address)
    _, log = refused_start(second)
    assert str(bare_daemon.socket) in log
    with bare_daemon.client() as client:
        assert client.info().pid == bare_daemon.pid


def test_socket_of_a_killed_daemon_is_taken_over(bare_daemon):
    bare_daemon.start()
    bare_daemon.kill()
    assert bare_daemon.socket.exists()
    bare_daemon.start()
    assert bare_daemon.stop() == 0


def test_a_file_in_the_sockets_place_is_not_deleted(bare_daemon):
    bare_daemon.socket.write_text("precious")
    refused_start(bare_daemon)
    assert bare_daemon.socket.read_text() == "precious"


def test_a_database_that_is_not_ours_is_not_touched(bare_daemon):
    bare_daemon.start()
    assert bare_daemon.stop() == 0
    (database,) = [p for p in bare_daemon.state_dir.iterdir() if p.suffix in (".db", ".sqlite", ".sqlite3")]
    for leftover in bare_daemon.state_dir.iterdir():
        if leftover.name.startswith(database.name) and leftover != database:
            leftover.unlink()
    database.unlink()
    with sqlite3.connect(database) as foreign:
        foreign.execute("create table precious (value text)")
        foreign.execute("insert into precious values ('kept')")
    foreign.close()
    before = database.read_bytes()
    _, log = refused_start(bare_daemon)
    assert str(database) in log
    assert database.read_bytes() == before


@pytest.fixture
def tls_daemon(daemons, certificates):
    """Listens on a unix socket and on TCP; tls_daemon.tcp is the latter."""
    port = free_port()
    daemon = daemons("--devices", "none", "--listen", f"localhost:{port}", *certificates.server_flags())
    daemon.tcp = f"localhost:{port}"
    return daemon.start()


def test_mutual_tls_serves_who_has_a_certificate(tls_daemon, certificates, convtune):
    with Client(tls_daemon.tcp, credentials=certificates.credentials("client")) as client:
        assert client.info().pid == tls_daemon.pid
    done = subprocess.run(
        [convtune, "environments", "--address", tls_daemon.tcp, "--tls-ca", certificates.path("ca.pem"),
         "--tls-cert", certificates.path("client.pem"), "--tls-key", certificates.path("client.key")],
        capture_output=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [None, "stranger"])
def test_mutual_tls_refuses_others(tls_daemon, certificates, name):
    with Client(tls_daemon.tcp, credentials=certificates.credentials(name)) as client:
        with pytest.raises(grpc.RpcError) as error:
            client.maintenance.GetServerInfo(timeout=5)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("flag", ["--tls-cert", "--tls-key", "--tls-client-ca"])
def test_tls_files_that_are_no_good_are_refused_at_start(daemons, certificates, tmp_path, flag):
    (tmp_path / "bad.pem").write_text("nonsense")
    flags = list(certificates.server_flags())
    flags[flags.index(flag) + 1] = tmp_path / "bad.pem"
    daemon = daemons("--devices", "none", "--listen", f"localhost:{free_port()}", *flags)
    _, log = refused_start(daemon)
    assert flag in log and str(tmp_path / "bad.pem") in log


def test_a_certificate_that_ended_is_refused_at_start(daemons, tmp_path):
    certificates = Certificates(tmp_path)
    ended = certificates.make("server", begins=-7200, ends=-3600)
    _, log = refused_start(daemons("--devices", "none", *certificates.server_flags(), listen="localhost:0"))
    assert f"--tls-cert: the certificate in {certificates.path('server.pem')} ended on {ended:%F %T}Z" in log


def test_authorities_of_which_none_holds_now_are_refused_at_start(daemons, tmp_path):
    certificates = Certificates(tmp_path)
    ended = certificates.make("old", begins=-7200, ends=-3600)
    flags = list(certificates.server_flags())
    authorities = tmp_path / "authorities.pem"
    flags[flags.index("--tls-client-ca") + 1] = authorities
    authorities.write_bytes(certificates.path("old.pem").read_bytes())
    _, log = refused_start(daemons("--devices", "none", *flags, listen="localhost:0"))
    assert f"--tls-client-ca: no certificate in {authorities} holds now: the last ended on {ended:%F %T}Z" in log
    authorities.write_bytes(certificates.path("old.pem").read_bytes() + certificates.path("ca.pem").read_bytes())
    daemon = daemons("--devices", "none", "--listen", "localhost:0", *flags).start()
    assert daemon.stop() == 0


@pytest.mark.parametrize("name", ["server", "client"])
def test_clients_are_told_of_a_certificate_that_ended(daemons, tmp_path, convtune, name):
    certificates = Certificates(tmp_path)
    ended = certificates.make(name, ends=10)
    port = free_port()
    daemon = daemons("--devices", "none", "--listen", f"localhost:{port}", *certificates.server_flags()).start()

    def run(verb):
        return subprocess.run(
            [convtune, verb, "--address", f"localhost:{port}", "--tls-ca", certificates.path("ca.pem"),
             "--tls-cert", certificates.path("client.pem"), "--tls-key", certificates.path("client.key")],
            capture_output=True, text=True,
        )  # fmt: skip

    subject = {
        "server": f"the certificate of localhost:{port}",
        "client": f"the client's certificate in {certificates.path('client.pem')}",
    }
    before = run("doctor")
    assert before.returncode in (0, 1)
    assert f"{subject[name]} ends on {ended:%F %T}Z" in before.stdout
    time.sleep(max(0, ended.timestamp() + 1 - time.time()))
    assert daemon.running()
    said = run("environments")
    assert said.returncode == 4
    assert f"{subject[name]} ended on {ended:%F %T}Z: put one in its place that holds now." in said.stderr
    assert "start a daemon" not in said.stderr
    said = run("doctor")
    assert f"problem  {subject[name]} ended on {ended:%F %T}Z" in said.stdout
    assert "start a daemon" not in said.stdout


def test_an_address_where_nobody_listens_is_not_looked_at_for_long(convtune, certificates):
    began = time.monotonic()
    said = subprocess.run(
        [convtune, "environments", "--address", f"localhost:{free_port()}", "--tls-ca", certificates.path("ca.pem"),
         "--tls-cert", certificates.path("client.pem"), "--tls-key", certificates.path("client.key")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 4 and "start a daemon with `convtuned`" in said.stderr and "certificate" not in said.stderr
    assert time.monotonic() - began < 1.5


def test_plain_text_on_the_tls_port_is_refused(tls_daemon):
    with Client(tls_daemon.tcp) as client:
        with pytest.raises(grpc.RpcError) as error:
            client.maintenance.GetServerInfo(timeout=5)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
