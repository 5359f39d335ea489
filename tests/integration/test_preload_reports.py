"""What a program tells the daemon: misses, and what it found out by itself."""

import socket
import struct

import pytest

from harness.preload import ALL, Candidate, Problem, candidates, read_counters, stock_field

HEADER = struct.Struct("<4sHHII112s320s")
MISS, PLAN, LEGACY = 1, 2, 3
NO_ENTRY, NO_ENVIRONMENT, NO_SNAPSHOT, NOT_NEUTRAL, REFUSED = range(1, 6)


class Listener:
    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "datagrams.sock"))
        self.socket.setblocking(False)

    def received(self):
        """(kind, environment bytes, problem bytes, rest) of each datagram."""
        got = []
        while True:
            try:
                data = self.socket.recv(4096)
            except BlockingIOError:
                return got
            magic, version, kind, size, _, environment, problem = HEADER.unpack_from(data)
            assert (magic, version, size) == (b"CVTD", 1, len(data))
            got.append((kind, environment, problem, data[HEADER.size :]))


@pytest.fixture
def folder(short_dir):
    return short_dir / "snapshot"


@pytest.fixture
def listener(folder):
    listener = Listener(folder)
    yield listener
    listener.socket.close()


def misses(listener):
    return [struct.unpack("<II", rest) for kind, _, _, rest in listener.received() if kind == MISS]


def fake_env(preload, env):
    """Execution needs a GPU: a cuDNN that is real but for that.

    Beside it lies no library of precompiled engines, which makes it another
    library configuration: see fake_choice.
    """
    return {**env, "LD_LIBRARY_PATH": str(preload.lib / "fakes-cudnn")}


def fake_choice(preload, *args):
    return preload.choice(*args, environment=preload.environment.replace("lib=full", "lib=graph_jit_only"))


def test_a_miss_without_a_snapshot(preload, folder, listener):
    preload.raw(Problem(), "modes=a", env=preload.env(folder))
    assert misses(listener) == [(NO_SNAPSHOT, 1)]


def test_a_miss_says_which_problem_and_environment(preload, folder, listener):
    preload.write_snapshot(folder, f"environment\t{preload.environment}")
    problem = Problem(x=(7, 128, 28, 28), w=(128, 4, 3, 3), type="bf16")
    preload.raw(problem, "modes=a", env=preload.env(folder))
    ((kind, environment, key, rest),) = listener.received()
    assert kind == MISS
    assert struct.unpack("<II", rest) == (NO_ENTRY, 1)
    assert environment[16:80].rstrip(b"\0") == b"nvidia-h200"
    assert environment[0] == 1 and environment[2:4] == b"\x09\x00"
    assert tuple(key[:8]) == (1, 4, 4, 2, 0, 1, 2, 0)
    assert struct.unpack_from("<q5q5q", key, 16) == (32, 7, 128, 28, 28, 0, 128, 4, 3, 3, 0)


def test_reasons(preload, folder, listener):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    stock = stock_field(known[0])
    for candidate, expected in ((Candidate(known[1].id, 32, 0), NOT_NEUTRAL), (Candidate("eng9999", 0, 0), REFUSED)):
        preload.write_snapshot(folder, preload.choice(Problem(), candidate.field(), stock))
        preload.raw(Problem(), "modes=a", env=preload.env(folder))
        assert misses(listener) == [(expected, 1)]
    preload.write_snapshot(folder)
    preload.raw(Problem(), "modes=a", env=preload.env(folder))
    assert misses(listener) == [(NO_ENVIRONMENT, 1)]


def test_repeated_misses_are_told_in_powers_of_two(preload, folder, listener):
    preload.raw(Problem(), "modes=a", "repeat=20", env=preload.env(folder))
    told = misses(listener)
    assert [count for _, count in told] == [1, 1, 2, 4, 8]


def test_nothing_is_told_where_that_is_switched_off(preload, folder, listener):
    preload.raw(Problem(), env=preload.env(folder, CONVTUNE_PRELOAD_REPORT="0"))
    assert listener.received() == []


def observed(listener):
    """(engine, knobs, workspace, executions, plans built) of the plans that were told."""
    plans = []
    for kind, _, _, rest in listener.received():
        if kind == PLAN:
            engine, knob_count, _, _, built, workspace, executions = struct.unpack_from("<qIIIIqQ", rest)
            knobs = [struct.unpack_from("<iIq", rest, 40 + 16 * i)[::2] for i in range(knob_count)]
            name = f"eng{engine}" + "".join(f",k{type}={value}" for type, value in knobs)
            plans.append((name, workspace, executions, built))
    return plans


@pytest.mark.parametrize("stored", [False, True], ids=["missing", "known"])
def test_observe_tells_of_the_plan_that_a_program_settles_on(preload, folder, listener, stored):
    stock = preload.stock(Problem(), ALL)
    known = candidates(stock["modes"][0])
    if stored:
        preload.write_snapshot(folder, fake_choice(preload, Problem(), known[2].field(), stock_field(known[0])))
    env = fake_env(preload, preload.env(folder, "observe"))
    got = preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert got["modes"][0] == stock["modes"][0]
    ((name, workspace, executions, built),) = observed(listener)
    assert (name, workspace) == (known[-1].id, known[-1].workspace)
    assert built == len(known) and executions == 16


def test_a_program_that_does_not_search_teaches_nothing(preload, folder, listener):
    env = fake_env(preload, preload.env(folder, "observe"))
    preload.raw(Problem(), "build=first", "modes=a", "execute=30", env=env)
    assert observed(listener) == []


def test_too_few_executions_teach_nothing(preload, folder, listener):
    env = fake_env(preload, preload.env(folder, "observe"))
    preload.raw(Problem(), ALL, "modes=a", "execute=5", env=env)
    assert observed(listener) == []


def test_a_served_plan_teaches_nothing_and_is_counted(preload, folder, listener, tmp_path):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    winner = next(c for c in known[1:] if c.workspace <= known[0].workspace)
    preload.write_snapshot(folder, fake_choice(preload, Problem(), winner.field(), stock_field(known[0])))
    counters = tmp_path / "counters"
    env = fake_env(preload, preload.env(folder, "truncate", counters=counters))
    preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert observed(listener) == []
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["executions_served"]) == (32, 32)


def capture_env(preload, env, first, last):
    """The executions from first to last, counted from 1, go into a CUDA graph."""
    driver = preload.reachable("fakes-cuda/libcuda.so.1")
    return {**fake_env(preload, env), "LD_PRELOAD": f"{preload.preload}:{driver}", "FAKE_CAPTURE": f"{first}-{last}"}


def test_a_plan_that_goes_into_a_cuda_graph_is_what_a_program_settled_on(preload, folder, listener, tmp_path):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    search, counters = 2 * len(known), tmp_path / "counters"
    env = capture_env(preload, preload.env(folder, "observe", counters=counters), search + 3, search + 6)
    preload.raw(Problem(), ALL, "modes=a", "execute=6", env=env)
    ((name, workspace, executions, _),) = observed(listener)
    assert (name, workspace, executions) == (known[-1].id, known[-1].workspace, 4)
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["captured"], totals["learned"]) == (search + 2, 4, 1)


def test_a_plan_that_was_captured_right_after_the_search_teaches_nothing(preload, folder, listener, tmp_path):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    search, counters = 2 * len(known), tmp_path / "counters"
    env = capture_env(preload, preload.env(folder, "observe", counters=counters), search + 1, search + 30)
    preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert observed(listener) == []
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["captured"]) == (search, 30)


def test_a_served_plan_in_a_cuda_graph_is_counted_and_teaches_nothing(preload, folder, listener, tmp_path):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    winner = next(c for c in known[1:] if c.workspace <= known[0].workspace)
    preload.write_snapshot(folder, fake_choice(preload, Problem(), winner.field(), stock_field(known[0])))
    counters = tmp_path / "counters"
    env = capture_env(preload, preload.env(folder, "truncate", counters=counters), 11, 20)
    preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert observed(listener) == []
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["executions_served"]) == (22, 22)
    assert (totals["captured"], totals["captured_served"]) == (10, 10)


@pytest.mark.parametrize("call", ["find", "findex"])
def test_legacy_results_are_told_once(preload, folder, listener, call, tmp_path):
    counters = tmp_path / "counters"
    env = preload.env(folder, "observe", counters=counters)
    preload.run(preload.command([f"call={call}", "repeat=3"], "convtune-legacy-calls"), env)
    told = [rest for kind, _, _, rest in listener.received() if kind == LEGACY]
    assert len(told) == 1
    (count,) = struct.unpack_from("<I", told[0])
    results = [struct.unpack_from("<iifIq", told[0], 8 + 24 * i) for i in range(count)]
    assert results == [(1, 1, 500.0, 1, 1 << 20), (6, 0, 750.0, 1, 1 << 22), (0, 1, 1000.0, 1, 0), (3, 1, 2000.0, 0, 1024)]
    assert read_counters(counters)[0]["learned"] == 1


def test_heuristic_legacy_calls_teach_nothing(preload, folder, listener):
    env = preload.env(folder, "observe")
    preload.run(preload.command(["call=get"], "convtune-legacy-calls"), env)
    assert [kind for kind, *_ in listener.received()] == [MISS]
