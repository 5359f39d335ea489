"""Floods are shed: connections, calls and readers that are too many cost themselves and nobody else."""

import contextlib
import os
import re
import resource
import socket
import ssl
import statistics
import time

import grpc
import pytest
from google.rpc import error_details_pb2

from harness.api import API, Client, Service, status_details
from harness.daemon import free_port, wait_until
from harness.fakes import script
from harness.http2 import (DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS,
                           Connection, call_headers, frame)  # fmt: skip
from harness.look_ups import LookUps
from harness.problems import numbered, numbered_list
from test_metrics import scrape, values


def storm(address, count):
    """Connections that are opened and kept; those that are refused are left out."""
    held = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            held.append(Connection(address))
    return held


def files_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("transport", ["socket", "mtls"])
def test_a_storm_of_connections_costs_the_storm(fake_daemon, certificates, transport, long_run):
    limit, waves = 256, 20 if long_run else 2
    port = free_port()
    daemon = fake_daemon("--listen", f"localhost:{port}", *certificates.server_flags(), env=script())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        daemon.start(wait=False)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    daemon.wait_ready()
    address = daemon.address if transport == "socket" else f"localhost:{port}"
    credentials = None if transport == "socket" else certificates.credentials("client")
    with Client(address, credentials=credentials) as known:
        assert known.tune(numbered(1)).succeeded_count == 1
        for _ in range(waves):
            held = storm(address, 3 * limit)
            for _ in range(50):
                assert known.get_one(numbered(1), timeout=5).WhichOneof("outcome") == "answer"
            # What is left are files for the database and for workers.
            assert files_of(daemon.pid) <= limit
            assert known.tune(numbered(1), force=True).succeeded_count == 1
            for connection in held:
                connection.close()

            def answers():
                with Client(address, credentials=credentials) as new, contextlib.suppress(grpc.RpcError):
                    return new.get_one(numbered(1), timeout=5).WhichOneof("outcome") == "answer"

            wait_until(answers, 20, "a new connection after the storm")


def test_failed_handshakes_are_counted_and_are_a_line_a_second_with_the_peer(fake_daemon, certificates):
    port = free_port()
    daemon = fake_daemon("--metrics-address", "127.0.0.1:0", "--listen", f"localhost:{port}", *certificates.server_flags())
    daemon.start()
    certificates.make("ended", begins=-7200, ends=-3600)

    def context(name=None, trusts="ca.pem"):
        made = ssl.create_default_context(cafile=certificates.path(trusts))
        made.set_alpn_protocols(["h2"])
        if name is not None:
            made.load_cert_chain(certificates.path(f"{name}.pem"), certificates.path(f"{name}.key"))
        return made

    def fail(with_context):
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=10) as end:
            if with_context is None:
                end.sendall(PREFACE)
            else:
                end = with_context.wrap_socket(end, server_hostname="localhost")
            end.recv(1)  # of TLS 1.3 this is where a client learns of it

    def lines():
        return [line for line in daemon.log().splitlines() if "handshake" in line.lower()]

    causes = {"no_certificate": context(), "certificate_ended": context("ended"), "certificate_not_trusted": context("stranger"),
              "refused_by_client": context("client", trusts="stranger-ca.pem"), "other": None}  # fmt: skip
    for count, (reason, cause) in enumerate(causes.items()):
        fail(cause)
        wait_until(lambda n=count: len(lines()) == n + 1, 10, f"a line of {reason}")
        assert re.search(rf"TLS handshake with \S*127\.0\.0\.1 failed: {reason} \(", lines()[-1]), lines()
        time.sleep(1.1)  # the peer's next line
    began = time.monotonic()
    for _ in range(300):
        fail(causes["no_certificate"])
    seconds = time.monotonic() - began
    assert len(lines()) <= len(causes) + seconds + 1, f"{len(lines())} lines in {seconds:.1f} s"
    counted = values(scrape(daemon))
    assert counted['convtune_tls_handshakes_failed_total{reason="no_certificate"}'] == 301
    assert sum(v for k, v in counted.items() if k.startswith("convtune_tls_handshakes_failed_total")) == 300 + len(causes)
    with Client(f"localhost:{port}", credentials=certificates.credentials("client")) as client:
        assert client.info().pid == daemon.pid


def retry_seconds(error):
    """Of the google.rpc.RetryInfo that an RpcError carries, else None."""
    for detail in status_details(error):
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToTimedelta().total_seconds()
    return None


def test_the_queue_is_bounded_and_says_when_to_come_back(fake_daemon):
    daemon = fake_daemon(env=script(measure_delay_ms=60000)).start()
    refused = None
    with daemon.client() as client:
        assert client.get_one(numbered(0), on_miss="ON_MISS_HEURISTIC").WhichOneof("outcome") == "answer"
        memory = daemon.rss_kib()
        jobs = []
        for batch in range(8):
            problems = [{"text": t} for t in numbered_list(1 + 10000 * batch, 10000)]
            try:
                jobs.append(client.tuning.CreateTuningJob(problems=problems).name)
            except grpc.RpcError as error:
                refused = error
                break
        assert refused is not None, "nothing bounds the queue"
        assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_seconds(refused) > 0
        # So is who would wait in a look-up, and what is known is answered all the same.
        for on_miss in ("ON_MISS_TUNE", "ON_MISS_ENQUEUE"):
            with pytest.raises(grpc.RpcError) as error:
                client.get(*numbered_list(500000, 10000), on_miss=on_miss)
            assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_seconds(error.value) > 0
        assert client.get_one(numbered(0)).WhichOneof("outcome") == "answer"
        assert daemon.rss_kib() - memory < 400 << 10
        # There is room again once something is taken back.
        for name in jobs[1:]:
            client.tuning.CancelTuningJob(name=name)
        assert client.tuning.CreateTuningJob(problems=[{"text": numbered(900000)}]).name


class Hoarders:
    """Connections that ask for answers and never read one: their windows stay shut."""

    def __init__(self, address, connections, calls, request):
        body = b"\0" + len(request).to_bytes(4, "big") + request
        headers = call_headers("/convtune.v1.TuningService/BatchGet")
        self._connections = []
        for _ in range(connections):
            connection = Connection(address)
            connection.send(frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE.to_bytes(2, "big") + bytes(4)))
            for stream in range(1, 2 * calls, 2):
                if not connection.send(frame(HEADERS, END_HEADERS, stream, headers)):
                    break
                connection.send(frame(DATA, END_STREAM, stream, body))
                if stream % 100 == 1:  # what the server says of its own windows
                    connection.drain(0.01)
            self._connections.append(connection)

    def close(self):
        for connection in self._connections:
            connection.close()


def test_readers_that_do_not_read_cost_bounded_memory(fake_daemon, long_run):
    connections, calls = (32, 1000) if long_run else (4, 300)
    texts = numbered_list(1, 60)
    daemon = fake_daemon(env=script()).start()
    with daemon.client() as client:
        client.get(*texts, on_miss="ON_MISS_TUNE", timeout=120)
        request = API.BatchGetRequest(problems=[{"text": t} for t in texts])
        assert request.ByteSize() < 16000  # one frame
        answer = len(client.tuning.BatchGetRaw(request, timeout=10).SerializeToString())
        before = daemon.rss_kib()
        hoarders = Hoarders(daemon.address, connections, calls, request.SerializeToString())
        try:
            for _ in range(50):
                assert client.get_one(texts[0], timeout=60).WhichOneof("outcome") == "answer"
            grown = daemon.rss_kib() - before
            print(f"an answer has {answer} bytes; {connections} x {calls} unread ones took {grown} KiB")
            assert grown < 1 << 20, "512 MiB of replies, and what 32,000 calls take"
            if connections * calls * answer > 512 << 20:
                with pytest.raises(grpc.RpcError) as error:
                    client.get(*texts, timeout=10)
                assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert "callers have not read" in error.value.details()
        finally:
            hoarders.close()
        assert client.get_one(texts[0], timeout=60).WhichOneof("outcome") == "answer"


def test_look_ups_stay_close_to_their_unloaded_time_beside_a_flood(fake_daemon, long_run):
    """Beside clients that look up without a pause; the ratio is printed, that none fails is asserted."""
    text = numbered(1)
    daemon = fake_daemon(env=script(measure_delay_ms=1)).start()
    seconds = 30 if long_run else 2
    with daemon.client() as client:
        client.tune(text)

        def p99(duration):
            times = []
            end = time.monotonic() + duration
            while time.monotonic() < end:
                began = time.monotonic()
                assert client.get_one(text, timeout=30).WhichOneof("outcome") == "answer"
                times.append(time.monotonic() - began)
            return statistics.quantiles(times, n=100)[98]

        alone = p99(seconds)
        flood = [LookUps(daemon, text) for _ in range(8)]
        with contextlib.ExitStack() as callers:
            for caller in flood:
                callers.enter_context(caller)
            loaded = p99(seconds)
        print(f"look-up p99: {alone * 1e3:.2f} ms alone, {loaded * 1e3:.2f} ms beside 8 clients that never "
              f"pause: {loaded / alone:.1f} times as long")  # fmt: skip
        assert [caller.errors for caller in flood] == [[]] * 8


def test_a_reply_fits_grpcs_own_limit_and_the_rest_is_asked_again(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        client.tune(numbered(1))
        texts = [{"text": numbered(1)}] * 10_000
        whole = client.tuning.BatchGet(problems=texts, max_reply_bytes=64 << 20)
        assert len(whole.results) == 10_000 and whole.unanswered_count == 0 and whole.ByteSize() > 4 << 20
    with grpc.insecure_channel(daemon.address) as channel:  # with gRPC's defaults
        tuning, results, asked = Service(channel, "TuningService"), [], 0
        while len(results) < 10_000:
            reply = tuning.BatchGet(problems=texts[len(results) :])
            assert reply.ByteSize() <= 4 << 20 and reply.environment.name == "nvidia-h200"
            results += reply.results
            assert len(results) + reply.unanswered_count == 10_000
            asked += 1
    assert asked == -(-whole.ByteSize() // (4 << 20)) and results == list(whole.results)
