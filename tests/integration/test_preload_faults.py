"""Whatever goes wrong, the program does what it would have done by itself."""

import json
import os
import socket
import struct
import subprocess
import threading

import pytest

from harness.preload import ALL, Candidate, Problem, candidates, ids, read_counters, stock_field

pytestmark = pytest.mark.ci

PROBLEM = Problem()
POLICIES = pytest.mark.parametrize("policy", ["reorder", pytest.param("truncate", marks=pytest.mark.ci)])


@pytest.fixture(scope="module")
def known(preload):
    return candidates(preload.stock(PROBLEM, ALL)["modes"][0])


@pytest.fixture
def winner(known):
    return next(c for c in known[1:] if c.workspace <= known[0].workspace and c.notes == known[0].notes)


@pytest.fixture
def folder(preload, tmp_path, known, winner):
    """A folder with a good snapshot."""
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, preload.choice(PROBLEM, winner.field(), stock_field(known[0])))
    return folder


def unchanged(preload, env, *more):
    return preload.raw(PROBLEM, ALL, *more, env=env) == preload.stock(PROBLEM, ALL, *more)


def test_the_good_snapshot_is_served(preload, folder, winner):
    assert preload.raw(PROBLEM, ALL, env=preload.env(folder))["chosen"] == winner.id


@POLICIES
def test_no_snapshot(preload, tmp_path, policy):
    assert unchanged(preload, preload.env(tmp_path / "nowhere", policy))


def test_a_query_with_its_fallback_is_one_miss_and_fallback_alone_is_one_too(preload, tmp_path):
    for modes, missed, fallbacks in (("af", 1, 1), ("bf", 1, 1), ("f", 1, 0), ("ab", 2, 0)):
        counters = tmp_path / modes
        preload.raw(PROBLEM, f"modes={modes}", env=preload.env(tmp_path / "nowhere", counters=counters))
        counted = read_counters(counters)[0]
        assert (counted["missed"]["no_snapshot"], counted["fallbacks"]) == (missed, fallbacks), modes


@POLICIES
def test_truncated_anywhere(preload, folder, policy):
    path = folder / "current.snapshot"
    whole = path.read_bytes()
    for size in (0, 1, 8, 111, 112, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert unchanged(preload, preload.env(folder, policy)), size


@POLICIES
def test_corrupt(preload, folder, policy):
    path = folder / "current.snapshot"
    whole = path.read_bytes()
    for place in (0, 9, 20, 60, 104, 120, 300, 500, len(whole) - 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert unchanged(preload, preload.env(folder, policy)), place


@POLICIES
def test_of_another_format_version(preload, folder, policy, tmp_path):
    path = folder / "current.snapshot"
    whole = bytearray(path.read_bytes())
    whole[8:12] = struct.pack("<I", 1)
    path.write_bytes(whole)
    counters = tmp_path / "counters"
    assert unchanged(preload, preload.env(folder, policy, counters=counters))
    assert read_counters(counters)[0]["snapshot"] == "of another format version"


@pytest.mark.parametrize("thing", ["folder", "fifo", "unreadable"])
def test_something_else_in_its_place(preload, folder, thing):
    path = folder / "current.snapshot"
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path)
    assert unchanged(preload, preload.env(folder))


def test_cut_short_and_removed_while_in_use(preload, folder, winner):
    """It was read once: what becomes of the file does not matter."""
    args = preload.raw_args(PROBLEM, "modes=a", "repeat=40")
    env = preload.env(folder)
    expected = preload.raw(PROBLEM, "modes=a", env=env)
    path = folder / "current.snapshot"
    running = subprocess.Popen(preload.command(args), env=env, stdout=subprocess.PIPE, text=True)
    lines = [running.stdout.readline()]  # so it has been served from the snapshot
    os.truncate(path, 10)
    path.unlink()
    lines += running.stdout.readlines()
    assert running.wait(300) == 0
    assert [json.loads(line) for line in lines] == [expected] * 40


@POLICIES
@pytest.mark.parametrize(
    "environment",
    [
        "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.18.0,lib=full",
        "profile:nvidia-h200,cc=9.0,sms=132,cudnn={cudnn},lib=graph_jit_only",
        "profile:nvidia-h100,cc=9.0,sms=132,cudnn={cudnn},lib=full",
        "profile:nvidia-h200,cc=9.0,sms=66,cudnn={cudnn},lib=full",
        "nvidia-h200,cc=9.0,sms=132,cudnn={cudnn},lib=full",
    ],
    ids=["cudnn", "library", "model", "sms", "card"],
)
def test_for_another_environment(preload, tmp_path, known, winner, environment, policy):
    folder, counters = tmp_path / "snapshot", tmp_path / "counters"
    preload.write_snapshot(
        folder,
        preload.choice(
            PROBLEM, winner.field(), stock_field(known[0]),
            environment=environment.format(cudnn=preload.cudnn_version),
        ),
    )  # fmt: skip
    assert unchanged(preload, preload.env(folder, policy, counters=counters))
    counted = read_counters(counters)[0]
    assert (counted["queries"], counted["missed"]["no_environment"], counted["fallbacks"]) == (2, 1, 1)


@POLICIES
@pytest.mark.parametrize(
    "unknown", ["eng9999", "eng45,k2=99999", "eng62,k63=1", "eng0,k2=1,k3=1,k4=1"]
)
def test_an_engine_or_knob_that_does_not_exist(preload, tmp_path, known, unknown, policy):
    folder, counters = tmp_path / "snapshot", tmp_path / "counters"
    candidate = Candidate(unknown, 0, 0)
    preload.write_snapshot(folder, preload.choice(PROBLEM, candidate.field(), stock_field(known[0])))
    assert unchanged(preload, preload.env(folder, policy, counters=counters))
    assert read_counters(counters)[0]["missed"]["refused"] >= 1


def test_filters_that_exclude_the_winner_leave_the_stock_program(preload, tmp_path):
    """f32 where TF32 is switched off: all with the tensor-core note go."""
    problem = Problem(type="f32")
    stock = preload.raw(problem, ALL, "deny=2")
    known = candidates(preload.stock(problem, ALL)["modes"][0])
    winner = next(c for c in known[1:] if c.notes == 2 and c.workspace <= known[0].workspace)
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, preload.choice(problem, winner.field(), stock_field(known[0])))
    got = preload.raw(problem, ALL, "deny=2", env=preload.env(folder, "reorder"))
    assert (got["chosen"], got["kept"]) == (stock["chosen"], stock["kept"])
    # A cut list keeps the first of the stock's without notes, which is what the
    # stock program's filter comes to.
    for modes in ("a", "af"):
        cut = preload.raw(problem, ALL, "deny=2", f"modes={modes}", env=preload.env(folder, "truncate"))
        alone = preload.raw(problem, ALL, "deny=2", f"modes={modes}")
        assert cut["chosen"] == alone["chosen"]


@POLICIES
def test_a_memory_filter_that_excludes_the_winner(preload, tmp_path, known, policy):
    problem = Problem(op="bwd_filter")
    known = candidates(preload.stock(problem, ALL)["modes"][0])
    largest = max(known, key=lambda c: c.workspace)
    assert largest.workspace > 0
    folder = tmp_path / "snapshot"
    stock_choice = Candidate("", largest.notes, largest.workspace)
    preload.write_snapshot(folder, preload.choice(problem, largest.field(), stock_field(stock_choice)))
    limit = f"max-workspace={largest.workspace - 1}"
    got = preload.raw(problem, ALL, limit, env=preload.env(folder, policy))
    assert got["chosen"] not in ("", largest.id)
    if policy == "reorder":
        assert got["chosen"] == preload.raw(problem, ALL, limit)["chosen"]


def test_nobody_listens(preload, tmp_path, folder):
    other = Problem(x=(5, 64, 56, 56))
    counters = tmp_path / "counters"
    assert preload.raw(other, env=preload.env(folder, counters=counters)) == preload.raw(other)
    assert read_counters(counters)[0]["dropped"] >= 1


def test_the_daemon_was_killed(preload, folder, tmp_path, winner):
    """Its socket is still there, and so is what it published."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(folder / "datagrams.sock"))
    listener.close()
    counters = tmp_path / "counters"
    env = preload.env(folder, counters=counters)
    other = Problem(x=(5, 64, 56, 56))
    assert preload.raw(other, env=env) == preload.raw(other)
    assert read_counters(counters)[0]["dropped"] >= 1
    assert preload.raw(PROBLEM, ALL, env=env)["chosen"] == winner.id


@pytest.mark.long
def test_a_snapshot_too_large_to_copy_is_mapped(preload, tmp_path, known, winner):
    folder = tmp_path / "snapshot"
    stock = stock_field(known[0])
    others = [
        preload.choice(f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16", winner.field()) for n in range(1000, 141000)
    ]
    preload.write_snapshot(folder, preload.choice(PROBLEM, winner.field(), stock), *others)
    assert (folder / "current.snapshot").stat().st_size > 64 << 20
    assert preload.raw(PROBLEM, ALL, env=preload.env(folder))["chosen"] == winner.id


def test_a_full_socket_never_blocks(preload, tmp_path, folder):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(folder / "datagrams.sock"))
    # Nobody reads: the queue of the socket fills up after a few.
    other = Problem(x=(5, 64, 56, 56))
    args, count = [], 0
    for n in range(1, 65):
        args += [*preload.raw_args(Problem(x=(n, 64, 56, 56), type="bf16"), "modes=a", "quiet"), "then"]
        count += 1
    counters = tmp_path / "counters"
    preload.run(preload.command(args[:-1]), preload.env(folder, counters=counters))
    totals = read_counters(counters)[0]
    assert totals["queries"] == count
    assert totals["dropped"] > 0 and totals["datagrams"] + totals["dropped"] == count
    assert preload.raw(other, env=preload.env(folder)) == preload.raw(other)
    listener.close()


@POLICIES
def test_32_threads(preload, folder, winner, tmp_path, policy):
    counters = tmp_path / "counters"
    env = preload.env(folder, policy, counters=counters)
    alone = preload.raw(PROBLEM, "modes=af", env=env)
    lines = preload.raw(PROBLEM, "modes=af", "threads=32", "repeat=10", env=env)
    assert len(lines) == 320
    assert all(line == alone for line in lines)
    assert read_counters(counters)[-1]["served"] == 320


def test_32_threads_while_releases_change_files_are_cut_and_daemons_die(preload, folder, known, winner, tmp_path):
    """The file is copied once, at the first call: what becomes of it and of who listens changes no answer."""
    env = preload.env(folder, counters=tmp_path / "counters")
    alone = preload.raw(PROBLEM, "modes=a", env=env)
    unknown = preload.raw_args(Problem(x=(5, 64, 56, 56)), "modes=a", "threads=32", "repeat=20", "quiet")
    args = [*preload.raw_args(PROBLEM, "modes=a", "threads=32", "repeat=20"), "then", *unknown]
    running = subprocess.Popen(preload.command(args), env=env, stdout=subprocess.PIPE, text=True)
    lines = [running.stdout.readline()]  # so the file was read
    drain = threading.Thread(target=lambda: lines.extend(running.stdout))
    drain.start()
    path, rounds = folder / "current.snapshot", 0
    while running.poll() is None:
        rounds += 1
        preload.write_snapshot(folder, preload.choice(PROBLEM, known[0].field()), release=100 + rounds)
        os.truncate(path, path.stat().st_size // 2)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(folder / "datagrams.sock"))
        (folder / "datagrams.sock").unlink()
        path.unlink()
    drain.join()
    preload.check_reports()
    assert running.returncode == 0 and rounds > 0
    assert len(lines) == 640 and all(json.loads(line) == alone for line in lines)
    assert read_counters(tmp_path / "counters")[-1]["missed"]["no_entry"] == 640


def test_32_threads_find_the_stock_choice_out(preload, tmp_path, winner):
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, preload.choice(PROBLEM, winner.field()))
    lines = preload.raw(PROBLEM, "modes=a", "threads=32", env=preload.env(folder))
    assert len({line["modes"][0]["count"] for line in lines}) == 1
    assert all(ids(line["modes"][0])[0] == winner.id for line in lines)


@pytest.mark.parametrize("threads", [1, 8])
def test_fork(preload, folder, winner, tmp_path, threads):
    counters = tmp_path / "counters"
    env = preload.env(folder, counters=counters)
    lines = preload.raw(PROBLEM, "modes=a", f"threads={threads}", "fork", env=env)
    assert len(lines) == threads + 1
    assert all(ids(line["modes"][0])[0] == winner.id for line in lines)
    child, parent = read_counters(counters)
    assert (child["queries"], parent["queries"]) == (1, threads)


def test_kill_switch_by_file(preload, folder):
    (folder / "disabled").touch()
    assert unchanged(preload, preload.env(folder))


def test_kill_switch_by_file_in_mid_run(preload, folder, winner):
    env = preload.env(folder)
    lines = preload.raw(PROBLEM, "modes=a", "repeat=3", f"touch={folder / 'disabled'}", env=env)
    stock = preload.raw(PROBLEM, "modes=a")
    assert ids(lines[0]["modes"][0])[0] == winner.id
    assert lines[1:] == [stock, stock]


def test_kill_switch_by_variable(preload, folder, tmp_path):
    counters = tmp_path / "counters"
    assert unchanged(preload, preload.env(folder, counters=counters, CONVTUNE_PRELOAD_OFF="1"))
    assert not counters.exists()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("CONVTUNE_PRELOAD_POLICY", "fast", "must be observe, reorder or truncate"),
        ("CONVTUNE_PRELOAD_OFF", "yes", "must be 0 or 1"),
        ("CONVTUNE_PRELOAD_ALLOW", "notes,memory", "must be a list of notes and workspace"),
        ("CONVTUNE_PRELOAD_CANARY", "2", "must be 0 or 1"),
        ("CONVTUNE_PRELOAD_MAX_WORKSPACE", "256", "must be a size such as 256MiB"),
        ("CONVTUNE_SNAPSHOT", "relative/path", "must be an absolute path"),
    ],
)
def test_a_setting_that_is_not_understood_is_named_and_leaves_cudnn_alone(preload, folder, name, value, rule):
    env = preload.env(folder, **{name: value})
    done = preload.run(preload.command(preload.raw_args(PROBLEM, "modes=a")), env)
    assert json.loads(done.stdout) == preload.raw(PROBLEM, "modes=a")
    assert name in done.stderr and rule in done.stderr and done.stderr.count("\n") == 1
