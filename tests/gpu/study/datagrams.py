"""Makes and sends observed-plan datagrams: what the simulation has in place of the interposer."""

import os
import socket
import struct

from problem import packed_strides, parse, parse_candidate

_OPERATIONS = {"fwd": 1, "bwd_data": 2, "bwd_filter": 3}
_TYPES = {"f64": 1, "f32": 2, "f16": 3, "bf16": 4}


def plan(problem_text, candidate_text):
    """An observed plan, 1,000 bytes as in db/format/README.md; what the study does not read is 0."""
    problem = parse(problem_text)
    _, engine, knobs = parse_candidate(candidate_text)
    rank = len(problem.x_dims) - 2
    data = bytearray(1000)
    data[:4] = b"CVTD"
    struct.pack_into("<HHI", data, 4, 1, 2, len(data))
    struct.pack_into("<7B", data, 128, _OPERATIONS[problem.operation], _TYPES[problem.dtype], 0, 0, 0, 1, rank)
    put = lambda offset, values: struct.pack_into(f"<{len(values)}q", data, 128 + offset, *values)
    put(16, [problem.groups])
    put(24, problem.x_dims)
    put(64, problem.w_dims)
    put(104, packed_strides(problem.x_dims, problem.nhwc))
    put(224, problem.pad_low)
    put(248, problem.pad_high)
    put(272, problem.stride)
    put(296, problem.dilation)
    struct.pack_into("<qI", data, 448, engine, len(knobs))
    for i, (knob, value) in enumerate(sorted(knobs.items())):
        struct.pack_into("<i4xq", data, 488 + 16 * i, knob, value)
    return bytes(data)


def send(folder, chosen):
    """Sends {problem: candidate} to the socket of a snapshot folder, waiting where its queue is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for problem, candidate in chosen.items():
            sender.sendto(plan(problem, candidate), os.path.join(folder, "datagrams.sock"))
