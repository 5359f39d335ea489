"""The legacy API: Find, FindEx and Get_v7, against a cuDNN that needs no GPU.

The fake's answers, in Find's order: algorithm 1 (1 MiB), 6 (Winograd, 4 MiB,
default math), 0 (no workspace), 3 (1 KiB, not deterministic), all f16 on tensor
cores unless said otherwise. Algorithm 2 needs 4 KiB, 7 is refused.
"""

import json
import struct

import pytest

from harness.preload import Candidate, Legacy, listening, read_counters

TENSOR_CORE, FFT, NONDETERMINISTIC = 2, 16, 32
OPS = pytest.mark.parametrize("op", ["fwd", "bwd_data", "bwd_filter"])
CALLS = pytest.mark.parametrize("call", ["get", "find", "findex"])


@pytest.fixture
def legacy(preload, tmp_path):
    return Legacy(preload, tmp_path)


def algos(results):
    return [r["algo"] for r in results]


@OPS
@CALLS
def test_the_winner_is_first_and_nothing_is_searched(legacy, op, call):
    legacy.store((0, 1, TENSOR_CORE, 123.0), op=op)
    results, searches = legacy.run(f"call={call}", f"op={op}")
    assert searches == 0
    assert algos(results) == [0, 1, 6, 3]
    first = results[0]
    assert (first["status"], first["memory"], first["deterministic"], first["math"]) == (0, 0, 1, 1)
    assert first["time"] == pytest.approx(0.123 if call != "get" else -1)
    if call != "get":
        assert [r["time"] for r in results] == sorted(r["time"] for r in results)
    counters = json.loads(legacy.counters.read_text())
    assert (counters["legacy_calls"], counters["legacy_served"]) == (1, 1)


@OPS
@CALLS
def test_truncate_gives_the_winner_alone(legacy, op, call):
    legacy.store((0, 1, TENSOR_CORE, 123.0), op=op)
    results, searches = legacy.run(f"call={call}", f"op={op}", policy="truncate")
    assert (algos(results), searches) == ([0], 0)


@CALLS
def test_observe_calls_the_real_function(legacy, call):
    legacy.store((0, 1, TENSOR_CORE, 123.0))
    assert legacy.run(f"call={call}", policy="observe") == legacy.run(f"call={call}", preload=False)


@OPS
@CALLS
def test_a_miss_calls_the_real_function(legacy, op, call):
    legacy.store((0, 1, TENSOR_CORE, 123.0), op=op)
    got = legacy.run(f"call={call}", f"op={op}", "type=f32")
    assert got == legacy.run(f"call={call}", f"op={op}", "type=f32", preload=False)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_requested_count_is_kept_to(legacy, count):
    legacy.store((0, 1, TENSOR_CORE, 123.0))
    results, _ = legacy.run("call=find", f"count={count}")
    assert algos(results) == [0, 1, 6, 3][:count]


def test_no_result_needs_more_than_the_callers_workspace(legacy):
    legacy.store((1, 1, TENSOR_CORE, 1.0), (2, 1, TENSOR_CORE, 2.0))
    more = {"CONVTUNE_PRELOAD_ALLOW": "workspace"}
    results, searches = legacy.run("call=findex", "limit=5000", **more)
    assert (algos(results), searches) == ([2, 0, 3], 0)
    results, _ = legacy.run("call=findex", "limit=2000000")
    assert algos(results)[:2] == [1, 2]
    # Under that limit cuDNN itself chooses one that needs none.
    assert legacy.run("call=findex", "limit=5000") == legacy.run("call=findex", "limit=5000", preload=False)
    # None fits: the caller's own search.
    results, searches = legacy.run("call=findex", "limit=100", **more)
    assert (algos(results), searches) == ([0], 1)


def test_no_result_has_a_math_type_that_the_descriptor_does_not_allow(legacy):
    legacy.store((0, 2, TENSOR_CORE, 1.0), (2, 0, 0, 2.0))
    assert algos(legacy.run("math=2")[0])[:2] == [0, 2]
    assert algos(legacy.run("math=1")[0])[0] == 2
    # FMA allows none of them.
    assert legacy.run("math=3") == legacy.run("math=3", preload=False)


@pytest.mark.parametrize(
    ("notes", "algo", "allow", "first"),
    [
        (TENSOR_CORE, 0, "", True),
        (TENSOR_CORE | FFT, 4, "", False),
        (TENSOR_CORE | NONDETERMINISTIC, 3, "", False),
        (TENSOR_CORE | NONDETERMINISTIC, 3, "notes", True),
        (TENSOR_CORE, 6, "", False),  # 4 MiB against the stock's 1 MiB
        (TENSOR_CORE, 6, "workspace", True),
        (TENSOR_CORE, 7, "", False),  # refused by cuDNN
    ],
)
def test_neutral_against_cudnns_own_first(legacy, notes, algo, allow, first):
    legacy.store((algo, 1, notes, 1.0))
    extra = {"CONVTUNE_PRELOAD_ALLOW": allow} if allow else {}
    results, searches = legacy.run("call=find", **extra)
    assert searches == (0 if first else 1)
    assert (results[0]["algo"] == algo) == first


@OPS
@CALLS
@pytest.mark.parametrize("count", [1, 8])
def test_under_a_limit_on_memory_no_result_needs_more(legacy, op, call, count):
    # Get's order is 1, 0, 6, 3; Find's 1, 6, 0, 3.
    legacy.folder.mkdir()
    limit = {"CONVTUNE_PRELOAD_MAX_WORKSPACE": "2MiB"}
    got, _ = legacy.run(f"call={call}", f"op={op}", f"count={count}", **limit)
    assert algos(got) == [1, 0, 3][:count]
    limit = {"CONVTUNE_PRELOAD_MAX_WORKSPACE": "1023B"}
    got, _ = legacy.run(f"call={call}", f"op={op}", f"count={count}", **limit)
    assert algos(got) == [0]
    counted = read_counters(legacy.counters)[-1]
    assert (counted["limited"], counted["over_limit"]) == (1, 0)


@CALLS
def test_a_limit_on_memory_holds_for_stored_winners_and_what_comes_behind_them(legacy, call):
    legacy.store((1, 1, TENSOR_CORE, 1.0), (2, 1, TENSOR_CORE, 2.0))
    assert algos(legacy.run(f"call={call}")[0])[:2] == [1, 2]
    more = {"CONVTUNE_PRELOAD_ALLOW": "workspace"}
    results, _ = legacy.run(f"call={call}", CONVTUNE_PRELOAD_MAX_WORKSPACE="4096B", **more)
    assert algos(results) == [2, 0, 3]


def test_a_limit_on_memory_does_not_hide_from_the_daemon_what_was_found(legacy, tmp_path):
    legacy.folder.mkdir()
    with listening(legacy.folder) as listener:
        legacy.run("call=find", CONVTUNE_PRELOAD_MAX_WORKSPACE="0")
        told = [listener.recv(4096) for _ in range(2)]  # a miss, and the results
    assert struct.unpack_from("<I", told[1], 448)[0] == 4


def test_a_graph_candidate_is_none_of_the_legacy_api(legacy):
    machine = legacy.machine
    text = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
    machine.write_snapshot(
        legacy.folder, machine.choice(text, Candidate("eng45", 0, 0).field(), environment=legacy.environment())
    )
    assert legacy.run("call=find") == legacy.run("call=find", preload=False)
    assert read_counters(legacy.counters)[0]["missed"]["no_entry"] == 1


def test_the_kill_switch(legacy):
    legacy.store((0, 1, TENSOR_CORE, 123.0))
    (legacy.folder / "disabled").touch()
    assert legacy.run("call=find") == legacy.run("call=find", preload=False)
