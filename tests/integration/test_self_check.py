"""A worker's self-check is shown, kept and followed."""

from harness.api import API
from harness.fakes import script
from harness.problems import numbered

CLOCK, CACHES, CAPTURES = 1 << 2, 1 << 3, 1 << 5


def device(cli, daemon):
    result = cli(daemon)("environments", "--json")
    assert result.code == 0, result
    (found,) = result.json()["devices"]
    return found


def requests(log, kind):
    return sum(line.startswith(kind + " ") for line in log.read_text().splitlines())


def test_what_failed_is_shown_by_every_command(fake_daemon, cli):
    daemon = fake_daemon(env=script(self_check=CACHES | CAPTURES)).start()
    with daemon.client() as client:
        client.tune(numbered(1))
    assert device(cli, daemon)["selfCheck"] == {
        "known": True,
        "failed": ["caches", "captures"],
        "details": "as the script says",
    }
    table = cli(daemon)("environments")
    assert "failed: caches captures" in table.out, table
    doctor = cli(daemon)("doctor", "--json")
    (problem,) = [each for each in doctor.json()["findings"] if "self-check" in each["what"]]
    assert problem["severity"] == "notice" and "captures (nothing is captured, and no replays" in problem["what"]
    explained = cli(daemon)("explain", numbered(1))
    assert "self-check: does not work on this GPU: caches, captures" in explained.out, explained


def test_without_a_clock_tunings_are_heuristic_and_say_why(fake_daemon, cli):
    daemon = fake_daemon(env=script(self_check=CLOCK)).start()
    with daemon.client() as client:
        client.tune(numbered(1))
        tuning = client.tuning.GetTuning(problem={"text": numbered(1)})
        assert API.enum_name("Evidence", tuning.evidence) == "EVIDENCE_HEURISTIC", tuning
        assert list(tuning.conditions.self_check.failed) == ["clock"]
        assert all(not candidate.median_us for candidate in tuning.candidates)


def test_a_second_daemon_does_not_check_again_what_passed(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    env = script(self_check=0, log=log)
    daemon = fake_daemon(env=env).start()
    with daemon.client() as client:
        client.tune(numbered(1))
    assert daemon.stop() == 0
    daemon.start()
    assert device(cli, daemon)["selfCheck"]["known"]
    with daemon.client() as client:
        client.tune(numbered(2))
    assert requests(log, "hello") == 2 and requests(log, "self_check") == 1
    assert (daemon.state_dir / "self_checks").exists()


def test_a_step_that_takes_the_worker_down_is_no_crash_loop(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    env = script(self_check=0, log=log, fault="abort", where="self_check", index=5)
    daemon = fake_daemon(env=env).start()
    with daemon.client() as client:
        client.tune(numbered(1))
    assert device(cli, daemon)["selfCheck"]["failed"] == ["captures"]
    assert requests(log, "hello") == 2
    assert daemon.stop() == 0
    daemon.start()
    with daemon.client() as client:
        client.tune(numbered(2))
    # Another daemon tries the step again: it may have been slow for once.
    assert device(cli, daemon)["workerStarts"] in (2, "2")


def test_a_worker_that_tries_a_lost_step_again_is_given_up(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    env = script(self_check=0, log=log, fault="abort", where="self_check", index=5, heedless=1)
    daemon = fake_daemon(env=env).start()
    run = cli(daemon)("tune", numbered(1))
    assert run.code == 1 and "no worker can be started" in run.err, run
    assert 2 <= requests(log, "hello") <= 10
