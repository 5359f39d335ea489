"""A limit on the workspace: what an unmodified program is offered keeps to it, cuDNN's own choices too."""

import pytest

from harness.preload import ALL, FORMS, Problem, candidates, ids, read_counters
from test_preload_graph import FRONTEND, frontend

# Its first choice needs more than others of its list do, which the tests find out first.
BACKWARD = Problem(op="bwd_filter")


def limited(preload, limit, folder=None, policy="reorder", **extra):
    return preload.env(folder or preload.folder / "nowhere", policy, CONVTUNE_PRELOAD_MAX_WORKSPACE=f"{limit}B", **extra)


def offered(answer):
    return [c for mode in answer["modes"] for c in mode["configs"]]


def between(known):
    """A limit that cuDNN's first choice exceeds, and something else does not."""
    least = min(c.workspace for c in known)
    assert least < known[0].workspace, "the first choice needs the least of all"
    return known[0].workspace - 1


@pytest.mark.parametrize("policy", ["reorder", "observe"])
def test_nothing_that_is_offered_needs_more(preload, counters, policy):
    stock = preload.stock(BACKWARD, ALL)
    known = [candidates(mode) for mode in stock["modes"]]
    limit = between(known[0])
    got = preload.raw(BACKWARD, ALL, env=limited(preload, limit, policy=policy, counters=counters))
    for mode, own in zip(got["modes"], known, strict=True):
        kept = [c for c in own if c.workspace <= limit]
        assert ids(mode) == [c.id for c in kept]
        assert len(kept) == len(own) or mode["count"] == len(kept)
    assert got["chosen"] == next(c.id for c in known[0] if c.workspace <= limit)
    counted = read_counters(counters)[0]
    assert counted["limited"] >= 1 and counted["over_limit"] == 0


def test_a_limit_that_nothing_exceeds_changes_nothing(preload, counters):
    stock = preload.stock(BACKWARD, ALL)
    most = max(c["workspace"] for c in offered(stock))
    assert preload.raw(BACKWARD, ALL, env=limited(preload, most, counters=counters)) == stock
    counted = read_counters(counters)[0]
    assert (counted["limited"], counted["over_limit"]) == (0, 0)


def test_where_a_modes_own_list_has_nothing_small_enough_it_gives_fallbacks(preload, counters):
    """On an A100 no config of mode A's list for this problem does without workspace; two of FALLBACK's do."""
    problem, profile = Problem(nhwc=False), preload.profile_of("nvidia-a100")
    ask = lambda modes, env=None: candidates(preload.raw(problem, ALL, f"profile={profile}", f"modes={modes}", env=env)["modes"][0])
    assert all(c.workspace > 0 for c in ask("a")), "mode A has one by itself"
    free = [c for c in ask("f") if c.workspace == 0]
    assert free and ask("a", limited(preload, 0, counters=counters)) == free
    counted = read_counters(counters)[0]
    assert (counted["limited"], counted["over_limit"]) == (1, 0)


def test_where_nothing_small_enough_can_be_built_another_modes_is_offered(preload, counters):
    """cuDNN tells the workspace of a config too of which no plan can be built, as some can only with the card."""
    problem = Problem()
    ask = lambda mode, env: candidates(preload.raw(problem, ALL, f"modes={mode}", env=preload.fake_env(env))["modes"][0])
    engine = lambda c: c.id.split(",")[0].removeprefix("eng")
    free = {mode: [c for c in ask(mode, preload.env(None)) if c.workspace == 0] for mode in "af"}
    engines = {engine(c) for c in free["a"]}
    left = {c.id for c in free["f"] if engine(c) not in engines}
    assert free["a"] and left
    env = limited(preload, 0, counters=counters, FAKE_UNBUILT=",".join(engines))
    got = ask("a", env)
    assert got and {c.id for c in got} <= left
    counted = read_counters(counters)[0]
    assert (counted["limited"], counted["over_limit"]) == (1, 0)


def everything(preload, problem):
    """What can be built of what any mode lists."""
    return [c for c in offered(preload.stock(problem, ALL, "modes=abf")) if c.get("workspace", -1) >= 0]


@pytest.mark.parametrize("form", FORMS)
def test_without_any_workspace_what_needs_none_is_left_of_whatever_mode(preload, form):
    """A mode of whose list nothing keeps to the limit gives another mode's."""
    problem = FORMS[form]
    free = {c["id"] for c in everything(preload, problem) if c["workspace"] == 0}
    got = preload.raw(problem, ALL, env=limited(preload, 0))
    for mode, own in zip(got["modes"], preload.stock(problem, ALL)["modes"], strict=True):
        assert mode["configs"]
        assert {c["id"] for c in mode["configs"]} <= free if free else mode == own


def test_stored_winners_keep_to_it_as_well(preload, tmp_path, counters):
    known = preload.known(BACKWARD)
    limit = between(known)
    large = max(known, key=lambda c: c.workspace)
    small = [c for c in known if c.workspace <= limit][-1]
    folder = preload.store(tmp_path / "snapshot", BACKWARD, large, small, stock=large)
    allow = {"CONVTUNE_PRELOAD_ALLOW": "notes,workspace"}
    assert ids(preload.raw(BACKWARD, ALL, env=preload.env(folder, **allow))["modes"][0])[0] == large.id
    got = preload.raw(BACKWARD, ALL, env=limited(preload, limit, folder, **allow))
    assert ids(got["modes"][0]) == [small.id, *[c.id for c in known if c.workspace <= limit]]
    got = preload.raw(BACKWARD, ALL, env=limited(preload, limit, folder, "truncate", counters=counters, **allow))
    assert ids(got["modes"][0])[0] == small.id
    assert all(0 <= c["workspace"] <= limit for c in offered(got))
    assert read_counters(counters)[0]["plans_own"] == 0, "truncate is there to save plans"


def test_graphs_of_a_form_that_is_never_served_keep_to_it(preload, counters):
    unknown = Problem(epilogue="add+bias")
    free = {c["id"] for c in everything(preload, unknown) if c["workspace"] == 0}
    assert free and any(c["workspace"] > 0 for c in everything(preload, unknown)), "the limit would change nothing"
    got = preload.raw(unknown, ALL, env=limited(preload, 0, counters=counters))
    assert offered(got) and {c["id"] for c in offered(got)} <= free
    counted = read_counters(counters)[0]
    assert counted["passed"] == 2 and counted["limited"] >= 1


def test_threads_are_offered_the_same_and_one_plan_is_built_for_it(preload, counters):
    env = limited(preload, between(preload.known(BACKWARD)), counters=counters)
    alone = preload.raw(BACKWARD, "modes=a", env=env)
    lines = preload.raw(BACKWARD, "modes=a", "threads=32", "repeat=5", env=env)
    assert len(lines) == 160 and all(line == alone for line in lines)
    counted = read_counters(counters)[-1]
    # Threads that ask at once may each find out.
    assert counted["limited"] == 160 and 1 <= counted["plans_own"] <= 32
    assert read_counters(counters)[0]["plans_own"] == 1


def test_the_kill_switches_lift_it(preload, tmp_path):
    limit = between(preload.known(BACKWARD))
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "disabled").touch()
    assert preload.raw(BACKWARD, ALL, env=limited(preload, limit, folder)) == preload.stock(BACKWARD, ALL)
    env = limited(preload, limit, CONVTUNE_PRELOAD_OFF="1")
    assert preload.raw(BACKWARD, ALL, env=env) == preload.stock(BACKWARD, ALL)


WORKSPACES = """
print(*[graph.get_workspace_size_plan_at_index(i) for i in range(count)])
"""


def test_the_stock_frontend_package_is_offered_nothing_that_needs_more(preload, tmp_path):
    run = lambda env: [int(size) for size in frontend(preload, tmp_path, BACKWARD, env, FRONTEND + WORKSPACES)[-1].split()]
    stock = run(preload.env(None))
    limit = stock[0] - 1
    assert any(size <= limit for size in stock) and limit >= 0
    got = run(limited(preload, limit))
    print(f"{len(stock)} plans, the first of {stock[0]} bytes; below {limit} bytes {len(got)}, the first of {got[0]}")
    assert got == [size for size in stock if size <= limit]


@pytest.mark.ci
def test_engines_that_are_known_to_be_wrong_are_left_out_of_cudnns_own_list(preload, counters):
    """shipped/6: engine 23 of backward data in three dimensions. cuDNN lists it for an A100, and for two dimensions too."""
    profile = preload.profile_of("nvidia-a100")
    ask = lambda problem, env=None: ids(preload.raw(problem, ALL, f"profile={profile}", "modes=a", env=env)["modes"][0])
    served = lambda policy="reorder", **extra: preload.env(preload.folder / "nowhere", policy, counters=counters, **extra)
    cube = Problem(op="bwd_data", x=(2, 64, 8, 28, 28), w=(64, 64, 3, 3, 3))
    stock = ask(cube)
    kept = [c for c in stock if not c.startswith("eng23")]
    assert len(kept) < len(stock), "cuDNN does not list it any more"
    assert ask(cube, served()) == kept
    assert ask(cube, served("observe")) == stock
    assert ask(cube, served(CONVTUNE_PRELOAD_ERRATA="0")) == stock
    assert [(c["errata"], c["limited"]) for c in read_counters(counters)] == [(1, 0), (0, 0), (0, 0)]
    flat = Problem(op="bwd_data")
    assert ask(flat, served()) == ask(flat)
