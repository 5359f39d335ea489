"""Parts of the study that need no card: profiles, texts, datagrams, records, steps, tables."""

import xml.etree.ElementTree as tree

import pytest

from harness import study  # noqa: F401

import datagrams
import kernels
import observed
import problem
import records
import stats
import steps
import svg
import tables
import workloads

TICK = "void at::native::erfinv_kernel_cuda"
TEXT = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"


def profile_of(*runs):
    """Events of launches: lists of (begin, duration) in ns between two ticks, with a flush before each."""
    events, now = [], 1000
    for run in runs:
        events += [("flush", now, 500), (TICK, now + 600, 10)]
        events += [("conv", now + 700 + begin, duration) for begin, duration in run]
        events.append((TICK, now + 5000, 10))
        now += 10000
    return events


def test_launches_are_told_apart_by_ticks():
    events = profile_of([(0, 1000)], [(0, 300), (400, 600)], [])
    assert kernels.split(events[::-1], 3) == [(1.0, 1.0, 1), (1.0, 0.9, 2), None]


def test_a_profile_that_lost_events_is_refused():
    events = profile_of([(0, 1000)], [(0, 1000)])
    with pytest.raises(kernels.LostEvents, match="3 ticks in the profile, 4 were launched"):
        kernels.split(events[:-1], 2)


def test_every_round_runs_everybody_in_another_order():
    orders = [tuple(kernels.order(5, r)) for r in range(10)]
    assert all(sorted(order) == list(range(5)) for order in orders)
    assert len(set(orders)) == 10
    assert {order[0] for order in orders} == set(range(5))


def test_problems_are_read_as_the_grammar_has_them():
    parsed = problem.parse("bwd_data,x=4x1x161x700,w=32x1x5x20,pad=1:2x0,stride=2,nhwc,f16")
    assert (parsed.pad_low, parsed.pad_high, parsed.stride) == ((1, 0), (2, 0), (2, 2))
    assert parsed.y_dims == (4, 32, 80, 341) and parsed.nhwc and parsed.dtype == "f16"
    line = problem.parse("fwd,x=16x8x100,w=4x8x3,pad=1,stride=2")
    assert (line.x_dims, line.pad_low, line.stride, line.y_dims) == ((16, 8, 1, 100), (0, 1), (1, 2), (16, 4, 1, 50))
    assert problem.parse("fwd,x=1x8x4x4,w=8x1x3x3,groups=8,pad=1").flops == 2 * 8 * 16 * 9
    with pytest.raises(ValueError, match="no problem with epilogue"):
        problem.parse(TEXT + ",epilogue=bias")


def test_strides():
    assert problem.packed_strides((2, 3, 4, 5), True) == (60, 1, 15, 3)
    assert problem.packed_strides((2, 3, 4, 5), False) == (60, 20, 5, 1)


def test_candidates_keep_their_text():
    for text in ("graph:eng28", "graph:eng47,k2=1,k13=0,k14=4"):
        assert problem.candidate_text(*problem.parse_candidate(text)[1:]) == text
    assert problem.parse_candidate("legacy:algo1,math2") == ("legacy", 1, 2)
    with pytest.raises(ValueError, match="no candidate"):
        problem.parse_candidate("eng1")


def test_a_datagram_says_which_plan_of_which_problem():
    text = "bwd_filter,x=8x64x28x28,w=128x32x3x3,pad=1,stride=2,groups=2,nhwc,bf16"
    data = datagrams.plan(text, "graph:eng47,k2=1,k13=0")
    kind, found, candidate = observed.parse(data)
    assert (kind, candidate) == ("plan", "graph:eng47,k2=1,k13=0")
    assert found == observed.signature(problem.parse(text))
    assert found != observed.signature(problem.parse(text.replace("nhwc", "nchw")))
    assert observed.parse(data[:-1]) is None and observed.parse(b"XXXX" + data[4:]) is None


def test_nothing_that_is_sent_is_lost():
    """More datagrams than a socket's queue holds."""
    with observed.Listener() as listener:
        datagrams.send(listener.folder, {f"fwd,x={n}x8x9x9,w=8x8x3x3": f"graph:eng{n}" for n in range(1, 101)})
    assert [text for _, _, text in listener.found] == [f"graph:eng{n}" for n in range(1, 101)]


def test_records_outlive_a_cut_line(tmp_path):
    first = records.Records(tmp_path)
    first.begin({"simulated": True})
    first.finish("a", [{"kind": "x", "value": 1}], 2.0)
    with open(first.path, "ab") as file:
        file.write(b'{"kind":"x","step":"b","va')
    second = records.Records(tmp_path)
    assert (second.run, list(second.done)) == (1, ["a"])
    second.begin({"simulated": True})
    second.finish("b", [{"kind": "x", "value": 2}], 1.0)
    third = records.Records(tmp_path)
    assert [r["value"] for r in third.of("x")] == [1, 2] and third.of("x", value=2)[0]["run"] == 2


def test_records_of_a_step_that_did_not_end_do_not_count(tmp_path):
    log = records.Records(tmp_path)
    log.begin({"simulated": True})
    log._append([{"kind": "x", "step": "a", "run": 1}])
    assert log.of("x") == []


def no_lab_steps(log, fail=()):
    def make(name, needs=()):
        def run(lab, found, until):
            log.append(name)
            if name in fail:
                raise RuntimeError("broken")
            return [{"kind": "x"}], True

        return steps.Step(name, 0.0, run, needs)

    return [make("p/a"), make("p/b", ("p/a",)), make("p/c", ("p/b",)), make("p/d")]


def test_steps_run_in_order_once(tmp_path):
    log, done = [], records.Records(tmp_path)
    done.begin({"simulated": True})
    assert steps.run_all(no_lab_steps(log), None, done, 60, lambda _: None) == 4
    assert steps.run_all(no_lab_steps(log), None, done, 60, lambda _: None) == 0
    assert log == ["p/a", "p/b", "p/c", "p/d"]


def test_a_step_that_fails_is_tried_in_two_runs_and_keeps_others_from_nothing_but_what_needs_it(tmp_path):
    log, done = [], records.Records(tmp_path)
    done.begin({"simulated": True})
    for _ in range(3):
        steps.run_all(no_lab_steps(log, fail=("p/b",)), None, done, 60, lambda _: None)
    assert log == ["p/a", "p/b", "p/d", "p/b"]
    assert [f["reason"] for f in done.failures["p/b"]] == ["RuntimeError: broken"] * 2


def test_no_step_is_begun_that_is_not_expected_to_end_in_time(tmp_path):
    done, said = records.Records(tmp_path), []
    done.begin({"simulated": True})
    done.finish("p/long/0", [], 100.0)
    long = steps.Step("p/long/1", 1.0, lambda *_: pytest.fail("begun"))
    short = steps.Step("p/short/0", 1.0, lambda *_: ([], True))
    assert steps.run_all([long, short], None, done, 50, said.append) == 1
    assert "p/long/1, is expected to take 100 s" in said[-1]


def test_an_unfinished_step_goes_on_in_the_next_run(tmp_path):
    done, answers = records.Records(tmp_path), [([], False), ([{"kind": "x"}], True)]
    done.begin({"simulated": True})
    step = steps.Step("p/a", 0.0, lambda *_: answers.pop(0))
    assert steps.run_all([step], None, done, 60, lambda _: None) == 0
    assert steps.run_all([step], None, done, 60, lambda _: None) == 1
    assert len(done.of("x")) == 1 and not done.failures


def test_deepbench_rows_become_problems(shared_data):
    sets = workloads.shape_sets(shared_data)
    assert len(sets) == 15
    # 94 and 107 rows, of which some repeat.
    assert (len(sets["deepbench_train-fwd-f16"]), len(sets["deepbench_server-fwd-f32"])) == (90, 103)
    assert sets["deepbench_train-bwd_data-f16"][0] == "bwd_data,x=4x1x161x700,w=32x1x5x20,pad=0x0,stride=2x2,nhwc,f16"
    for texts in sets.values():
        for text in texts:
            assert min(problem.parse(text).y_dims) >= 1


def test_a_spread_takes_from_all_of_a_list():
    assert workloads.spread(list(range(100)), 4) == [0, 25, 50, 75]
    assert workloads.spread([1, 2], 4) == [1, 2]


def test_a_plot_is_well_formed_and_has_every_point():
    points = [("a & b", stats.Estimate(0.9, 0.85, 0.95, 10)), ("c", stats.Estimate(1.2, 1.2, 1.2, 1))]
    root = tree.fromstring(svg.intervals("title <1>", "ratio", points))
    space = "{http://www.w3.org/2000/svg}"
    circles = [float(c.get("cx")) for c in root.iter(f"{space}circle")]
    assert len(circles) == 2 and circles[0] < circles[1]
    assert {"a & b", "c", "0.900", "1.200"} <= {t.text for t in root.iter(f"{space}text")}


def test_tables_are_markdown():
    assert "| a\\|b | 1 |" in tables.Table("t", "n", ["x", "y"], [["a|b", 1]]).markdown()
    assert "Nothing measured yet." in tables.Table("t", "n", ["x"], []).markdown()
    assert [tables.number(v) for v in (1234.5, 0.012345, 0, None)] == ["1234", "0.0123", "0", ""]
    assert tables.ratio(stats.Estimate(1.0, 0.9, 1.1, 5)) == "1.000 [0.900, 1.100]"
    assert tables.ratio(stats.Estimate(1.0, 1.0, 1.0, 1)) == "1.000 (n=1)"


def test_time_limits_of_the_plan():
    """No step is guessed to be longer than a run of ten minutes."""
    import part_networks
    import part_serving
    import part_shapes

    for part in (part_networks, part_serving, part_shapes):
        made = part.steps({"data": None})
        names = {s.name for s in made}
        assert len(names) == len(made)
        assert all(s.estimate_s < 540 and set(s.needs) <= names for s in made)
