"""The errors of a daemon that refuses, and of one that cannot be reached."""

from __future__ import annotations

import re
from collections.abc import Sequence

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet


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


def translate(error: grpc.RpcError, address: str) -> ConvtuneError:
    """The exception that a caller gets."""
    code, why = error.code(), error.details() or error.code().name
    # The daemon's own errors have one.
    status = dict([*(error.trailing_metadata() or ())]).get("grpc-status-details-bin")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(code.name, "the daemon did not answer within the timeout")
    if code != grpc.StatusCode.UNAVAILABLE:
        return ConvtuneError(code.name, why, _violations(status or b""))
    if status is None:
        why = (
            f"no answer from the daemon at {address}: {why}; start one with `convtuned`, or say where it is with "
            "CONVTUNE_ADDRESS or Client(address)"
        )
    return Unavailable(code.name, why)


def _violations(status: bytes) -> list[tuple[str, str]]:
    """The violations of google.rpc.BadRequest. Debian has no package of its messages for Python."""
    try:
        # Status.details (3) of google.protobuf.Any (type_url 1, value 2); BadRequest.field_violations (1),
        # each with field (1) and description (2).
        return [
            (_text(violation, 1), _text(violation, 2))
            for detail in _all(status, 3)
            if _text(detail, 1).endswith("/google.rpc.BadRequest")
            for value in _all(detail, 2)
            for violation in _all(value, 1)
        ]
    except DecodeError:
        return []  # the message says it all the same


def _text(message: bytes, number: int) -> str:
    return b"".join(_all(message, number)).decode(errors="replace")


def _all(message: bytes, number: int) -> list[bytes]:
    """The values of a length-delimited field."""
    fields = UnknownFieldSet(Empty.FromString(message))
    return [field.data for field in fields if (field.field_number, field.wire_type) == (number, 2)]
