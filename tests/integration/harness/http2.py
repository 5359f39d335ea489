"""HTTP/2 by hand: frames that no client library would send."""

import contextlib
import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL = 8
INITIAL_WINDOW_SIZE = 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value, bits, first=0):
    """HPACK's integer, behind the bits of `first`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = [first | limit], value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def literal(name, value, index=False):
    """A header by its text; `index` puts it into the table."""
    name, value = name.encode(), value if isinstance(value, bytes) else value.encode()
    return bytes([0x40 if index else 0]) + integer(len(name), 7) + name + integer(len(value), 7) + value


def call_headers(path="/convtune.v1.MaintenanceService/GetServerInfo", **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
              "content-type": "application/grpc", "te": "trailers", **more}  # fmt: skip
    return b"".join(literal(name, value) for name, value in fields.items())


class Connection:
    """A client connection whose bytes are the test's; `tls` is an ssl context for HOST:PORT."""

    def __init__(self, address, tls=None):
        if address.startswith("unix:"):
            self.end = socket.socket(socket.AF_UNIX)
            self.end.settimeout(10)
            self.end.connect(address[5:])
        else:
            host, port = address.rsplit(":", 1)
            self.end = socket.create_connection((host, int(port)), timeout=10)
            if tls is not None:
                self.end = tls.wrap_socket(self.end, server_hostname=host)
        self.send(PREFACE + frame(SETTINGS))

    def send(self, data):
        """False once the other end has gone."""
        try:
            self.end.sendall(data)
        except OSError:
            return False
        return True

    def drain(self, seconds=0.2):
        """Reads what comes until there is silence; what was read, and whether the other end has gone."""
        got, gone = b"", False
        self.end.settimeout(seconds)
        with contextlib.suppress(TimeoutError, ssl.SSLError):
            try:
                while data := self.end.recv(65536):
                    got += data
                gone = True
            except ConnectionError:
                gone = True
        self.end.settimeout(10)
        return got, gone

    def close(self):
        with contextlib.suppress(OSError):
            self.end.close()


def tls_context(certificates, name="client"):
    context = ssl.create_default_context(cafile=certificates.path("ca.pem"))
    context.load_cert_chain(certificates.path(f"{name}.pem"), certificates.path(f"{name}.key"))
    context.set_alpn_protocols(["h2"])
    return context
