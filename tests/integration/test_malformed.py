"""Malformed input on its way through gRPC and the real programs: refused by field and rule, and it costs no memory.

Each rule has its cases in tests/unit: model/problem/malformed_problem_test.cc, rpc/messages/request_validator_test.cc,
convert/problem_list_test.cc and cli/input/malformed_input_test.cc. Here are each form and each method once.
"""

import grpc
import pytest

from harness.api import API, violations

GROWTH_KIB = 8 * 1024

TEXT = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
FIELDS = {
    "operation": "OPERATION_FWD", "x_dims": [16, 64, 56, 56], "w_dims": [64, 64, 3, 3], "pad_low": [1, 1],
    "data_type": "DATA_TYPE_F16",
}  # fmt: skip
STRIDED = {**FIELDS, "layout": "TENSOR_LAYOUT_STRIDED"}
PIN = {"problem": {"text": TEXT}, "candidate": "graph:eng1"}


def get(*problems):
    return {"problems": [{"text": p} if isinstance(p, str) else {"problem": p} for p in problems]}


# Method, fields, part of the field that is named, part of the rule. Letter case does not count: a rule's exact wording is the
# validator's own business, that field and rule are named is the contract.
REQUESTS = [
    ("BatchGet", get({**FIELDS, "x_dims": [16, 64, -56, 56]}), "problems[0].problem.x_dims[2]", "from 1 to"),
    ("BatchGet", get({**FIELDS, "data_type": 77}), "problems[0].problem.data_type", "77"),
    ("BatchGet", get(STRIDED), "problems[0].problem.layout", "x_strides"),
    ("BatchGet", get({**STRIDED, "x_strides": [200704, 1, 3584, 64]}), "problems[0].problem.w_strides", "one entry"),
    ("BatchGet", get(TEXT, TEXT + ",groups=7"), "problems[1].text", "divide"),
    ("BatchGet", get(TEXT + ",\x01\x02"), "problems[0].text", "control characters"),
    ("BatchGet", get("fwd," + "x=1," * 250000), "problems[0].text", "bytes"),
    ("BatchGet", get(*[TEXT] * 10001), "problems", "10001"),
    ("BatchGet", {**get(TEXT), "constraints": {"max_workspace_bytes": -1}}, "constraints.max_workspace_bytes", "0 to"),
    ("CreateTuningJob", {**get(TEXT), "options": {"time_budget": {"seconds": 360000}}}, "options.time_budget", "1"),
    ("GetTuningJob", {"name": "job-1"}, "name", "jobs/"),
    ("WatchTuningJob", {}, "name", "required"),
    ("CancelTuningJob", {"name": "jobs/one"}, "name", "jobs/"),
    ("GetTuning", {}, "problem", "required"),
    ("ListTunings", {"page_size": -1}, "page_size", "negative"),
    ("ListTuningJobs", {"page_token": "not a token"}, "page_token", ""),
    ("ListPins", {"page_size": -1}, "page_size", "negative"),
    ("ListEnvironments", {"page_token": "bm8="}, "page_token", ""),
    ("DeleteTuning", {}, "problems", "1 to 10000"),
    ("Pin", PIN, "reason", "required"),
    ("Unpin", {}, "problem", "required"),
    ("CreateBan", {"ban": {"candidate": "eng1", "author": "a", "reason": "r", "expire_time": {"seconds": 5}}}, "ban.expire_time", "1 s"),
    ("DeleteBan", {"name": "3"}, "name", "bans/"),
]  # fmt: skip

JSON = '{"operation":"OPERATION_FWD","xDims":["1","3","8","8"],"wDims":["8","3","3","3"],%s}\n'
# Arguments, standard input, part of field, part of rule. The last two are refused by the daemon.
COMMANDS = [
    (["get", TEXT.encode() + b",\xff\xfe"], "", "argument 1", "utf-8"),
    (["get", "--file", "-"], JSON % '"groups":"many"', "groups", ""),
    (["get", "--file", "-"], JSON % '"dataType":"DATA_TYPE_F17"', "dataType", ""),
    (["release", "rollback", "-1"], "", "release", "0 to"),
    (["pin", TEXT, "graph:eng1", "--reason", ""], "", "reason", "required"),
]


@pytest.fixture(scope="module")
def server(module_daemon):
    """One daemon for all the cases."""
    return module_daemon("--devices", "none").start()


def refusal(call):
    with pytest.raises(grpc.RpcError) as caught:
        result = call()
        if hasattr(result, "__next__"):
            list(result)
    return caught.value


@pytest.mark.parametrize(("method", "fields", "field", "rule"), REQUESTS, ids=[f"{m}-{f}" for m, _, f, _ in REQUESTS])
def test_request(server, method, fields, field, rule):
    with server.client() as client:
        error = refusal(lambda: getattr(client.tuning, method)(**fields))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and error.details(), error
    found = violations(error)
    assert any(field in f and rule.lower() in r.lower() for f, r in found), found
    assert all(f and r for f, r in found), found


def test_all_violations_of_a_problem_are_told_at_once(server):
    with server.client() as client:
        broken = {**FIELDS, "strides": [0, -1], "alignment_bytes": 3}
        found = violations(refusal(lambda: client.tuning.BatchGet(**get(broken))))
    for field in ("strides[0]", "strides[1]", "alignment_bytes"):
        assert any(field in f for f, _ in found), found


def test_request_of_ten_megabytes(server):
    with server.client() as client:
        error = refusal(lambda: client.get("fwd," + "x" * (10 << 20)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(4 << 20) in error.details()


@pytest.mark.parametrize(
    "payload",
    [b"\xff" * 64, b"\x12\x07\x12\x05\xff\xfe\xfd\xfc\xfb", b"\x12\xff\xff\xff\xff\x0f"],
    ids=["garbage", "no-utf8", "length"],
)
def test_bytes_that_are_no_message(server, payload):
    """Garbage, text that is no UTF-8, and a length beyond the message."""
    with server.client() as client:
        error = refusal(lambda: client.tuning.BatchGetRaw(payload, timeout=10))
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
    assert error.details()


def test_unknown_method_is_unimplemented(server):
    with server.client() as client:
        call = client.channel.unary_unary("/convtune.v1.TuningService/Guess")
        assert refusal(lambda: call(b"", timeout=10)).code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(("arguments", "stdin", "field", "rule"), COMMANDS)
def test_command_line(server, cli, arguments, stdin, field, rule):
    result = cli(server)(*arguments, stdin=stdin.encode())
    assert result.code == 2, result
    assert field.lower() in result.err.lower() and rule.lower() in result.err.lower(), result


def test_memory_stays_flat(server, long_run):
    """The whole table over and over: resident memory does not grow."""
    total = 10000 if long_run else 2000
    with server.client() as client:
        # Fields are made to messages once; what a stream gives is left to the others.
        requests = [
            (getattr(client.tuning, f"{method}Raw"), getattr(API, f"{method}Request")(**fields))
            for method, fields, *_ in REQUESTS
            if method != "WatchTuningJob"
        ]
        requests = [(call, request) for call, request in requests if request.ByteSize() < 100000]

        def send(count):
            refused = 0
            for i in range(count):
                call, request = requests[i % len(requests)]
                try:
                    call(request, timeout=10)
                except grpc.RpcError as error:
                    refused += error.code() == grpc.StatusCode.INVALID_ARGUMENT
            return refused

        assert send(1000) == 1000
        before = server.rss_kib()
        assert send(total) == total
        assert server.rss_kib() - before < GROWTH_KIB
    assert server.health("") == "SERVING"
