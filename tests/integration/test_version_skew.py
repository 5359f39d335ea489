"""Older and newer clients are understood; a worker is of the daemon's own version."""

import grpc
import pytest

from harness.api import API
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered


def varint(number):
    out = bytearray()
    while True:
        out.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)


def unknown_fields():
    """Field 1900 as text, 1901 as a number, 1902 as eight bytes."""
    text = varint(1900 << 3 | 2) + varint(5) + b"later"
    number = varint(1901 << 3) + varint(77)
    return text + number + varint(1902 << 3 | 1) + b"8 bytes!"


def test_request_with_unknown_fields_is_understood(fake_daemon):
    daemon = fake_daemon().start()
    spec = API.ProblemSpec(text=numbered(1)).SerializeToString() + unknown_fields()
    request = b"\x12" + varint(len(spec)) + spec + unknown_fields()
    with daemon.client() as client:
        client.tune(numbered(1))
        (result,) = client.tuning.BatchGetRaw(request, timeout=10).results
        assert result.WhichOneof("outcome") == "answer"


def test_problem_of_a_newer_kind_is_named_as_missing(fake_daemon):
    """A oneof case that this daemon does not know reads as no problem at all."""
    daemon = fake_daemon().start()
    request = b"\x12" + varint(len(unknown_fields())) + unknown_fields()
    with daemon.client() as client:
        with pytest.raises(grpc.RpcError) as error:
            client.tuning.BatchGetRaw(request, timeout=10)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "problems[0]" in error.value.details()


def test_client_of_another_minor_version_is_served(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        for version in ("0.0.1", "0.99.0"):
            metadata = [("x-convtune-version", version)]
            assert client.tuning.BatchGet(problems=[{"text": numbered(1)}], metadata=metadata).results


def test_worker_of_another_version_is_refused_with_its_reason(fake_daemon):
    daemon = fake_daemon().start(env=script(version="0.99.0"))
    with daemon.client() as client:
        result = client.get_one(numbered(1), on_miss="ON_MISS_TUNE", timeout=60)
        assert result.WhichOneof("outcome") == "miss"

        def reason():
            (device,) = client.tuning.ListDevices().devices
            return device.reason

        assert 'the worker\'s version is "0.99.0", this program\'s is ' in wait_until(reason, 10, "a reason")
        assert "0.99.0" in result.miss.message
    assert daemon.running()
