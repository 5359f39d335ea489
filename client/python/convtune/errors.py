"""The errors of a daemon that refuses, and of one that cannot be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import grpc


class ConvtuneError(RuntimeError):
    """The daemon refused a call. `code` is gRPC's name, `fields` what is wrong by field path."""

    def __init__(self, code: str, message: str, fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message if not fields else "; ".join(f"{f}: {rule}" for f, rule in fields))
        self.code = code
        self.fields = list(fields)

    def refused_problems(self, count: int) -> dict[int, str]:
        """By place in a request of `count` problems, what is wrong with those
        that are; empty if anything else is, too."""
        refused: dict[int, str] = {}
        for field, rule in self.fields:
            place = re.match(r"problems\[(\d+)\]", field)
            if place is None or int(place[1]) >= count:
                return {}
            earlier = refused.get(int(place[1]))
            refused[int(place[1])] = f"{earlier}; {field}: {rule}" if earlier else f"{field}: {rule}"
        return refused


class Unavailable(ConvtuneError):
    """No daemon could be reached in time, or it is stopping."""


def translate(error: grpc.RpcError) -> ConvtuneError:
    """The exception that a caller gets."""
    code = error.code()
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(code.name, "the daemon did not answer within the timeout")
    if code == grpc.StatusCode.UNAVAILABLE:
        return Unavailable(code.name, error.details() or code.name)
    return ConvtuneError(code.name, error.details() or code.name, _violations(error))


def _violations(error: grpc.RpcError) -> list[tuple[str, str]]:
    """The violations of google.rpc.BadRequest. Read by hand: Debian has no package of its messages for Python."""
    found = []
    for key, status in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        try:
            # Status.details (3) of google.protobuf.Any (type_url 1, value 2); BadRequest.field_violations (1),
            # each with field (1) and description (2).
            for detail in _all(status, 3):
                if _text(detail, 1).endswith("/google.rpc.BadRequest"):
                    for violation in (v for value in _all(detail, 2) for v in _all(value, 1)):
                        found.append((_text(violation, 1), _text(violation, 2)))
        except (IndexError, ValueError):
            return []  # not protobuf: the message says it all the same
    return found


def _text(message: bytes, number: int) -> str:
    return b"".join(_all(message, number)).decode(errors="replace")


def _all(message: bytes, number: int) -> Iterator[bytes]:
    """The values of a length-delimited field, as protobuf's wire format has them."""
    at = 0

    def varint() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            if size > len(message) - at:
                raise ValueError("cut short")
            if tag >> 3 == number:
                yield message[at : at + size]
            at += size
        elif tag & 7 == 0:
            varint()
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            raise ValueError("a group")
