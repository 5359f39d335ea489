"""A GPU made of software: every output says so, and nothing of it is taken for a card's."""

import pytest

from conftest import PROGRAMS, REPO
from harness.daemon import wait_until
from harness.fakes import script
from harness.fleet import outbox_depth, tune
from harness.preload import ALL, FORMS, candidates, ids
from harness.problems import numbered
from harness.simulator import simulators

from test_quickstart import quickstart  # noqa: F401

NAME = "simulated-h200"
ENVIRONMENT = f"{NAME},cc=9.0,sms=132,cudnn=9.19.0,lib=full"
PROBLEM = "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
SIMULATED = script(environment=ENVIRONMENT, measure_delay_ms=0)


@pytest.fixture
def simulated(fake_daemon, cli):
    daemon = fake_daemon(env=SIMULATED).start()
    run = cli(daemon)
    run.ok("tune", PROBLEM)
    return daemon, run


def test_evidence_says_that_it_is_simulated(simulated):
    daemon, run = simulated
    for command in (["get", PROBLEM], ["explain", PROBLEM], ["list"], ["stats"], ["advise", PROBLEM, "--dtypes", "f16"]):
        said = run.ok(*command)
        assert "measured (simulated)" in said.out, said
    # Of another seed the winner is another one, which waits for a promotion.
    daemon.stop()
    daemon.env.update(script(environment=ENVIRONMENT, measure_delay_ms=0, seed=7))
    daemon.start()
    run.ok("tune", "--force", PROBLEM)
    wait_until(lambda: "1 change " in run.ok("release", "diff").err, 20, "a changed choice")
    assert "measured (simulated)" in run.ok("release", "diff").out


def test_everything_else_names_the_simulated_gpu(simulated):
    _, run = simulated
    for command, says in (
        ("environments", NAME),
        ("jobs list", NAME),
        ("release list", f"the choices for {NAME} are simulated: no program on a GPU is served them"),
        ("doctor", f"gpu:0 ({NAME}) is a GPU made of software: its times say nothing about a card"),
        ("report", f"{NAME}: a GPU made of software, which says nothing about a card"),
        ("warm -", f"{NAME}: 1 problems"),
    ):
        done = run(*command.split(), stdin=PROBLEM.encode())
        assert says in done.out + done.err, done


def test_a_report_of_a_simulated_gpu_counts_no_card(simulated, tmp_path):
    _, run = simulated
    report = run.ok("report", "--json").json()
    assert [e["simulated"] for e in report["environments"]] == [True]
    assert report["headline"]["gpus"] == 0
    page = tmp_path / "report.html"
    run.ok("report", "--html", page)
    assert '"simulated":true' in page.read_text() and "Its times and gains say nothing about a card" in page.read_text()


def test_a_bundle_has_simulated_tunings_only_where_they_are_asked_for_by_name(simulated, bare_daemon, cli, tmp_path):
    _, run = simulated
    assert run.ok("export", tmp_path / "all.bundle", "--json").json()["tunings"] == 0
    named = tmp_path / "named.bundle"
    assert run.ok("export", named, "--environment", NAME, "--json").json()["tunings"] == 1
    took = cli(bare_daemon.start())("import", named)
    assert took.code == 0 and "1 of 1 tunings are of a simulated GPU, and hold for that alone" in took.err


def test_a_program_on_a_card_is_not_served_a_simulated_choice(preload, tmp_path):
    problem = FORMS["fwd_f16"]
    stock = preload.stock(problem, ALL)
    winner = candidates(stock["modes"][0])[-1]
    card = preload.environment
    for environment, served in ((card.replace("nvidia-h200", NAME), False), (card, True)):
        preload.write_snapshot(tmp_path, preload.choice(problem, winner.field(), environment=environment))
        got = preload.raw(problem, ALL, env=preload.env(tmp_path, CONVTUNE_PRELOAD_ALLOW="notes,workspace"))
        assert (ids(got["modes"][0])[0] == winner.id) == served


def test_the_fleet_gets_and_gives_nothing_simulated(fleet, nodes):
    real, made_up = *nodes(1), *nodes(1, first=1, environment=ENVIRONMENT)
    tune(made_up, numbered(0))
    tune(real, numbered(1))
    fleet.wait_delivered(1)
    wait_until(lambda: outbox_depth(made_up) == 0, 20, "an empty outbox")
    assert fleet.number("SELECT COUNT(*) FROM evidence") == 1
    assert fleet.number("SELECT COUNT(*) FROM environments WHERE name LIKE 'simulated-%'") == 0


def test_no_package_wheel_image_or_installation_names_the_simulated_gpu():
    assert simulators((REPO / "deploy/quickstart").read_text())
    lists = [REPO / "deploy" / name for name in ("CMakeLists.txt", "build-wheel", "portable.py", "docker/Dockerfile")]
    assert not simulators("\n".join(path.read_text() for path in lists))
    rules = "".join(path.read_text() for path in PROGRAMS.parent.rglob("cmake_install.cmake"))
    installed = [line for line in rules.splitlines() if "file(INSTALL" in line]
    assert any("/bin/convtuned" in line for line in installed) and not simulators(installed)


@pytest.mark.ci
def test_quickstart_shows_everything_on_a_simulated_gpu(fake_worker, quickstart, short_dir):  # noqa: F811
    build = short_dir / "build"
    (build / "bin").mkdir(parents=True)
    for program in ("convtuned", "convtune"):
        (build / "bin" / program).symlink_to(PROGRAMS / program)
    stand_in = build / "bin" / "convtune-worker-sim"
    stand_in.write_text(f'#!/bin/sh\nexport CONVTUNE_FAKE_SCRIPT="{SIMULATED["CONVTUNE_FAKE_SCRIPT"]}"\nexec {fake_worker} "$@"\n')
    stand_in.chmod(0o755)
    (build / "build.ninja").touch()
    done = quickstart("deploy/quickstart --simulate; deploy/quickstart --simulate; deploy/quickstart --stop", build=build)
    assert done.returncode == 0, done
    first, again = done.stdout.split("answered from the database: ")[1:]
    assert first.startswith("0 of 46") and again.startswith("46 of 46")
    assert done.stdout.count("measured (simulated)") > 2 * 46
    assert "published (simulated): release 1, 46 choices" in first, first
    home = short_dir / "home/.local/state"
    assert (home / "convtune-simulated/report.html").exists() and not (home / "convtune").exists()
    assert done.stdout.splitlines()[-1].startswith("stopped convtuned")
