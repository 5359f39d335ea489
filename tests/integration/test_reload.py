"""SIGHUP: the daemon goes on, with the log level and the TLS files as they are now."""

import signal

import grpc
import pytest

from harness.api import Client
from harness.certificates import Certificates
from harness.daemon import wait_until


def hang_up(daemon, *words):
    """Sends SIGHUP; the log's lines since then, once `words` are in them."""
    before = len(daemon.log())
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: all(w in daemon.log()[before:] for w in words), 20, f"{words} in the log")
    assert daemon.running()
    return daemon.log()[before:]


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
        wait_until(lambda: "GetServerInfo from unix: OK" in daemon.log(), 10, "a line of the call")
        # A file that cannot be read says so and changes nothing.
        settings.write_text('log-level = "loud"\n')
        hang_up(daemon, "SIGHUP: the log's level stays: ", "log-level")
        assert client.info().pid == pid
    assert daemon.stop() == 0


def test_sighup_takes_new_certificates_and_refuses_broken_ones(daemons, tmp_path):
    certificates, others = Certificates(tmp_path), tmp_path / "others"
    others.mkdir()
    other = Certificates(others)
    daemon = daemons("--devices", "none", *certificates.server_flags(), listen="localhost:0")
    daemon.start(wait=False)
    port = wait_until(lambda: [line.rpartition(":")[2] for line in daemon.log().splitlines() if "listening on" in line],
                      30, "a port")[0]  # fmt: skip
    address = f"localhost:{port}"
    with Client(address, credentials=certificates.credentials("client")) as old:
        assert old.info().pid == daemon.pid
        certificates.path("server.pem").write_bytes(other.path("server.pem").read_bytes())
        hang_up(daemon, "the TLS files from before stay: --tls-key: ")
        with Client(address, credentials=certificates.credentials("client")) as client:
            assert client.info().pid == daemon.pid
        certificates.path("server.key").write_bytes(other.path("server.key").read_bytes())
        certificates.path("ca.pem").write_bytes(other.path("ca.pem").read_bytes())
        hang_up(daemon, "SIGHUP: the TLS files are read anew")
        with Client(address, credentials=other.credentials("client")) as client:
            assert client.info().pid == daemon.pid
        with (
            pytest.raises(grpc.RpcError) as refused,
            Client(address, credentials=other.credentials("stranger")) as client,
        ):
            client.info()
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert old.info().pid == daemon.pid, "a connection keeps what it began with"
    assert daemon.stop() == 0
