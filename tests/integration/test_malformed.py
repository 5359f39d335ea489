"""Malformed inputs: each is refused by field and rule, and costs no memory."""

import shutil
import tempfile

import grpc
import pytest

from harness import malformed
from harness.api import API, violations
from harness.daemon import Daemon

GROWTH_KIB = 8 * 1024


@pytest.fixture(scope="module")
def server(convtuned):
    """One daemon for the whole table."""
    directory = tempfile.mkdtemp(prefix="ct-")
    daemon = Daemon(convtuned, directory, ["--devices", "none"]).start()
    yield daemon
    daemon.close()
    shutil.rmtree(directory, ignore_errors=True)


def named(table):
    return pytest.mark.parametrize("case", table, ids=[case[0] for case in table])


def refusal(call):
    with pytest.raises(grpc.RpcError) as caught:
        result = call()
        if hasattr(result, "__next__"):
            list(result)
    return caught.value


def assert_names(error, field, rule):
    """INVALID_ARGUMENT with a violation of the field, in words that name the rule."""
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    found = violations(error)
    assert found, error
    assert any(field.lower() in f.lower() and rule.lower() in r.lower() for f, r in found), found
    assert all(f and r for f, r in found), found
    assert error.details()


@named(malformed.PROBLEMS)
def test_problem_field_by_field(server, case):
    _, problem, field, rule = case
    with server.client() as client:
        error = refusal(lambda: client.tuning.BatchGet(problems=[{"problem": problem}]))
    assert_names(error, field, rule)
    assert any(f.startswith("problems[0]") for f, _ in violations(error))


@named(malformed.TEXTS)
def test_problem_in_text_form(server, case):
    _, text, token, rule = case
    with server.client() as client:
        error = refusal(lambda: client.get(text))
    assert_names(error, "problems[0].text", rule)
    assert any(token.lower() in r.lower() for _, r in violations(error)), violations(error)


@named(malformed.REQUESTS)
def test_request(server, case):
    _, method, fields, field, rule = case
    with server.client() as client:
        assert_names(refusal(lambda: getattr(client.tuning, method)(**fields)), field, rule)


def test_all_violations_of_a_problem_are_told_at_once(server):
    with server.client() as client:
        broken = {**malformed.GOOD, "strides": [0, -1], "alignment_bytes": 3}
        found = violations(refusal(lambda: client.tuning.BatchGet(problems=[{"problem": broken}])))
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


@pytest.mark.parametrize("path", ["/tmp/elsewhere.db", "relative/path", "../up.db", ".."], ids=["elsewhere", "below", "above", "dots"])
def test_backup_path(server, path):
    with server.client() as client:
        assert_names(refusal(lambda: client.maintenance.BackupDatabase(path=path)), "path", "")


@named(malformed.COMMANDS)
def test_command_line(server, cli, case):
    _, arguments, stdin, field, rule = case
    result = cli(server)(*arguments, stdin=stdin)
    assert result.code == 2, result
    assert field.lower() in result.err.lower() and rule.lower() in result.err.lower(), result


@named(malformed.FILES)
def test_file(server, cli, tmp_path, case):
    _, name, content, field, rule = case
    path = tmp_path / (name or "missing.csv")
    if name:
        path.write_bytes(content)
    result = cli(server)("get", "--file", path)
    assert result.code == 2, result
    said = result.err + result.out
    assert field.lower() in said.lower() and rule.lower() in said.lower(), result


def test_memory_stays_flat(server, long_run):
    """The whole table over and over: resident memory does not grow."""
    requests = [
        ("BatchGet", API.BatchGetRequest(problems=[{"problem": problem}]))
        for _, problem, _, _ in malformed.PROBLEMS
    ]
    requests += [
        ("BatchGet", API.BatchGetRequest(problems=[{"text": text}]))
        for _, text, _, _ in malformed.TEXTS
        if len(text) < 100000
    ]
    requests += [
        (method, fields)
        for _, method, fields, _, _ in malformed.REQUESTS
        if len(fields.get("problems", [])) < 100 and method != "WatchTuningJob"
    ]
    total = 10000 if long_run else 2000

    with server.client() as client:

        def send(count):
            refused = 0
            for i in range(count):
                method, request = requests[i % len(requests)]
                try:
                    if isinstance(request, dict):
                        getattr(client.tuning, method)(**request)
                    else:
                        getattr(client.tuning, method + "Raw")(request, timeout=10)
                except grpc.RpcError as error:
                    refused += error.code() == grpc.StatusCode.INVALID_ARGUMENT
            return refused

        assert send(1000) == 1000
        before = server.rss_kib()
        assert send(total) == total
        assert server.rss_kib() - before < GROWTH_KIB
    assert server.health("") == "SERVING"
