"""Rules over candidates: from the command line to the database, the answers and the snapshot that programs are served."""

import time

import pytest

from harness.clock import STEPS, WallClock
from harness.daemon import unpublished, wait_until
from harness.fakes import script
from harness.problems import numbered

PROBLEMS = [numbered(i) for i in range(4)]
REASON = ("--reason", "wrong results")


@pytest.fixture
def tuned(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        assert client.tune(*PROBLEMS).state == 3
    return daemon


def winner(daemon, problem=PROBLEMS[0]):
    with daemon.client() as client:
        return client.get_one(problem).answer.winner.text


def own(run):
    """The bans that did not come with convtune."""
    return [ban for ban in run.ok("ban", "list", "--json").json()["bans"] if not ban.get("shipped")]


def engine(candidate):
    return candidate.split(":")[1].split(",")[0]


def test_a_ban_changes_answers_until_it_is_deleted(tuned, cli):
    run = cli(tuned)
    best = winner(tuned)
    dry = run.ok("ban", engine(best), *REASON, "--dry-run", "--json").json()["created"][0]
    assert "name" not in dry["ban"] and winner(tuned) == best
    assert own(run) == []
    made = run.ok("ban", engine(best), *REASON, "--author", "ada", "--json")
    (created,) = made.json()["created"]
    assert created["changes"] == dry["changes"] and created["changeCount"] == dry["changeCount"]
    change = next(c for c in created["changes"] if c["problemText"] == PROBLEMS[0])
    assert change["before"] == best and change["ratio"] > 0
    with tuned.client() as client:
        answer = client.get_one(PROBLEMS[0]).answer
        everything = [answer.winner, *answer.portfolio, *answer.runners_up]
        assert [c.text for c in everything if engine(c.text) == engine(best)] == []
        assert (answer.banned.candidate, answer.banned.ban, answer.banned.reason) == (best, "bans/1", "wrong results")
        listed = {t.problem_text: t.winner for t in client.tuning.ListTunings().tunings}
        tuning = client.tuning.GetTuning(problem={"text": PROBLEMS[0]})
    assert answer.winner.text == change["after"] == listed[PROBLEMS[0]] == tuning.winner
    assert best in [c.text for c in tuning.candidates] and best in [b.candidate for b in tuning.banned]
    got = run.ok("get", *PROBLEMS)
    assert "measured, bans/1" in got.out and "another for bans/1 (wrong results)" in got.err
    explained = run.ok("explain", PROBLEMS[0]).out
    assert "by bans/1 (wrong results)" in explained and f"{best} would win, and is banned by bans/1" in explained
    assert "another winner for bans/1 (wrong results)" in run("doctor").out
    (row,) = own(run)
    assert (row["author"], int(row["tuningCount"])) == ("ada", int(created["changeCount"]))
    run.ok("ban", "delete", "1")
    assert winner(tuned) == best and "ban" not in run("doctor").out
    assert run("ban", "delete", "1").code == 3


def test_a_ban_holds_after_a_restart_and_without_a_device(tuned, cli, daemons):
    best = winner(tuned)
    cli(tuned).ok("ban", engine(best), *REASON)
    second = winner(tuned)
    assert second != best
    assert tuned.stop() == 0
    tuned.start()
    assert winner(tuned) == second
    cli(tuned).ok("ban", "delete", "1")
    tuned.stop()
    bare = daemons("--devices", "none", directory=tuned.directory).start()
    dry = cli(bare).ok("ban", engine(best), *REASON, "--dry-run", "--json").json()["created"][0]
    assert {c["before"] for c in dry["changes"]} >= {best}
    assert cli(bare).ok("ban", engine(best), *REASON).code == 0
    assert winner(bare) == second


def test_a_ban_holds_where_each_of_its_conditions_fits(tuned, cli):
    best = winner(tuned)
    ban = ("ban", engine(best), *REASON)
    for other in (("--cudnn", "<9.19"), ("--gpu", "*a100"), ("--op", "bwd_data"), ("--dtype", "f32"), ("--layout", "nchw")):
        assert "0 tunings list such a candidate" in cli(tuned).ok(*ban, *other).err, other
    assert winner(tuned) == best
    cli(tuned).ok(*ban, "--cudnn", ">=9.19,<9.20", "--gpu", "NVIDIA*H200", "--op", "fwd", "--dtype", "f16", "--layout", "nhwc")
    assert winner(tuned) != best


def served_engines(ct, daemon, problems):  # noqa: F811
    """Those that programs are served, once no daemon answers; None for a problem without one."""
    nobody = ct.Client(f"unix:{daemon.directory}/nobody", snapshot=str(daemon.state_dir / "snapshot"))
    return {r.winner and engine(r.winner.text) for r in nobody.resolve(problems, timeout=0.3)}


@STEPS
def test_a_ban_is_heeded_at_once_whatever_the_clock_is_set_to(ct, fake_daemon, cli, tmp_path, seconds):  # noqa: F811
    """The wall clock is set while the daemon runs; the steady clock goes on."""
    clock = WallClock(tmp_path)
    daemon = fake_daemon(env=clock.env).start()
    with daemon.client() as client:
        assert client.tune(*PROBLEMS).state == 3
        wait_until(lambda: client.release.GetPublication().choice_count == len(PROBLEMS), 30, "all choices")
        clock.step(seconds)
        best = engine(winner(daemon))
        assert best in served_engines(ct, daemon, PROBLEMS)

        def is_set():  # Abseil looks at the system's clock every few seconds
            dry = client.tuning.CreateBan(ban={"candidate": "eng99", "author": "a", "reason": "r"}, dry_run=True)
            return abs(dry.ban.create_time.seconds - time.time() - seconds) < 300

        wait_until(is_set, 30, "the daemon's time")
        cli(daemon).ok("ban", best, *REASON)
        wait_until(lambda: best not in served_engines(ct, daemon, PROBLEMS), 30, "a snapshot without it")


def test_what_cannot_be_published_is_kept_and_said(tuned, cli):
    """Unmodified programs go on with the snapshot that there was."""
    run = cli(tuned)
    best = winner(tuned)
    with tuned.client() as client:
        wait_until(lambda: client.release.GetPublication().choice_count == len(PROBLEMS), 30, "all choices")
    decisions = [("pin", PROBLEMS[1], winner(tuned, PROBLEMS[1]), *REASON), ("unpin", PROBLEMS[1]), ("ban", engine(best), *REASON)]
    with unpublished(tuned):
        for decision in (*decisions, ("ban", "delete", "1")):
            result = run(*decision)
            assert result.code == 5 and "it is kept, but what programs are served lacks it: " in result.err, result
            assert "Not a directory" in result.err, result
        assert run("ban", engine(best), *REASON, "--dry-run").code == 0
        assert run(*decisions[2]).code == 5 and winner(tuned) != best
    run.ok(*decisions[0])
    (ban,) = own(run)
    assert ban["reason"] == "wrong results"
    with tuned.client() as client:
        assert not client.release.GetPublication().error and not client.release.GetPublication().pending


def test_a_ban_leaves_out_the_first_config_of_a_heuristic_answer(fake_daemon, cli):
    daemon = fake_daemon(env=script()).start()
    run = cli(daemon)
    with daemon.client() as client:
        first = client.get_one(PROBLEMS[0], on_miss="ON_MISS_HEURISTIC").answer.winner.text
        run.ok("ban", engine(first), *REASON)
        again = client.get_one(PROBLEMS[0], on_miss="ON_MISS_HEURISTIC")
        fresh = client.get_one(PROBLEMS[1], on_miss="ON_MISS_HEURISTIC")
    for result in (again, fresh):
        assert result.WhichOneof("outcome") == "answer", result
        assert engine(result.answer.winner.text) != engine(first)


def test_engines_that_are_known_to_be_wrong_are_no_answer(ct, fake_daemon, cli, tmp_path):  # noqa: F811
    # cuDNN 9.23.1's engine 5 on compute capability 8.6.
    a10g = script(environment="nvidia-a10g,cc=8.6,sms=80,cudnn=9.23.1,lib=full", candidates=12)
    daemon = fake_daemon("--no-errata", env=a10g).start()
    run = cli(daemon)
    problems = [numbered(i) for i in range(40)]
    with daemon.client() as client:
        assert client.tune(*problems).state == 3
        winners = {p: client.get_one(p).answer.winner.text for p in problems}
        wait_until(lambda: client.release.GetPublication().choice_count == len(problems), 30, "all choices")
    assert run.ok("ban", "list").err == "nothing is banned\n"
    struck = [p for p in problems if engine(winners[p]) == "eng5"]
    assert 0 < len(struck) < len(problems)
    assert daemon.stop() == 0

    daemon.args = [a for a in daemon.args if a != "--no-errata"]
    daemon.start()
    with daemon.client() as client:
        for problem in problems:
            answer = client.get_one(problem).answer
            assert engine(answer.winner.text) != "eng5"
            assert answer.banned.ban == ("shipped/1" if problem in struck else "")
    wait_until(lambda: not served_engines(ct, daemon, problems) & {None, "eng5"}, 30, "a snapshot without it")
    listed = run.ok("ban", "list", "--json").json()["bans"]
    assert [ban["name"] for ban in listed] == [f"shipped/{i}" for i in range(1, 7)]
    assert int(listed[0]["tuningCount"]) == len(struck)
    assert "issues/188288" in run.ok("ban", "list").out
    assert f"{len(struck)} tunings have another winner for shipped/1" in run("doctor").out
    refused = run("ban", "delete", "shipped/1")
    assert refused.code == 2 and "convtuned --no-errata" in refused.err
    same = run("ban", "eng5", "--op", "fwd", "--cudnn", ">=9.23.1,<9.24", "--gpu", "sm_86", *REASON)
    assert "shipped/1" in same.err and "has the same rule" in same.err
    # The form of cudnn-frontend is for an operator's own.
    assert run.ok("ban", "list", "--errata").json()["rules"] == []
