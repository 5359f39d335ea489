"""Every method of every service × every role × unix sockets and mutual TLS.

The methods are those that the daemon's own reflection lists: one without a row
below fails.
"""

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import threading

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from harness.api import API, Client
from harness.daemon import free_port, wait_until
from harness.fakes import script
from harness.problems import numbered

ROLES = ["none", "read", "tune", "admin"]
LEAST = {
    "convtune.v1.TuningService": {
        "BatchGet": "read", "GetTuningJob": "read", "ListTuningJobs": "read", "WatchTuningJob": "read",
        "GetTuning": "read", "ListTunings": "read", "ListPins": "read", "ListEnvironments": "read",
        "ListDevices": "read", "CreateTuningJob": "tune", "CancelTuningJob": "tune", "DeleteTuning": "admin",
        "Pin": "admin", "Unpin": "admin", "CreateBan": "admin", "DeleteBan": "admin", "ListBans": "read",
    },
    "convtune.v1.MaintenanceService": {
        "GetServerInfo": "read", "CheckDatabase": "admin", "BackupDatabase": "admin", "CompactDatabase": "admin",
    },
    "convtune.v1.ReleaseService": {
        "ListReleases": "read", "DiffReleases": "read", "ListWanted": "read", "GetPublication": "read",
        "ReadSnapshot": "read",
        "PromoteRelease": "admin", "RollBackRelease": "admin",
    },
    "convtune.v1.BundleService": {"ExportBundle": "read", "ImportBundle": "admin"},
    "convtune.v1.FleetService": {
        "GetFleetState": "admin", "ReadOutbox": "admin", "AckOutbox": "admin", "RequeueOutbox": "admin",
        "ApplyTunings": "admin", "FollowRelease": "admin",
    },
    "grpc.health.v1.Health": {"Check": "none", "Watch": "none"},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": "read"},
}  # fmt: skip
# What takes an admin and has no line of audit.
NOT_AUDITED = {
    "CheckDatabase": "changes nothing",
    "GetFleetState": "changes nothing", "ReadOutbox": "changes nothing",
    "AckOutbox": "moves what is known to the fleet", "RequeueOutbox": "the same",
    "ApplyTunings": "evidence, of which the fleet's database has the history",
}  # fmt: skip
# What is told apart by the request and not by the path.
ON_MISS = {"ON_MISS_NONE": "read", "ON_MISS_HEURISTIC": "tune", "ON_MISS_ENQUEUE": "tune", "ON_MISS_TUNE": "tune"}
STRANGER = (41001, 41001)  # a user that need not exist, and its group
BATCH_GET = "/convtune.v1.TuningService/BatchGet"
CHECK = "/convtune.v1.MaintenanceService/CheckDatabase"  # takes an admin
CERT_ROLES = ["read=cert:reader.example", "tune=cert:spiffe://example/tuner", "admin=cert:operator"]


@pytest.fixture(scope="module")
def names(certificates):
    """A client's certificate for each role."""
    certificates.make("none", names="DNS:nobody.example")
    certificates.make("read", names="DNS:other.example,DNS:reader.example")
    certificates.make("tune", names="URI:spiffe://example/tuner")
    certificates.make("operator", names=None)  # by its common name
    return {"none": "none", "read": "read", "tune": "tune", "admin": "operator"}


@pytest.fixture
def guarded(fake_daemon, certificates):
    """A daemon with a socket for each role, and rules for certificates."""
    port = free_port()
    roles = [argument for role in CERT_ROLES for argument in ("--role", role)]
    daemon = fake_daemon("--listen", f"localhost:{port}", *certificates.server_flags(), *roles, env=script())
    daemon.tcp = f"localhost:{port}"
    daemon.sockets = {role: daemon.directory / role for role in ("read", "tune")} | {"admin": daemon.socket}
    for role in ("read", "tune"):
        daemon.args += ["--listen", f"{role}=unix:{daemon.sockets[role]}"]
    return daemon.start()


@pytest.fixture
def channels(guarded, certificates, names):
    """channels(transport, role) is a connection of a caller with that role."""
    with contextlib.ExitStack() as stack:

        def make(transport, role):
            if transport == "mtls":
                client = Client(guarded.tcp, credentials=certificates.credentials(names[role]))
            else:
                client = Client(f"unix:{guarded.sockets[role]}")
            stack.callback(client.close)
            return client.channel

        yield make


def described(channel):
    """[(service, method descriptor)] of what the daemon says of itself."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    found = []
    for service in database.get_services():
        found += [(service, method) for method in pool.FindServiceByName(service).methods]
    return found


def outcome(channel, path, request=b"", client_streaming=False, server_streaming=False):
    """Name of the status that a call ends with; streams are left after their first message."""
    kind = f"{'stream' if client_streaming else 'unary'}_{'stream' if server_streaming else 'unary'}"
    try:
        reply = getattr(channel, kind)(path)(iter([request]) if client_streaming else request, timeout=30)
        if server_streaming:
            next(iter(reply), None)
            reply.cancel()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


@pytest.mark.parametrize("transport,role", [("socket", role) for role in ROLES[1:]] + [("mtls", role) for role in ROLES])
def test_each_role_may_call_what_it_may_and_nothing_else(guarded, channels, transport, role):
    channel = channels(transport, role)
    with Client(guarded.address) as root:
        methods = described(root.channel)
    assert sorted((s, m.name) for s, m in methods) == sorted((s, name) for s, rows in LEAST.items() for name in rows)
    for service, method in methods:
        allowed = ROLES.index(role) >= ROLES.index(LEAST[service][method.name])
        path = f"/{service}/{method.name}"
        got = outcome(channel, path, b"", method.client_streaming, method.server_streaming)
        assert (got != "PERMISSION_DENIED") == allowed, (transport, role, service, method.name, got)


@pytest.mark.parametrize("transport,role", [("socket", role) for role in ROLES[1:]] + [("mtls", role) for role in ROLES])
def test_what_a_look_up_does_about_a_miss_takes_its_role(guarded, channels, transport, role):
    channel = channels(transport, role)
    with Client(guarded.address) as root:
        assert root.tune(numbered(1)).succeeded_count == 1
    for on_miss, least in ON_MISS.items():
        allowed = ROLES.index(role) >= ROLES.index(least)
        for problem in (numbered(1), numbered(2)):  # there, and not
            message = API.BatchGetRequest(on_miss=on_miss, problems=[{"text": problem}]).SerializeToString()
            for _ in range(2):  # the second time from what is ready as bytes
                got = outcome(channel, BATCH_GET, message)
                assert got == ("OK" if allowed else "PERMISSION_DENIED"), (transport, role, on_miss, problem)


def test_an_unknown_method_is_an_admins_to_be_told_of(guarded, channels):
    path = "/convtune.v1.TuningService/DropEverything"
    assert outcome(channels("mtls", "tune"), path) == "PERMISSION_DENIED"
    assert outcome(channels("mtls", "admin"), path) == "UNIMPLEMENTED"


@pytest.mark.parametrize("transport", ["socket", "mtls"])
def test_a_client_of_newer_reflection_is_told_to_fall_back(guarded, channels, transport):
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    assert outcome(channels(transport, "read"), path, b"", True, True) == "UNIMPLEMENTED"


def refused(channel, path, request=b""):
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(path)(request, timeout=10)
    assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED, error.value
    return error.value.details()


@pytest.mark.parametrize("transport", ["socket", "mtls"])
def test_a_refusal_is_logged_with_who_what_and_both_roles(guarded, channels, transport):
    channel = channels(transport, "read")
    who = "certificate other.example, reader.example" if transport == "mtls" else f"unix:{guarded.sockets['read']}"
    said = refused(channel, "/convtune.v1.TuningService/Pin")
    assert all(words in said for words in ("admin", "read", "--listen", "--role"))
    assert f"{who} refused: /convtune.v1.TuningService/Pin takes the role admin, and has read" in guarded.log()
    message = API.BatchGetRequest(on_miss="ON_MISS_TUNE", problems=[{"text": numbered(1)}])
    refused(channel, BATCH_GET, message.SerializeToString())
    assert f"{who} refused: on_miss: anything but NONE takes the role tune, and has read" in guarded.log()
    for _ in range(100):
        refused(channel, "/convtune.v1.TuningService/Unpin")
    # A window of ten seconds may have ended between them.
    assert guarded.log().count(" refused: ") <= 42


def test_the_file_of_a_socket_says_who_may_connect_and_a_stranger_is_told_of_that_for_everybody(guarded, convtune):
    modes = {role: stat.S_IMODE(path.stat().st_mode) for role, path in guarded.sockets.items()}
    assert modes == {"read": 0o666, "tune": 0o660, "admin": 0o660}
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    guarded.directory.chmod(0o755)

    def stranger(role, *verb):
        command = [convtune, *verb, "--address", f"unix:{guarded.sockets[role]}"]
        user, group = STRANGER
        return subprocess.run(command, user=user, group=group, extra_groups=[], cwd="/", env={}, capture_output=True, text=True)

    allowed, denied = stranger("read", "environments"), stranger("read", "db", "check")
    assert allowed.returncode == 0 and denied.returncode != 0 and "takes the role admin" in denied.stderr, (allowed, denied)
    for role in ("tune", "admin"):
        kept_out = stranger(role, "environments")
        assert kept_out.returncode == 4 and "use a socket for everybody with CONVTUNE_ADDRESS" in kept_out.stderr, kept_out


def test_connections_without_end_on_one_socket_hold_up_neither_an_admin_nor_the_end(guarded):
    stop, made = threading.Event(), [0] * 4

    def connect(index):
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as end:
                end.settimeout(5)
                end.connect(str(guarded.sockets["read"]))
                made[index] += 1

    threads = [threading.Thread(target=connect, args=(index,)) for index in range(len(made))]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: min(made) >= 50, 60, "a flood")
        for _ in range(5):
            with Client(guarded.address) as client:
                assert client.maintenance.CheckDatabase(timeout=60).ok
        assert guarded.stop(timeout=60) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_rules_for_one_transport_leave_the_other_as_it_was(fake_daemon, certificates, names):
    port = free_port()
    daemon = fake_daemon("--listen", f"localhost:{port}", *certificates.server_flags(), "--role", "read=cert:*").start()
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o660
    with daemon.client() as client:
        assert client.maintenance.CheckDatabase().ok
    with Client(f"localhost:{port}", credentials=certificates.credentials("none")) as client:
        assert client.info().pid == daemon.pid
        refused(client.channel, CHECK)
    assert daemon.health("liveness") == "SERVING"


def test_a_rule_that_cannot_be_is_refused_at_start(daemons):
    daemon = daemons("--devices", "none", env={"CONVTUNE_ROLE": "read=group:serving"})
    daemon.start(wait=False)
    assert daemon.process.wait(20) == 2
    assert all(words in daemon.log() for words in ("--role", "read=group:serving", "--listen ROLE=unix:PATH"))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_whatever_changes_has_its_line_of_audit(guarded, cli, certificates, names, tmp_path, log_format):
    guarded.stop()
    guarded.args += ["--log-format", log_format, "--log-level", "error"]
    guarded.start()
    problem, admin = numbered(0), cli(guarded)
    admin.ok("tune", problem)
    with guarded.client() as client:
        first, second = [c.text for c in client.tuning.GetTuning(problem={"text": problem}).candidates if c.status == 1][:2]
    admin.ok("pin", problem, first, "--reason", "one")
    over_tls = ("--address", guarded.tcp, "--tls-ca", certificates.path("ca.pem"))
    over_tls += ("--tls-cert", certificates.path("operator.pem"), "--tls-key", certificates.path("operator.key"))
    cli().ok(*over_tls, "pin", problem, second, "--reason", "two")
    admin.ok("unpin", problem)
    admin.ok("ban", first, "--reason", "slow")
    admin.ok("ban", "delete", "1")
    # What is refused has its line too.
    decided = [admin("release", verb, "--reason", "three").code == 0 for verb in ("promote", "rollback", "promote")]
    admin.ok("db", "backup", "copy.db")
    admin.ok("db", "compact")
    admin.ok("export", tmp_path / "bundle")
    admin.ok("import", tmp_path / "bundle")
    admin.ok("delete", problem)
    with guarded.client() as client:
        client.fleet.FollowRelease(release=7, author="ann", reason="five")
    lines = [line for line in guarded.log().splitlines() if line.startswith("{")]
    if log_format == "json":
        audited = [line["audit"] for line in map(json.loads, lines) if line["level"] == "audit"]
    else:
        audited = [json.loads(m[1]) for m in re.finditer(r"^\S+Z audit (\{.*\}) request_id=\S+$", guarded.log(), re.MULTILINE)]
    assert {a["method"] for a in audited} == {
        method for rows in LEAST.values() for method, role in rows.items() if role == "admin" and method not in NOT_AUDITED
    }
    one, two = (a for a in audited if a["method"] == "Pin")
    assert one["status"] == two["status"] == "OK"
    assert "before" not in one and one["after"]["candidate"] == first
    assert two["before"]["reason"] == "one" and two["after"]["candidate"] == second
    assert re.fullmatch(rf"unix:uid={os.geteuid()},pid=\d+", one["from"]) and "who" not in one
    assert two["who"] == "certificate operator" and two["from"].startswith("ipv")
    assert [a["status"] == "OK" for a in audited if a["method"] in ("PromoteRelease", "RollBackRelease")] == decided
    (gone,) = (a for a in audited if a["method"] == "DeleteBan")
    assert gone["before"]["reason"] == "slow"


def copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_the_line_of_audit_does_not_believe_a_clients_own_name(guarded, cli, short_dir, monkeypatch):
    monkeypatch.chdir(short_dir)
    with socket.socket(socket.AF_UNIX) as front, socket.socket(socket.AF_UNIX) as far:
        front.bind(str(short_dir / "front"))
        front.listen()

        def forward():
            near, _ = front.accept()
            far.bind("uid=7,pid=7")
            far.connect(str(guarded.sockets["admin"]))
            threading.Thread(target=copy, args=(near, far), daemon=True).start()
            copy(far, near)

        threading.Thread(target=forward, daemon=True).start()
        cli().ok("--address", f"unix:{short_dir}/front", "db", "compact")
    assert f'"from":"unix:uid={os.geteuid()},pid={os.getpid()}"' in guarded.log()
