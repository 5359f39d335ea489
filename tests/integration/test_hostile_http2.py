"""The inputs of gRPC's public advisories, on the unix socket and on mutual TLS over TCP.

What each does to the gRPC of this machine is printed; that the daemon outlives it, keeps answering and keeps its
memory bounded is asserted.
"""

import pytest

from harness.api import Client
from harness.daemon import LIVENESS, free_port
from harness.fakes import script
from harness.http2 import (ACK, CANCEL, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS,
                           Connection, call_headers, frame, integer, literal, tls_context)  # fmt: skip
from harness.problems import numbered

BIG = "x" * 9000  # beyond the 8 KiB of headers that gRPC takes


@pytest.fixture(scope="module")
def one_daemon(certificates, module_daemon, fake_worker):
    """On both transports, for all the cases."""
    tcp = f"localhost:{free_port()}"
    daemon = module_daemon("--devices", "0", "--worker", fake_worker, "--listen", tcp, *certificates.server_flags(), env=script())
    daemon.tcp = tcp
    return daemon


@pytest.fixture
def served(one_daemon):
    """It runs, whatever the case before did to it."""
    if not one_daemon.running():
        one_daemon.close()
        one_daemon.start()
    return one_daemon


def headers_frames(block, stream, piece=8000):
    """One block over as many frames as it takes."""
    parts = [block[i : i + piece] for i in range(0, len(block), piece)] or [b""]
    frames = b""
    for i, part in enumerate(parts):
        last = END_HEADERS if i == len(parts) - 1 else 0
        frames += frame(CONTINUATION if i else HEADERS, last | (0 if i else END_STREAM), stream, part)
    return frames


# CVE-2023-1428: a header that is not valid, and then headers beyond the limit.
def invalid_header_then_too_large(connection, header):
    name, value = header
    connection.send(headers_frames(call_headers(**{name: value}) + literal("x-large", BIG), 1))


# CVE-2023-33953, first: a string of many megabytes in one header.
def endless_string(connection, megabytes):
    size = megabytes << 20
    block = call_headers() + bytes([0]) + integer(7, 7) + b"x-large" + integer(size, 7)
    connection.send(frame(HEADERS, END_STREAM, 1, block))
    piece = b"y" * 16000
    for _ in range(size // len(piece)):
        if not connection.send(frame(CONTINUATION, 0, 1, piece)):
            return


# CVE-2023-33953, second: a number with any number of leading zeros.
def endless_number(connection, megabytes):
    connection.send(frame(HEADERS, END_STREAM, 1, call_headers() + bytes([0, 0x7F])))
    piece = b"\x80" * 16000
    for _ in range((megabytes << 20) // len(piece)):
        if not connection.send(frame(CONTINUATION, 0, 1, piece)):
            return


# CVE-2023-33953, third: small headers in frames without end.
def endless_continuations(connection, count):
    connection.send(frame(HEADERS, END_STREAM, 1, call_headers()))
    part = b"".join(frame(CONTINUATION, 0, 1, literal("a", str(i) * 100)) for i in range(100))
    for _ in range(count // 100):
        if not connection.send(part):
            return


# CVE-2023-44487: calls that are taken back as soon as they are made.
def rapid_reset(connection, count):
    stream = 1
    for _ in range(count // 100):
        part = b""
        for _ in range(100):
            part += frame(HEADERS, END_HEADERS, stream, call_headers())
            part += frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4, "big"))
            stream += 2
        if not connection.send(part):
            return


def control_flood(connection, count):
    """Settings and pings, which take an answer each that is never read."""
    part = b"".join(frame(SETTINGS) + frame(PING, 0, 0, bytes(8)) for _ in range(100))
    for _ in range(count // 100):
        if not connection.send(part):
            return


def table_bomb(connection, count):
    """A large header that is put into the table once and named many times."""
    block = call_headers() + literal("x-bomb", "z" * 3500, index=True)
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, block))
    stream = 3
    for _ in range(count):
        if not connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, call_headers() + b"\xbe" * 4000)):
            return
        stream += 2


# What the daemon's own guard ends, before gRPC has to bear it.
CLOSED = {"33953-string", "33953-number", "33953-continuations", "44487-rapid-reset"}
CASES = {
    "1428-te": (invalid_header_then_too_large, ("te", "gzip"), 1),
    "1428-scheme": (invalid_header_then_too_large, (":scheme", "ftp"), 1),
    "1428-grpclb": (invalid_header_then_too_large, ("grpclb_client_stats", "x"), 1),
    "33953-string": (endless_string, 64, 1),
    "33953-number": (endless_number, 2, 8),
    "33953-continuations": (endless_continuations, 10_000, 20),
    "44487-rapid-reset": (rapid_reset, 40_000, 1),
    "control-flood": (control_flood, 5_000, 20),
    "table-bomb": (table_bomb, 20, 10),
}


@pytest.mark.parametrize("transport", ["socket", "mtls"])
@pytest.mark.parametrize("case", CASES)
def test_the_daemon_outlives(served, certificates, transport, case, long_run):
    attack, amount, more = CASES[case]
    pid = served.pid
    with Client(served.address) as client:
        client.tune(numbered(1))
        before = served.rss_kib()
        tls = tls_context(certificates) if transport == "mtls" else None
        connection = Connection(served.address if tls is None else served.tcp, tls)
        assert connection.send(frame(SETTINGS, ACK))
        attack(connection, amount * more if long_run and isinstance(amount, int) else amount)
        _, gone = connection.drain()
        status = served.status("VmHWM") if served.running() else 0
        connection.close()
        assert served.running() and served.pid == pid, f"{case} ended the daemon:\n{served.log()[-2000:]}"
        assert client.get_one(numbered(1), timeout=60).WhichOneof("outcome") == "answer"
        assert served.health(LIVENESS) == "SERVING"
        grown = served.rss_kib() - before
        print(f"{case} on {transport}: the connection was {'closed' if gone else 'kept'}, "
              f"{grown} KiB more afterwards, {status - before} KiB at most")  # fmt: skip
        assert status - before < 400 << 10
        if case in CLOSED:
            assert gone and "a connection is ended: " in served.log()


def test_resets_of_many_connections_cost_bounded_memory(served, long_run):
    """Each keeps to what one may; all together may not."""
    connections, calls = (200, 900) if long_run else (40, 900)
    with Client(served.address) as client:
        client.tune(numbered(2))
        before = served.rss_kib()
        held = []
        for _ in range(connections):
            connection = Connection(served.address)
            connection.send(frame(SETTINGS, ACK))
            rapid_reset(connection, calls)
            held.append(connection)
        assert client.get_one(numbered(2), timeout=60).WhichOneof("outcome") == "answer"
        ended = sum(connection.drain(0.01)[1] for connection in held)
        print(f"{connections} x {calls} resets: {ended} connections closed, "
              f"{served.status('VmHWM') - before} KiB more at most")  # fmt: skip
        for connection in held:
            connection.close()
        assert ended > 0
        assert served.status("VmHWM") - before < 500 << 10
