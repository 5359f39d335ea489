"""A worker's self-check is kept between daemons and followed; test_simulated_start.py has the real worker's."""

from harness.fakes import script
from harness.problems import numbered


def requests(log, kind):
    return sum(line.startswith(kind + " ") for line in log.read_text().splitlines())


def test_a_second_daemon_does_not_check_again_what_passed(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    env = script(self_check=0, log=log)
    daemon = fake_daemon(env=env).start()
    with daemon.client() as client:
        client.tune(numbered(1))
    assert daemon.stop() == 0
    daemon.start()
    (device,) = cli(daemon).ok("environments", "--json").json()["devices"]
    assert device["selfCheck"]["known"]
    with daemon.client() as client:
        client.tune(numbered(2))
    assert requests(log, "hello") == 2 and requests(log, "self_check") == 1
    assert (daemon.state_dir / "self_checks").exists()


def test_a_worker_that_tries_a_lost_step_again_is_given_up(fake_daemon, cli, tmp_path):
    log = tmp_path / "log"
    env = script(self_check=0, log=log, fault="abort", where="self_check", index=5, heedless=1)
    daemon = fake_daemon(env=env).start()
    run = cli(daemon)("tune", numbered(1))
    assert run.code == 1 and "no worker can be started" in run.err, run
    assert 2 <= requests(log, "hello") <= 10
