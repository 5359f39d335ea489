"""What is open by default, and what is refused at start."""

import os
import stat
import subprocess
import time

import grpc
import pytest

from harness.api import Client
from harness.certificates import Certificates
from harness.daemon import free_port
from harness.problems import numbered


def refused_start(daemon):
    """The log of a daemon that does not start."""
    daemon.start(wait=False)
    assert daemon.process.wait(10) != 0
    return daemon.log()


@pytest.fixture
def over_tls(convtune):
    """over_tls(verb, port, certificates) runs a command over TCP, as `client`."""

    def run(verb, port, certificates):
        files = {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
        tls = [word for flag, name in files.items() for word in (f"--tls-{flag}", certificates.path(name))]
        return subprocess.run([convtune, verb, "--address", f"localhost:{port}", *tls], capture_output=True, text=True)

    return run


@pytest.mark.parametrize("umask", [0o077, 0o000])
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


def test_second_daemon_on_the_same_state_names_the_first(bare_daemon, daemons):
    bare_daemon.start()
    second = daemons("--devices", "none")
    second.state_dir = bare_daemon.state_dir
    log = refused_start(second)
    assert str(bare_daemon.pid) in log and str(bare_daemon.state_dir) in log
    with bare_daemon.client() as client:
        assert client.info().pid == bare_daemon.pid


def test_a_certificate_that_ended_is_refused_at_start(daemons, tmp_path):
    certificates = Certificates(tmp_path)
    ended = certificates.make("server", begins=-7200, ends=-3600)
    log = refused_start(daemons("--devices", "none", *certificates.server_flags(), listen="localhost:0"))
    assert f"--tls-cert: the certificate in {certificates.path('server.pem')} ended on {ended:%F %T}Z" in log


def test_authorities_of_which_none_holds_now_are_refused_at_start(daemons, tmp_path):
    certificates = Certificates(tmp_path)
    ended = certificates.make("old", begins=-7200, ends=-3600)
    flags = list(certificates.server_flags())
    authorities = tmp_path / "authorities.pem"
    flags[flags.index("--tls-client-ca") + 1] = authorities
    authorities.write_bytes(certificates.path("old.pem").read_bytes())
    log = refused_start(daemons("--devices", "none", *flags, listen="localhost:0"))
    assert f"--tls-client-ca: no certificate in {authorities} holds now: the last ended on {ended:%F %T}Z" in log
    authorities.write_bytes(certificates.path("old.pem").read_bytes() + certificates.path("ca.pem").read_bytes())
    daemon = daemons("--devices", "none", "--listen", "localhost:0", *flags).start()
    assert daemon.stop() == 0


@pytest.mark.parametrize("name", ["server", "client"])
def test_clients_are_told_of_a_certificate_that_ended(daemons, tmp_path, over_tls, name):
    certificates = Certificates(tmp_path)
    ended = certificates.make(name, ends=10)
    port = free_port()
    daemon = daemons("--devices", "none", "--listen", f"localhost:{port}", *certificates.server_flags()).start()
    subject = {
        "server": f"the certificate of localhost:{port}",
        "client": f"the client's certificate in {certificates.path('client.pem')}",
    }
    before = over_tls("doctor", port, certificates)
    assert before.returncode in (0, 1)
    assert f"{subject[name]} ends on {ended:%F %T}Z" in before.stdout
    time.sleep(max(0, ended.timestamp() + 1 - time.time()))
    assert daemon.running()
    said = over_tls("environments", port, certificates)
    assert said.returncode == 4
    assert f"{subject[name]} ended on {ended:%F %T}Z: put one in its place that holds now." in said.stderr
    assert "start a daemon" not in said.stderr
    said = over_tls("doctor", port, certificates)
    assert f"problem  {subject[name]} ended on {ended:%F %T}Z" in said.stdout
    assert "start a daemon" not in said.stdout


def test_an_address_where_nobody_listens_is_not_looked_at_for_long(over_tls, certificates):
    began = time.monotonic()
    said = over_tls("environments", free_port(), certificates)
    assert said.returncode == 4 and "start a daemon with `convtuned`" in said.stderr and "certificate" not in said.stderr
    assert time.monotonic() - began < 1.5


def test_plain_text_on_the_tls_port_is_refused(daemons, certificates):
    port = free_port()
    daemons("--devices", "none", "--listen", f"localhost:{port}", *certificates.server_flags()).start()
    with Client(f"localhost:{port}") as client:
        with pytest.raises(grpc.RpcError) as error:
            client.maintenance.GetServerInfo(timeout=5)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
