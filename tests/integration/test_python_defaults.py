"""What the Python package does before it asks anybody: arguments, and where it looks."""

import os
import sys

import pytest

from harness import python_package


@pytest.fixture(scope="module")
def ct():
    sys.path.insert(0, str(python_package.install()))
    import convtune
    import convtune.defaults

    return convtune


@pytest.fixture
def places(ct, tmp_path, monkeypatch):
    """Nothing is named, nobody is root, and the machine's folders are in here."""
    for name in ("CONVTUNE_ADDRESS", "CONVTUNE_SNAPSHOT", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(ct.defaults, "SYSTEM_SOCKET", str(tmp_path / "run" / "convtune.sock"))
    monkeypatch.setattr(ct.defaults, "SYSTEM_SNAPSHOT", str(tmp_path / "lib" / "snapshot"))
    return tmp_path


def made(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return f"unix:{path}"


def test_the_own_daemons_socket_comes_before_the_machines(ct, places, monkeypatch):
    own = places / "runtime" / "convtune" / "convtune.sock"
    assert ct.defaults.address() == f"unix:{own}"  # where one would be
    machine = made(places / "run" / "convtune.sock")
    assert ct.defaults.address() == machine
    made(own)
    assert ct.defaults.address() == f"unix:{own}"
    monkeypatch.setenv("CONVTUNE_ADDRESS", "unix:/named")
    assert ct.Client().address == "unix:/named"


def test_a_folder_in_tmp_that_others_may_write_to_is_not_trusted(ct, places, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert ct.defaults.address() == "unix:/tmp/convtune-4321/convtune.sock"
    folder = places / "convtune-4321"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid())
    made(folder / "convtune.sock")
    folder.chmod(0o700)
    assert ct.defaults._is_private(str(folder))
    folder.chmod(0o770)
    assert not ct.defaults._is_private(str(folder))
    (places / "link").symlink_to(folder)
    assert not ct.defaults._is_private(str(places / "link"))


def test_the_own_daemons_snapshot_comes_before_the_machines(ct, places, monkeypatch):
    own, machine = places / "home" / "convtune" / "snapshot", places / "lib" / "snapshot"
    assert ct.defaults.snapshot_folder() == str(own)
    machine.mkdir(parents=True)
    machine.chmod(0o555)  # as a member of the daemon's group sees it: to read and not to write
    assert ct.defaults.snapshot_folder() == str(machine)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert ct.defaults.snapshot_folder() == str(own)
    monkeypatch.undo()
    monkeypatch.setenv("CONVTUNE_SNAPSHOT", "/named")
    assert ct.defaults.snapshot_folder() == "/named"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("max_error", -1.0, "must be a finite number of at least 0"),
        ("max_error", float("nan"), "must be a finite number of at least 0"),
        ("max_error", "0.1", "must be a finite number of at least 0"),
        ("cache_state", "warm", "must be one of '', 'cold', 'input_hot', 'hot', is 'warm'"),
        ("api", "cudnn", "must be one of 'any', 'graph', 'legacy'"),
        ("launch", "graph", "must be one of 'eager', 'graph_capture'"),
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


def test_an_answer_that_is_no_protobuf_has_no_fields(ct):
    from convtune.errors import _all

    assert list(_all(b"\x0a\x03abc\x10\x05\x0a\x01d", 1)) == [b"abc", b"d"]
    for cut in (b"\x0a\x05abc", b"\x0a", b"\xff\xff", b"\x0b"):
        with pytest.raises((ValueError, IndexError)):
            list(_all(cut, 1))
