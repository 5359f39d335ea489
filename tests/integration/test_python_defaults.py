"""What the Python package does before it asks anybody: arguments, and where it looks."""

import os
import pathlib
import shutil
import socket
import tempfile

import pytest


@pytest.fixture
def places(ct, monkeypatch):
    """Nothing is named, nobody is root, and the machine's folders are in here, which is not in /tmp."""
    here = pathlib.Path(tempfile.mkdtemp(prefix="ct-", dir="/var/tmp"))
    for name in ("CONVTUNE_ADDRESS", "CONVTUNE_SNAPSHOT", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here / "runtime"))
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(ct.defaults, "SYSTEM_SOCKET", str(here / "run" / "convtune.sock"))
    monkeypatch.setattr(ct.defaults, "SYSTEM_SNAPSHOT", str(here / "lib" / "snapshot"))
    yield here
    shutil.rmtree(here, ignore_errors=True)


def made(path):
    """A socket; its address."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return f"unix:{path}"


def test_the_own_daemons_socket_comes_before_the_machines(ct, places, monkeypatch):
    own = places / "runtime" / "convtune" / "convtune.sock"
    assert ct.defaults.address() == f"unix:{own}"  # where one would be
    client = ct.Client()
    machine = made(places / "run" / "convtune.sock")
    assert ct.defaults.address() == machine
    own.parent.mkdir(parents=True)
    own.touch()  # no socket
    assert ct.defaults.address() == machine
    own.unlink()
    assert made(own) == ct.defaults.address()
    # A client that nobody gave a name looks again at each call.
    own.unlink()
    with pytest.raises(ct.Unavailable):
        client.get(["fwd,x=1x8x8x8,w=8x8x3x3"], timeout=0.01)
    assert client.address == machine
    monkeypatch.setenv("CONVTUNE_ADDRESS", "unix:/named")
    assert ct.Client().address == "unix:/named"


def test_a_folder_in_tmp_that_others_may_write_to_is_not_trusted(ct, places, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    machine = made(places / "run" / "convtune.sock")
    user = 2_000_000_000 + os.getpid()  # nobody's
    folder = pathlib.Path(f"/tmp/convtune-{user}")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ct.defaults.address() == machine
    try:
        own = made(folder / "convtune.sock")
        folder.chmod(0o700)
        assert ct.defaults.address() == machine  # it is another user's
        monkeypatch.setattr(ct.defaults, "_is_private", lambda path: path == str(folder))
        assert ct.defaults.address() == own
        monkeypatch.undo()
        assert ct.defaults._is_private(str(folder))
        folder.chmod(0o770)
        assert not ct.defaults._is_private(str(folder))
        (places / "link").symlink_to(folder)
        assert not ct.defaults._is_private(str(places / "link"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_machines_snapshot_comes_behind_those_of_the_table(ct, places, monkeypatch):
    """tests/data/rules/snapshot_folders.txt, in test_rules.py."""
    own, machine = places / "home" / "convtune" / "snapshot", places / "lib" / "snapshot"
    machine.mkdir(parents=True)
    assert ct.defaults.snapshot_folder() == str(machine)
    own.mkdir(parents=True)
    assert ct.defaults.snapshot_folder() == str(own)
    # The folder that has one, as a member of the daemon's group sees it: to read and not to write.
    (machine / "current.snapshot").touch(mode=0o444)
    machine.chmod(0o555)
    assert ct.defaults.snapshot_folder() == str(machine)
    monkeypatch.setenv("CONVTUNE_SNAPSHOT", "/named")
    assert ct.defaults.snapshot_folder() == "/named"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("max_error", -1.0, "must be a finite number of at least 0"),
        ("max_error", float("nan"), "must be a finite number of at least 0"),
        ("max_error", "0.1", "must be a finite number of at least 0"),
        ("cache_state", "warm", "must be one of cold, input_hot, hot, is 'warm'"),
        ("api", "cudnn", "must be one of any, graph, legacy"),
        ("launch", "graph", "must be one of eager, graph_capture"),
        ("max_workspace_bytes", -1, "must be a whole number from 0"),
        ("max_workspace_bytes", 1.5, "must be a whole number from 0"),
        ("deterministic", "yes", "must be True or False"),
    ],
)
def test_a_constraint_that_is_none_names_field_and_rule(ct, field, value, rule):
    with pytest.raises(ValueError, match=f"^{field}: {rule}"):
        ct.Constraints(**{field: value})


def test_other_arguments_name_field_and_rule(ct, tmp_path):
    client = ct.Client(f"unix:{tmp_path}/nobody")
    for call, message in (
        (lambda: client.resolve([], min_evidence="bogus"), "^min_evidence: must be one of "),
        (lambda: client.get([], min_evidence="bogus"), "^min_evidence: must be one of "),
        (lambda: client.get([], on_miss="bogus"), "^on_miss: must be one of "),
        (lambda: client.tune([], budget_s=-1), "^budget_s: must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="mutual TLS"):
        ct.Client("localhost:1")


def test_an_answer_that_is_no_protobuf_has_no_fields(ct):
    from convtune.errors import _violations

    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    request = field(1, field(1, b"f") + field(2, b"must be so"))
    status = b"\x08\x03" + field(3, field(1, b"/google.rpc.BadRequest") + field(2, request))
    assert _violations(status) == [("f", "must be so")]
    for damaged in (status[:-1], status + b"\xff\xff", b"\x0b"):
        assert _violations(damaged) == []
