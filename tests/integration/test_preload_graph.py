"""Programs of the graph API get the stored winners, first or alone."""

import sys

import pytest

from harness.preload import ALL, FORMS, Problem, candidates, ids, neutral, read_counters, stock_field


def middle_winner(known):
    """A neutral candidate that cuDNN itself does not list first."""
    found = neutral(known)
    return found[len(found) // 2]


@pytest.fixture
def served(preload, tmp_path):
    """served(problem) writes a snapshot with a winner; (winner, snapshot folder, stock answer)."""

    def make(problem):
        known = preload.known(problem)
        winner = middle_winner(known)
        return winner, preload.store(tmp_path / "snapshot", problem, winner, stock=known[0]), preload.stock(problem, ALL)

    return make


@pytest.mark.parametrize("form", FORMS)
def test_reorder_puts_the_winner_before_cudnns_own_list(preload, served, form):
    problem = FORMS[form]
    winner, folder, stock = served(problem)
    got = preload.raw(problem, ALL, env=preload.env(folder, "reorder"))
    assert ids(got["modes"][0]) == [winner.id, *ids(stock["modes"][0])]
    assert got["modes"][0]["configs"][0]["notes"] == winner.notes
    assert got["modes"][0]["configs"][0]["workspace"] == winner.workspace
    assert got["modes"][1] == stock["modes"][1]
    assert got["chosen"] == winner.id


@pytest.mark.parametrize("form", FORMS)
def test_truncate_ends_the_search(preload, served, form, counters):
    problem = FORMS[form]
    winner, folder, stock = served(problem)
    got = preload.raw(problem, ALL, env=preload.env(folder, "truncate", counters=counters))
    assert ids(got["modes"][0])[0] == winner.id
    assert got["chosen"] == winner.id
    finalised = got["plan_finalisations"] + read_counters(counters)[0]["plans_own"]
    print(f"{form}: {stock['plan_finalisations']} plan finalisations, served {finalised}")
    assert finalised <= 3
    assert stock["plan_finalisations"] > 3 * finalised


def test_truncate_of_one_mode_gives_the_winner_alone(preload, served):
    winner, folder, _ = served(FORMS["fwd_f16"])
    got = preload.raw(FORMS["fwd_f16"], ALL, "modes=a", env=preload.env(folder, "truncate"))
    assert ids(got["modes"][0]) == [winner.id]
    assert got["plan_finalisations"] == 1


def test_observe_changes_nothing(preload, served, counters):
    _, folder, stock = served(FORMS["fwd_f16"])
    env = preload.env(folder, "observe", counters=counters)
    assert preload.raw(FORMS["fwd_f16"], ALL, env=env) == stock
    # FALLBACK's list behind the other is a part of one query.
    counted = read_counters(counters)[0]
    assert (counted["queries"], counted["observed"], counted["fallbacks"]) == (2, 1, 1)


@pytest.mark.parametrize("mode", ["i", "a", "b", "f"])
def test_every_heuristic_mode_is_served_against_its_own_first_choice(preload, mode, tmp_path, counters):
    problem = FORMS["fwd_f32"]
    stock = preload.raw(problem, ALL, f"modes={mode}")
    known = candidates(stock["modes"][0])
    # Of FALLBACK's few: one that needs nothing more than the first.
    winner = next(c for c in known[1:] if c.notes & ~known[0].notes & ~1024 == 0 and c.workspace <= known[0].workspace)
    folder = preload.store(tmp_path / "snapshot", problem, winner)
    got = preload.raw(problem, ALL, f"modes={mode}", env=preload.env(folder, counters=counters))
    assert ids(got["modes"][0]) == [winner.id, *ids(stock["modes"][0])]
    # The snapshot does not say what the stock choice is like: found out once.
    assert read_counters(counters)[0]["plans_own"] == 1


def test_the_stock_choice_is_found_out_once(preload, tmp_path, counters):
    problem = FORMS["fwd_f16"]
    folder = preload.store(tmp_path / "snapshot", problem, middle_winner(preload.known(problem)))
    preload.raw(problem, "modes=a", "repeat=5", env=preload.env(folder, counters=counters))
    assert read_counters(counters)[0]["plans_own"] == 1
    assert read_counters(counters)[0]["served"] == 5


@pytest.mark.parametrize("policy", ["reorder", "truncate"])
def test_a_program_is_told_how_many_configs_it_got_and_of_all_where_it_has_no_room(preload, policy, tmp_path):
    problem = FORMS["fwd_f32"]
    stock = preload.stock(problem, ALL)["modes"][0]
    winner = candidates(stock)[1]
    folder = preload.store(tmp_path / "snapshot", problem, winner)
    env = preload.env(folder, policy, CONVTUNE_PRELOAD_ALLOW="notes,workspace")
    served = preload.raw(problem, "modes=a", env=env)["modes"][0]
    # Cut, a config without notes is left behind the winner. cuDNN counts configs that it cannot give, too.
    assert ids(served)[0] == winner.id
    assert served["count"] == (stock["count"] + 1 if policy == "reorder" else 2)
    for asked in (1, 3, stock["count"] + 100):
        for listed, env_ in ((stock, None), (served, env)):
            told = preload.raw(problem, "modes=a", f"ask={asked}", env=env_)["modes"][0]
            assert ids(told) == ids(listed)[:asked]
            assert (told["count"], told["got"]) == (listed["count"], len(ids(told)))


def test_three_of_the_portfolio_at_most_in_its_order(preload, tmp_path):
    problem = FORMS["fwd_f16"]
    known = preload.known(problem)
    winners = neutral(known)[:4]
    assert len(winners) == 4
    folder = preload.store(tmp_path / "snapshot", problem, *winners, stock=known[0])
    got = preload.raw(problem, ALL, env=preload.env(folder))
    assert ids(got["modes"][0]) == [*[c.id for c in winners[:3]], *ids(preload.stock(problem, ALL)["modes"][0])]


def test_a_tuning_serves_a_stricter_alignment_and_no_looser_one(preload, tmp_path):
    known = preload.known(Problem())
    winner = middle_winner(known)
    folder = preload.store(tmp_path / "snapshot", Problem(align=8), winner, stock=known[0])
    got = preload.raw(Problem(align=16), "modes=a", env=preload.env(folder))
    assert ids(got["modes"][0])[0] == winner.id
    looser = Problem(align=4)
    assert preload.raw(looser, "modes=a", env=preload.env(folder)) == preload.raw(looser, "modes=a")


def test_other_problems_pass_through(preload, served):
    _, folder, _ = served(FORMS["fwd_f16"])
    for other in (Problem(type="bf16"), Problem(x=(33, 64, 56, 56)), Problem(epilogue="bias"), Problem(nhwc=False)):
        assert preload.raw(other, env=preload.env(folder)) == preload.raw(other)


def test_graphs_of_another_form_pass_through(preload, served, counters):
    _, folder, _ = served(FORMS["fwd_f16"])
    relu = Problem(epilogue="relu")
    assert preload.raw(relu, env=preload.env(folder, counters=counters)) == preload.raw(relu)
    assert read_counters(counters)[0]["passed"] == 2


def test_the_canary_gets_its_own_choice(preload, tmp_path):
    problem = FORMS["fwd_f16"]
    known = preload.known(problem)
    stable, canary = neutral(known)[:2]
    folder = tmp_path / "snapshot"
    stock = stock_field(known[0])
    preload.write_snapshot(
        folder,
        preload.choice(problem, stable.field(), stock),
        preload.choice(problem, canary.field(), stock, channel="canary"),
        release="release\t7\tcanary\t8\tpermille\t1000",
    )
    for forced, expected in ((None, canary), ("1", canary), ("0", stable)):
        extra = {} if forced is None else {"CONVTUNE_PRELOAD_CANARY": forced}
        got = preload.raw(problem, "modes=a", env=preload.env(folder, **extra))
        assert ids(got["modes"][0])[0] == expected.id


FRONTEND = """
import sys
import cudnn

dims, filters, kind, name = eval(sys.argv[2])
t = cudnn.data_type
io = {"f16": t.HALF, "bf16": t.BFLOAT16, "f32": t.FLOAT}[name]
graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=t.FLOAT, compute_data_type=t.FLOAT,
                      device_property=cudnn.create_device_properties(open(sys.argv[1]).read()))
def tensor(n, d):
    strides, step = [0] * len(d), d[1]
    strides[1] = 1
    for i in range(len(d) - 1, -1, -1):
        if i != 1:
            strides[i], step = step, step * d[i]
    return graph.tensor(name=n, dim=list(d), stride=strides)
pad = [1] * (len(dims) - 2)
one = [1] * (len(dims) - 2)
out = [dims[0], filters[0], *dims[2:]]
options = dict(padding=pad, stride=one, dilation=one)
if kind == "bwd_data":
    y = graph.conv_dgrad(loss=tensor("DY", out), filter=tensor("W", filters), **options)
    y.set_dim(list(dims))
elif kind == "bwd_filter":
    y = graph.conv_wgrad(image=tensor("X", dims), loss=tensor("DY", out), **options)
    y.set_dim(list(filters))
else:
    y = graph.conv_fprop(image=tensor("X", dims), weight=tensor("W", filters), **options)
    if kind == "bias+relu":
        y = graph.relu(input=graph.bias(input=y, bias=tensor("B", [1, filters[0]] + [1] * len(one))))
y.set_output(True)
graph.validate()
graph.build_operation_graph()
graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
graph.build_plans(cudnn.build_plan_policy.ALL)
count = graph.get_execution_plan_count()
print(count, graph.get_plan_name_at_index(0), graph.get_workspace_size_plan_at_index(0))
"""



def frontend(preload, folder, problem, env, program=FRONTEND):
    """The lines that the stock package's program prints of a problem, with cuDNN as the raw programs have it."""
    script = folder / "program.py"
    script.write_text(program)
    kind = problem.op if problem.op != "fwd" else problem.epilogue or "fwd"
    command = [sys.executable, str(script), str(preload.profile), repr((problem.x, problem.w, kind, problem.type))]
    return preload.run(command, {**env, "LD_LIBRARY_PATH": preload.cudnn_folder}).stdout.splitlines()


FRONTEND_FORMS = ["fwd_f32_nhwc", "fwd_bf16", "bwd_data_f16", "bwd_filter_f16", "grouped", "three_d"]


@pytest.mark.parametrize(
    "problem",
    [FORMS["fwd_f16"], Problem(epilogue="bias+relu"), *(pytest.param(FORMS[form], marks=pytest.mark.ci) for form in FRONTEND_FORMS)],
    ids=["fwd_f16", "bias_relu", *FRONTEND_FORMS],
)
def test_the_stock_frontend_package_is_served(preload, served, problem, tmp_path, counters):
    winner, folder, _ = served(problem)

    def run(policy):
        env = preload.env(folder if policy else None, policy or "", counters=counters)
        count, name, workspace = frontend(preload, tmp_path, problem, env)[-1].split()
        return int(count), name.replace("_", ","), int(workspace)

    stock_count, stock_name, _ = run(None)
    assert stock_name == preload.known(problem)[0].id
    count, name, workspace = run("reorder")
    # Later versions of the package drop the winner's second place by themselves.
    assert count in (stock_count, stock_count + 1)
    assert (name, workspace) == (winner.id, winner.workspace)
    count, name, workspace = run("truncate")
    print(f"{problem.text}: {stock_count} plans, served {count}")
    assert (name, workspace) == (winner.id, winner.workspace)
    assert count <= 3 < stock_count
    assert read_counters(counters)[-1]["plans_own"] == 0
