"""What a program tells the daemon: misses, and what it found out by itself."""

import struct

import pytest

from harness.preload import ALL, Candidate, Problem, listening, neutral, read_counters

HEADER = struct.Struct("<4sHHII112s320s")
MISS, PLAN, LEGACY = 1, 2, 3
NO_ENTRY, NO_ENVIRONMENT, NO_SNAPSHOT, NOT_NEUTRAL, REFUSED = range(1, 6)


def received(listener):
    """(kind, environment bytes, problem bytes, rest) of each datagram."""
    got = []
    while True:
        try:
            data = listener.recv(4096)
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
    folder.mkdir()
    with listening(folder) as listener:
        listener.setblocking(False)
        yield listener


def misses(listener):
    return [struct.unpack("<II", rest) for kind, _, _, rest in received(listener) if kind == MISS]


def store_for_fake(preload, folder, *winners, stock):
    """For the environment that programs are in with preload.fake_env."""
    environment = preload.environment.replace("lib=full", "lib=graph_jit_only")
    preload.store(folder, Problem(), *winners, stock=stock, environment=environment)


def test_a_miss_without_a_snapshot(preload, folder, listener):
    preload.raw(Problem(), "modes=a", env=preload.env(folder))
    assert misses(listener) == [(NO_SNAPSHOT, 1)]


def test_a_miss_says_which_problem_and_environment(preload, folder, listener):
    preload.write_snapshot(folder, f"environment\t{preload.environment}")
    problem = Problem(x=(7, 128, 28, 28), w=(128, 4, 3, 3), type="bf16")
    preload.raw(problem, "modes=a", env=preload.env(folder))
    ((kind, environment, key, rest),) = received(listener)
    assert kind == MISS
    assert struct.unpack("<II", rest) == (NO_ENTRY, 1)
    assert environment[16:80].rstrip(b"\0") == b"nvidia-h200"
    assert environment[0] == 1 and environment[2:4] == b"\x09\x00"
    assert tuple(key[:8]) == (1, 4, 4, 2, 0, 1, 2, 0)
    assert struct.unpack_from("<q5q5q", key, 16) == (32, 7, 128, 28, 28, 0, 128, 4, 3, 3, 0)


def test_reasons(preload, folder, listener):
    known = preload.known(Problem())
    for candidate, expected in ((Candidate(known[1].id, 32, 0), NOT_NEUTRAL), (Candidate("eng9999", 0, 0), REFUSED)):
        preload.store(folder, Problem(), candidate, stock=known[0])
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
    assert received(listener) == []


def observed(listener):
    """(engine, knobs, workspace, executions, plans built) of the plans that were told."""
    plans = []
    for kind, _, _, rest in received(listener):
        if kind == PLAN:
            engine, knob_count, _, _, built, workspace, executions = struct.unpack_from("<qIIIIqQ", rest)
            knobs = [struct.unpack_from("<iIq", rest, 40 + 16 * i)[::2] for i in range(knob_count)]
            name = f"eng{engine}" + "".join(f",k{type}={value}" for type, value in knobs)
            plans.append((name, workspace, executions, built))
    return plans


@pytest.mark.parametrize("stored", [False, True], ids=["missing", "known"])
def test_observe_tells_of_the_plan_that_a_program_settles_on(preload, folder, listener, stored):
    known = preload.known(Problem())
    if stored:
        store_for_fake(preload, folder, known[2], stock=known[0])
    env = preload.fake_env(preload.env(folder, "observe"))
    got = preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert got["modes"][0] == preload.stock(Problem(), ALL)["modes"][0]
    ((name, workspace, executions, built),) = observed(listener)
    assert (name, workspace) == (known[-1].id, known[-1].workspace)
    assert built == len(known) and executions == 16


@pytest.mark.parametrize("args", [("build=first", "execute=30"), (ALL, "execute=5")], ids=["no search", "too few executions"])
def test_what_no_program_settled_on_teaches_nothing(preload, folder, listener, args):
    preload.raw(Problem(), "modes=a", *args, env=preload.fake_env(preload.env(folder, "observe")))
    assert observed(listener) == []


def capture_env(preload, env, first, last):
    """The executions from first to last, counted from 1, go into a CUDA graph."""
    driver = preload.reachable("fakes-cuda/libcuda.so.1")
    return {**preload.fake_env(env), "LD_PRELOAD": f"{preload.preload}:{driver}", "FAKE_CAPTURE": f"{first}-{last}"}


def test_a_plan_that_goes_into_a_cuda_graph_is_what_a_program_settled_on(preload, folder, listener, counters):
    known = preload.known(Problem())
    search = 2 * len(known)
    env = capture_env(preload, preload.env(folder, "observe", counters=counters), search + 3, search + 6)
    preload.raw(Problem(), ALL, "modes=a", "execute=6", env=env)
    ((name, workspace, executions, _),) = observed(listener)
    assert (name, workspace, executions) == (known[-1].id, known[-1].workspace, 4)
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["captured"], totals["learned"]) == (search + 2, 4, 1)


def test_a_plan_that_was_captured_right_after_the_search_teaches_nothing(preload, folder, listener, counters):
    search = 2 * len(preload.known(Problem()))
    env = capture_env(preload, preload.env(folder, "observe", counters=counters), search + 1, search + 30)
    preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert observed(listener) == []
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["captured"]) == (search, 30)


@pytest.mark.parametrize(("captured", "eager"), [(0, 32), (10, 22)], ids=["eager", "in a CUDA graph"])
def test_a_served_plan_teaches_nothing_and_is_counted(preload, folder, listener, counters, captured, eager):
    known = preload.known(Problem())
    store_for_fake(preload, folder, neutral(known)[0], stock=known[0])
    env = preload.env(folder, "truncate", counters=counters)
    env = capture_env(preload, env, 11, 10 + captured) if captured else preload.fake_env(env)
    preload.raw(Problem(), ALL, "modes=a", "execute=30", env=env)
    assert observed(listener) == []
    totals = read_counters(counters)[0]
    assert (totals["executions"], totals["executions_served"]) == (eager, eager)
    assert (totals["captured"], totals["captured_served"]) == (captured, captured)


@pytest.mark.parametrize("call", ["find", "findex"])
def test_legacy_results_are_told_once(preload, folder, listener, call, counters):
    env = preload.env(folder, "observe", counters=counters)
    preload.run(preload.command([f"call={call}", "repeat=3"], "convtune-legacy-calls"), env)
    told = [rest for kind, _, _, rest in received(listener) if kind == LEGACY]
    assert len(told) == 1
    (count,) = struct.unpack_from("<I", told[0])
    results = [struct.unpack_from("<iifIq", told[0], 8 + 24 * i) for i in range(count)]
    assert results == [(1, 1, 500.0, 1, 1 << 20), (6, 0, 750.0, 1, 1 << 22), (0, 1, 1000.0, 1, 0), (3, 1, 2000.0, 0, 1024)]
    assert read_counters(counters)[0]["learned"] == 1


def test_heuristic_legacy_calls_teach_nothing(preload, folder, listener):
    env = preload.env(folder, "observe")
    preload.run(preload.command(["call=get"], "convtune-legacy-calls"), env)
    assert [kind for kind, *_ in received(listener)] == [MISS]
