"""Newer clients are understood, and one that knows nothing but reflection; test_roles.py calls every method by that."""

import subprocess
import sys

import grpc
import pytest
from google.protobuf.internal import encoder

from conftest import REPO
from harness.api import API
from harness.problems import numbered

# As text, as a number, as eight bytes.
UNKNOWN = encoder.TagBytes(1900, 2) + b"\x05later" + encoder.TagBytes(1901, 0) + b"\x4d" + encoder.TagBytes(1902, 1) + b"8 bytes!"


def with_unknown(message):
    """The message's bytes, and fields that this daemon does not know."""
    return message.SerializeToString() + UNKNOWN


def request_of(spec):
    """A BatchGetRequest; messages keep the unknown fields that they were read with."""
    return with_unknown(API.BatchGetRequest(problems=[API.ProblemSpec.FromString(with_unknown(spec))]))


def test_request_with_unknown_fields_is_understood(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        client.tune(numbered(1))
        (result,) = client.tuning.BatchGetRaw(request_of(API.ProblemSpec(text=numbered(1))), timeout=10).results
        assert result.WhichOneof("outcome") == "answer"
        # A oneof case that this daemon does not know reads as no problem at all.
        with pytest.raises(grpc.RpcError) as error:
            client.tuning.BatchGetRaw(request_of(API.ProblemSpec()), timeout=10)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "problems[0]" in error.value.details()


def test_the_example_of_a_first_call_prints_an_answer_and_its_usage(fake_daemon):
    example = [sys.executable, REPO / "deploy" / "examples" / "first_call.py"]
    daemon = fake_daemon().start()
    asked = subprocess.run([*example, daemon.address, numbered(1)], capture_output=True, text=True, timeout=120)
    assert asked.returncode == 0 and "HEURISTIC in " in asked.stdout, asked
    refused = subprocess.run(example, capture_output=True, text=True, timeout=120)
    assert (refused.returncode, refused.stderr) == (2, "usage: first_call.py ADDRESS PROBLEM\n")
