"""Whatever goes wrong, the program does what it would have done by itself."""

import json
import os
import subprocess
import threading

import pytest

from harness.preload import ALL, UNREADABLE, Candidate, Problem, ids, listening, neutral, read_counters

pytestmark = pytest.mark.ci

PROBLEM = Problem()
OTHER = Problem(x=(5, 64, 56, 56))  # nobody tuned it
POLICIES = pytest.mark.parametrize("policy", ["reorder", "truncate"])


@pytest.fixture
def known(preload):
    return preload.known(PROBLEM)


@pytest.fixture
def winner(known):
    return neutral(known)[0]


@pytest.fixture
def folder(preload, tmp_path, known, winner):
    """A folder with a good snapshot."""
    return preload.store(tmp_path / "snapshot", PROBLEM, winner, stock=known[0])


def unchanged(preload, env, *more):
    return preload.raw(PROBLEM, ALL, *more, env=env) == preload.stock(PROBLEM, ALL, *more)


def test_the_good_snapshot_is_served(preload, folder, winner):
    assert preload.raw(PROBLEM, ALL, env=preload.env(folder))["chosen"] == winner.id


def test_a_query_with_its_fallback_is_one_miss_and_fallback_alone_is_one_too(preload, tmp_path):
    for modes, missed, fallbacks in (("af", 1, 1), ("bf", 1, 1), ("f", 1, 0), ("ab", 2, 0)):
        counters = tmp_path / modes
        preload.raw(PROBLEM, f"modes={modes}", env=preload.env(tmp_path / "nowhere", counters=counters))
        counted = read_counters(counters)[0]
        assert (counted["missed"]["no_snapshot"], counted["fallbacks"]) == (missed, fallbacks), modes


@pytest.mark.parametrize("way", UNREADABLE)
def test_a_snapshot_that_cannot_be_read(preload, folder, counters, way):
    spoil, said = UNREADABLE[way]
    spoil(folder / "current.snapshot")
    assert unchanged(preload, preload.env(folder, counters=counters))
    assert read_counters(counters)[0]["snapshot"] == said


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
def test_for_another_environment(preload, tmp_path, counters, known, winner, environment):
    other = environment.format(cudnn=preload.cudnn_version)
    folder = preload.store(tmp_path / "snapshot", PROBLEM, winner, stock=known[0], environment=other)
    assert unchanged(preload, preload.env(folder, counters=counters))
    counted = read_counters(counters)[0]
    assert (counted["queries"], counted["missed"]["no_environment"], counted["fallbacks"]) == (2, 1, 1)


@POLICIES
@pytest.mark.parametrize(
    "unknown", ["eng9999", "eng45,k2=99999", "eng62,k63=1", "eng0,k2=1,k3=1,k4=1"]
)
def test_an_engine_or_knob_that_does_not_exist(preload, tmp_path, counters, known, unknown, policy):
    folder = preload.store(tmp_path / "snapshot", PROBLEM, Candidate(unknown, 0, 0), stock=known[0])
    assert unchanged(preload, preload.env(folder, policy, counters=counters))
    assert read_counters(counters)[0]["missed"]["refused"] >= 1


def test_filters_that_exclude_the_winner_leave_the_stock_program(preload, tmp_path):
    """f32 where TF32 is switched off: all with the tensor-core note go."""
    problem = Problem(type="f32")
    stock = preload.raw(problem, ALL, "deny=2")
    known = preload.known(problem)
    winner = next(c for c in known[1:] if c.notes == 2 and c.workspace <= known[0].workspace)
    folder = preload.store(tmp_path / "snapshot", problem, winner, stock=known[0])
    got = preload.raw(problem, ALL, "deny=2", env=preload.env(folder, "reorder"))
    assert (got["chosen"], got["kept"]) == (stock["chosen"], stock["kept"])
    # A cut list keeps the first of the stock's without notes, which is what the
    # stock program's filter comes to.
    for modes in ("a", "af"):
        cut = preload.raw(problem, ALL, "deny=2", f"modes={modes}", env=preload.env(folder, "truncate"))
        alone = preload.raw(problem, ALL, "deny=2", f"modes={modes}")
        assert cut["chosen"] == alone["chosen"]


@POLICIES
def test_a_memory_filter_that_excludes_the_winner(preload, tmp_path, policy):
    problem = Problem(op="bwd_filter")
    largest = max(preload.known(problem), key=lambda c: c.workspace)
    assert largest.workspace > 0
    folder = preload.store(tmp_path / "snapshot", problem, largest, stock=largest)
    limit = f"max-workspace={largest.workspace - 1}"
    got = preload.raw(problem, ALL, limit, env=preload.env(folder, policy))
    assert got["chosen"] not in ("", largest.id)
    if policy == "reorder":
        assert got["chosen"] == preload.raw(problem, ALL, limit)["chosen"]


@pytest.mark.parametrize("killed", [False, True])
def test_nobody_listens(preload, folder, counters, winner, killed):
    """The socket of a daemon that was killed is still there, and so is what it published."""
    if killed:
        listening(folder).close()
    env = preload.env(folder, counters=counters)
    assert preload.raw(OTHER, env=env) == preload.raw(OTHER)
    assert read_counters(counters)[0]["dropped"] >= 1
    assert preload.raw(PROBLEM, ALL, env=env)["chosen"] == winner.id


def test_a_full_socket_never_blocks(preload, folder, counters):
    # Nobody reads: the queue of the socket fills up after a few.
    args, count = [], 64
    for n in range(1, count + 1):
        args += [*preload.raw_args(Problem(x=(n, 64, 56, 56), type="bf16"), "modes=a", "quiet"), "then"]
    with listening(folder):
        preload.run(preload.command(args[:-1]), preload.env(folder, counters=counters))
        totals = read_counters(counters)[0]
        assert totals["queries"] == count
        assert totals["dropped"] > 0 and totals["datagrams"] + totals["dropped"] == count
        assert preload.raw(OTHER, env=preload.env(folder)) == preload.raw(OTHER)


@POLICIES
def test_32_threads(preload, folder, counters, policy):
    env = preload.env(folder, policy, counters=counters)
    alone = preload.raw(PROBLEM, "modes=af", env=env)
    lines = preload.raw(PROBLEM, "modes=af", "threads=32", "repeat=10", env=env)
    assert len(lines) == 320
    assert all(line == alone for line in lines)
    assert read_counters(counters)[-1]["served"] == 320


def test_32_threads_while_releases_change_files_are_cut_and_daemons_die(preload, folder, known, counters):
    """The file is copied once, at the first call: what becomes of it and of who listens changes no answer."""
    env = preload.env(folder, counters=counters)
    alone = preload.raw(PROBLEM, "modes=a", env=env)
    unknown = preload.raw_args(OTHER, "modes=a", "threads=32", "repeat=20", "quiet")
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
        listening(folder).close()
        (folder / "datagrams.sock").unlink()
        path.unlink()
    drain.join()
    preload.check_reports()
    assert running.returncode == 0 and rounds > 0
    assert len(lines) == 640 and all(json.loads(line) == alone for line in lines)
    assert read_counters(counters)[-1]["missed"]["no_entry"] == 640


def test_32_threads_find_the_stock_choice_out(preload, tmp_path, winner):
    folder = preload.store(tmp_path / "snapshot", PROBLEM, winner)
    lines = preload.raw(PROBLEM, "modes=a", "threads=32", env=preload.env(folder))
    assert len({line["modes"][0]["count"] for line in lines}) == 1
    assert all(ids(line["modes"][0])[0] == winner.id for line in lines)


@pytest.mark.parametrize("threads", [1, 8])
def test_fork(preload, folder, winner, counters, threads):
    env = preload.env(folder, counters=counters)
    lines = preload.raw(PROBLEM, "modes=a", f"threads={threads}", "fork", env=env)
    assert len(lines) == threads + 1
    assert all(ids(line["modes"][0])[0] == winner.id for line in lines)
    child, parent = read_counters(counters)
    assert (child["queries"], parent["queries"]) == (1, threads)


def test_kill_switch_by_file_in_mid_run(preload, folder, winner):
    env = preload.env(folder)
    lines = preload.raw(PROBLEM, "modes=a", "repeat=3", f"touch={folder / 'disabled'}", env=env)
    stock = preload.raw(PROBLEM, "modes=a")
    assert ids(lines[0]["modes"][0])[0] == winner.id
    assert lines[1:] == [stock, stock]


def test_kill_switch_by_variable(preload, folder, counters):
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
