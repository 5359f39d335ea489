"""SIGHUP: daemon and agent go on, with what they read from files as it is now."""

import os
import re
import signal
import subprocess
import time

import grpc
import pytest

from harness.api import Client
from harness.certificates import Certificates
from harness.daemon import free_port, wait_until
from harness.fleet import Agent, tune
from harness.problems import numbered


def hang_up(daemon, *words):
    """Sends SIGHUP; the log's lines since then, once `words` are in them."""
    before = len(daemon.log())
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: all(w in daemon.log()[before:] for w in words), 20, f"{words} in the log")
    assert daemon.running()
    return daemon.log()[before:]


@pytest.fixture
def certificates(tmp_path):
    """Which the test changes."""
    return Certificates(tmp_path)


@pytest.fixture
def others(tmp_path):
    """Certificates of the same names by another authority."""
    (tmp_path / "others").mkdir()
    return Certificates(tmp_path / "others")


@pytest.fixture
def listening(daemons, certificates):
    """listening(*args) starts a daemon with a port, and gives the address too."""

    def make(*args):
        daemon = daemons("--devices", "none", "--listen", "localhost:0", *certificates.server_flags(), *args).start()
        (port,) = re.findall(r"listening on localhost:(\d+)", daemon.log())
        return daemon, f"localhost:{port}"

    return make


def test_sighup_reads_the_log_level_anew_and_ends_nothing(daemons, short_dir):
    settings = short_dir / "convtuned.toml"
    settings.write_text('log-level = "info"\n')
    daemon = daemons("--devices", "none", "--config", settings).start()
    pid = daemon.pid
    with daemon.client() as client:
        client.info()
        assert "GetServerInfo" not in daemon.log()
        settings.write_text('log-level = "debug"\n')
        hang_up(daemon, "SIGHUP: the log's level is debug")
        client.info()
        wait_until(lambda: f"GetServerInfo from unix:uid={os.geteuid()},pid={os.getpid()}: OK" in daemon.log(), 10, "a line of the call")
        # A file that cannot be read says so and changes nothing.
        settings.write_text('log-level = "loud"\n')
        hang_up(daemon, "SIGHUP: the log's level stays: ", "log-level")
        assert client.info().pid == pid
    assert daemon.stop() == 0


def test_sighup_takes_new_certificates_and_refuses_broken_ones(listening, certificates, others):
    daemon, address = listening()
    with Client(address, credentials=certificates.credentials("client")) as old:
        assert old.info().pid == daemon.pid
        certificates.path("server.pem").write_bytes(others.path("server.pem").read_bytes())
        hang_up(daemon, "the TLS files from before stay: --tls-key: ")
        with Client(address, credentials=certificates.credentials("client")) as client:
            assert client.info().pid == daemon.pid
        certificates.path("server.key").write_bytes(others.path("server.key").read_bytes())
        certificates.path("ca.pem").write_bytes(others.path("ca.pem").read_bytes())
        hang_up(daemon, "SIGHUP: the TLS files are read anew")
        with Client(address, credentials=others.credentials("client")) as client:
            assert client.info().pid == daemon.pid
        with (
            pytest.raises(grpc.RpcError) as refused,
            Client(address, credentials=others.credentials("stranger")) as client,
        ):
            client.info()
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert old.info().pid == daemon.pid, "a connection keeps what it began with"
    assert daemon.stop() == 0


def test_sighup_refuses_a_certificate_that_does_not_hold_now(listening, certificates):
    daemon, address = listening()
    ended = certificates.make("server", begins=-7200, ends=-3600)
    path = certificates.path("server.pem")
    log = hang_up(daemon, "the log's level is info")
    refusals = [line for line in log.splitlines() if str(path) in line]
    assert len(refusals) == 1, log
    assert f"the TLS files from before stay: --tls-cert: the certificate in {path} ended on {ended:%F %T}Z" in refusals[0]
    certificates.make("server", begins=3600)
    hang_up(daemon, f"the TLS files from before stay: --tls-cert: the certificate in {path} begins on ")
    with Client(address, credentials=certificates.credentials("client")) as client:
        assert client.info().pid == daemon.pid


def test_a_certificate_that_begins_a_moment_later_is_taken_then(listening, certificates):
    daemon, address = listening()

    def served():
        command = ["openssl", "s_client", "-connect", address, "-showcerts"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout

    certificates.make("server", begins=4)
    made = certificates.path("server.pem").read_text().split("-----")[2].strip()
    time.sleep(1.1)  # it is looked at once a second
    assert made not in served()
    wait_until(lambda: made in served(), 30, "the certificate that has begun")
    assert daemon.log().count("the TLS files have changed, and the ones before stay") == 1


def test_tls_files_that_are_gone_are_said_once_and_serving_goes_on(listening, certificates):
    """As when the volume that holds them is unmounted."""
    daemon, address = listening()
    credentials = certificates.credentials("client")
    for name in ("server.pem", "server.key", "ca.pem"):
        certificates.path(name).unlink()
    for _ in range(3):
        time.sleep(1.1)  # it is looked at once a second
        with Client(address, credentials=credentials) as client:
            assert client.info().pid == daemon.pid
    assert daemon.log().count("the TLS files have changed, and the ones before stay: --tls-cert: cannot read") == 1


def test_sighup_has_the_agent_read_its_files_anew(fleet, fake_daemon, certificates, others, tmp_path):
    """The certificates are exchanged for another authority's, and the connection string for another."""
    port = free_port()
    daemon = fake_daemon("--listen", f"localhost:{port}", *certificates.server_flags()).start()
    secret = tmp_path / "fleet.conf"
    secret.write_text(fleet.conninfo)
    secret.chmod(0o600)
    tls = [text for flag, name in (("--tls-ca", "ca.pem"), ("--tls-cert", "client.pem"), ("--tls-key", "client.key"))
           for text in (flag, str(certificates.path(name)))]  # fmt: skip
    agent = Agent(fleet.binary, "", "node-0", f"localhost:{port}", ["--postgres-file", str(secret), *tls])
    fleet.agents.append(agent.start(fleet.folder))
    wait_until(lambda: "connected as" in agent.log(), 30, "a connection")
    for name in ("server.pem", "server.key", "ca.pem", "client.pem", "client.key"):
        certificates.path(name).write_bytes(others.path(name).read_bytes())
    assert daemon.stop() == 0
    daemon.start()
    # The agent's files are those of the start, until it is told.
    tune(daemon, numbered(0))
    time.sleep(3)
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 0

    def names():
        return fleet.number("SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'exchanged'")

    secret.write_text(fleet.conninfo + " application_name=exchanged")
    agent.process.send_signal(signal.SIGHUP)
    fleet.wait_delivered(1)
    assert "SIGHUP: the TLS files and --postgres-file are read anew" in agent.log()
    wait_until(lambda: names() == 1, 20, "a connection by the new string")
    # What cannot be read changes nothing.
    secret.chmod(0o644)
    agent.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP: what cannot be read stays as it was: --postgres-file: " in agent.log(), 20, "an error")
    tune(daemon, numbered(1))
    fleet.wait_delivered(2)
    assert agent.stop() == 0


def test_an_agent_whose_login_is_refused_reads_the_password_anew(fleet, fake_daemon, tmp_path):
    hba, secret = fleet.server.data / "pg_hba.conf", tmp_path / "fleet.conf"

    def write(password):
        secret.write_text(f"{fleet.conninfo.replace('user=postgres', 'user=guarded')} password={password}")

    write("first")
    secret.chmod(0o600)
    anybody = hba.read_text()
    hba.write_text("local all guarded scram-sha-256\n" + anybody)
    fleet.sql("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'first'; SELECT pg_reload_conf()")
    try:
        daemon = fake_daemon().start()
        agent = Agent(fleet.binary, "", "node-0", daemon.address, ["--postgres-file", str(secret)])
        fleet.agents.append(agent.start(fleet.folder))
        wait_until(lambda: "connected as" in agent.log(), 30, "a connection")
        fleet.sql("ALTER ROLE guarded PASSWORD 'second'")
        fleet.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'")
        wait_until(lambda: "password authentication failed" in agent.log(), 30, "a refusal")
        # What cannot be read is said beside it.
        secret.chmod(0o644)
        wait_until(lambda: "must be for its owner alone" in agent.log(), 60, "what is wrong with the file")
        secret.chmod(0o600)
        write("second")
        tune(daemon, numbered(0))
        fleet.wait_delivered(1)
        assert "SIGHUP" not in agent.log()
        assert agent.stop() == 0
    finally:
        fleet.sql("DROP ROLE guarded")
        hba.write_text(anybody)


def test_a_certificate_without_its_key_does_not_keep_the_log_level_from_changing(listening, certificates, others, short_dir):
    settings = short_dir / "convtuned.toml"
    settings.write_text('log-level = "info"\n')
    daemon, _ = listening("--config", settings)
    certificates.path("server.pem").write_bytes(others.path("server.pem").read_bytes())
    settings.write_text('log-level = "debug"\n')
    hang_up(daemon, "the TLS files from before stay: --tls-key: ", "SIGHUP: the log's level is debug")
    assert daemon.stop() == 0
