"""A result that is wrong is quarantined from end to end; tests/unit/tuner/checks_test.cc has the rules."""

import json

from harness.fakes import script
from harness.problems import numbered


def test_wrong_result_is_said_in_words_and_in_fields_and_survives_a_restart(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon().start(env=script(wrong=2))
    run = cli(daemon)
    run.ok("tune", text)
    why, line = [line for line in run.ok("explain", text).out.splitlines() if "eng2," in line]
    assert why.startswith("quarantined: graph:eng2,k2=2 (wrong-result, ")
    assert "quarantined" in line.lower() and "differs from the reference" in line
    tuning = run.ok("explain", text, "--json").json()["tuning"]
    (entry,) = tuning["quarantine"]
    assert entry["reason"] == "QUARANTINE_REASON_WRONG_RESULT" and entry["candidate"].startswith("graph:eng2,")
    assert "INCOMPLETE_REASON" not in json.dumps(tuning)
    daemon.stop()
    daemon.start(env=script())
    run.ok("tune", text, "--force")
    _, line = [line for line in run.ok("explain", text).out.splitlines() if "eng2," in line]
    assert "quarantined" in line.lower()


def test_the_largest_error_is_an_option(fake_daemon, cli):
    text = numbered(1)
    run = cli(fake_daemon().start())
    run.ok("tune", text)
    # The fake's candidate i has an error of 1e-4 * (i + 1).
    (result,) = run.ok("get", text, "--max-error", "1.5e-4", "--json").json()["results"]
    assert result["answer"]["winner"]["text"] == "graph:eng0,k2=0"
    assert run("get", text, "--max-error", "1e-5").code == 3
