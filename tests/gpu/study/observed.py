"""Which plans a program settles on: the interposer's datagrams, as db/format/README.md lays them out."""

import os
import pathlib
import socket
import struct
import tempfile
import threading

from problem import candidate_text

_MISS, _PLAN, _LEGACY = 1, 2, 3
_SIZES = {_MISS: 456, _PLAN: 1000, _LEGACY: 840}
_KEY = 128  # where the problem's key begins
_TYPES = {1: "f64", 2: "f32", 3: "f16", 4: "bf16"}
_OPERATIONS = {1: "fwd", 2: "bwd_data", 3: "bwd_filter"}


def problem_of(key):
    """The operation, type and shapes of a problem key, as a tuple that `signature` gives too."""
    operation, data_type, *_, rank = struct.unpack_from("<7B", key)
    numbers = lambda offset: struct.unpack_from(f"<{2 + rank}q", key, offset)
    spatial = lambda offset: struct.unpack_from(f"<{rank}q", key, offset)
    groups = struct.unpack_from("<q", key, 16)[0]
    return (
        _OPERATIONS.get(operation), _TYPES.get(data_type), numbers(24), numbers(64), numbers(104)[1] == 1,
        spatial(224), spatial(272), spatial(296), groups,
    )  # fmt: skip


def signature(problem):
    """Of a problem.Problem, comparable with problem_of. nhwc is told by the channel's stride."""
    return (
        problem.operation, problem.dtype, problem.x_dims, problem.w_dims, problem.nhwc, problem.pad_low,
        problem.stride, problem.dilation, problem.groups,
    )  # fmt: skip


def parse(data):
    """(kind, signature, candidate) of a datagram; None for what is none of ours.

    The candidate of a plan is its text; of legacy results the fastest's; of a miss None."""
    if len(data) < 448 or data[:4] != b"CVTD":
        return None
    version, kind, size = struct.unpack_from("<HHI", data, 4)
    if version != 1 or _SIZES.get(kind) != len(data) or size != len(data):
        return None
    found = problem_of(data[_KEY:])
    if kind == _PLAN:
        engine, count = struct.unpack_from("<qI", data, 448)
        knobs = dict(struct.unpack_from("<i4xq", data, 488 + 16 * i) for i in range(min(count, 32)))
        return "plan", found, candidate_text(engine, knobs)
    if kind == _LEGACY:
        count = min(struct.unpack_from("<I", data, 448)[0], 16)
        results = [struct.unpack_from("<iifIq", data, 456 + 24 * i) for i in range(count)]
        best = min(results, key=lambda r: r[2], default=None)
        return "legacy", found, best and f"legacy:algo{best[0]},math{best[1]}"
    return "miss", found, None


class Listener:
    """The socket that the interposer sends to, in a snapshot folder of its own; a context manager.

    The folder's path is short, as a socket's must be (108 bytes). A thread
    empties the socket all the while: a sender drops what does not fit a queue of
    some ten datagrams."""

    def __init__(self):
        self.found = []

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory(prefix="ct-")
        self.folder = pathlib.Path(self._temporary.name)
        path = self.folder / "datagrams.sock"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(os.fspath(path))
        self.socket.settimeout(0.1)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def _read(self):
        while True:
            try:
                parsed = parse(self.socket.recv(4096))
            except TimeoutError:
                if self._ends.is_set():
                    return
                continue
            if parsed is not None:
                self.found.append(parsed)

    def __exit__(self, *_):
        """What had been sent has been read by then."""
        self._ends.set()
        self._thread.join()
        self.socket.close()
        self._temporary.cleanup()
