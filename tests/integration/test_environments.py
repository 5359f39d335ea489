"""What was measured for one cuDNN and one GPU answers for no other."""

import json
import os
import subprocess

import pytest

from conftest import REPO
from harness.api import API
from harness.cudnn_shapes import library
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered

TEXT = numbered(1)
OLD, NEW = (f"nvidia-h200,cc=9.0,sms=132,cudnn={version},lib=full" for version in ("9.19.0", "9.20.1"))


@pytest.fixture
def upgraded(fake_daemon):
    """A daemon of the new environment that tuned TEXT in the old one, and the winner."""
    daemon = fake_daemon().start(env=script(environment=OLD))
    with daemon.client() as client:
        winner = client.get_one(TEXT, on_miss="ON_MISS_TUNE").answer.winner.text
    assert daemon.stop() == 0
    return daemon.start(env=script(environment=NEW)), winner


def test_another_cudnn_version_is_a_miss_with_a_hint_on_request(upgraded, cli):
    daemon, winner = upgraded
    with daemon.client() as client:
        plain = client.get_one(TEXT)
        assert plain.WhichOneof("outcome") == "miss" and not plain.miss.HasField("hint")
        hinted = client.get_one(TEXT, include_hints=True)
        assert hinted.WhichOneof("outcome") == "miss"
        assert hinted.miss.hint.winner.text == winner
        assert hinted.miss.hint.environment_text == OLD
    shown = cli(daemon)("get", "--hints", TEXT)
    assert shown.code == 3 and f"hint from cuDNN 9.19.0 (nvidia-h200): {winner}" in shown.out, shown


def test_the_old_environment_is_still_listed(upgraded, cli):
    daemon, _ = upgraded
    with daemon.client() as client:
        known = {e.cudnn_version: e for e in client.tuning.ListEnvironments().environments}
    assert known["9.20.1"].current and not known["9.19.0"].current
    run = cli(daemon)
    shown = run.ok("environments")
    assert OLD in shown.out and NEW in shown.out, shown
    assert shown.err == "2 environments have the name nvidia-h200: --environment takes the TEXT of one as well\n"
    shown = run.ok("environments", "--environment", OLD)
    assert OLD in shown.out and "9.20.1" not in shown.out and shown.err == "", shown
    assert known["9.19.0"].tuning_count == 1


LIBRARIES = {"cublaslt": "a7d443494f0d", "nvrtc": "65be0db342ad"}


def libraries(**changed):
    return {**LIBRARIES, **changed}


@pytest.mark.parametrize("library, words", [("cublaslt", "cuBLASLt"), ("nvrtc", "NVRTC")])
def test_another_cuda_library_is_a_miss_where_candidates_use_it(fake_daemon, library, words):
    """The key has two parts for candidates whose notes say so: each changed in turn, and changed back."""
    (other,) = LIBRARIES.keys() - {library}
    daemon = fake_daemon()

    def started(**changed):
        if daemon.running():
            daemon.stop()
        return daemon.start(env=script(**libraries(**changed), **{f"uses_{library}": 1})).client()

    with started() as client:
        winner = client.get_one(TEXT, on_miss="ON_MISS_TUNE").answer.winner.text
    with started(**{library: "000000000000"}) as client:
        missed = client.get_one(TEXT, include_hints=True)
        assert missed.WhichOneof("outcome") == "miss", missed
        assert f"measured with {words} {LIBRARIES[library]}, there is 000000000000 now" in missed.miss.message
        assert missed.miss.hint.winner.text == winner and "not exact" in missed.miss.hint.note
    # What no candidate uses may change.
    with started(**{other: "000000000000"}) as client:
        assert client.get_one(TEXT).answer.winner.text == winner
    # A new tuning takes the place of the old one, whatever that had measured.
    with started(**{library: "111111111111"}) as client:
        assert client.get_one(TEXT, on_miss="ON_MISS_TUNE").WhichOneof("outcome") == "answer"
        assert client.get_one(TEXT).answer.evidence == client.get_one(TEXT, min_evidence="EVIDENCE_MEASURED").answer.evidence
        (known,) = [e for e in client.tuning.ListEnvironments().environments if e.current]
        assert getattr(known.provenance, f"{library}_build") == "111111111111"


def stored(client):
    """What is known of TEXT, without what tells how long ago that was."""
    tuning = client.tuning.GetTuning(problem={"text": TEXT})
    return API.enum_name("Evidence", tuning.evidence), [(c.text, c.median_us) for c in tuning.candidates]


def test_a_guess_never_takes_the_place_of_a_measurement_that_does_not_hold(fake_daemon):
    daemon = fake_daemon().start(env=script(**libraries(), uses_nvrtc=1))
    with daemon.client() as client:
        client.tune(TEXT)
        measured = stored(client)
    assert measured[0] == "EVIDENCE_MEASURED"
    winner = measured[1][0][0]
    daemon.stop()
    daemon.start(env=script(**libraries(nvrtc="000000000000"), uses_nvrtc=1))
    with daemon.client() as client:
        for _ in range(2):
            guess = client.get_one(TEXT, on_miss="ON_MISS_HEURISTIC").answer
            assert API.enum_name("Evidence", guess.evidence) == "EVIDENCE_HEURISTIC", guess
            assert guess.stands_in and not guess.persisted, guess
        hinted = client.get_one(TEXT, min_evidence="EVIDENCE_MEASURED", include_hints=True).miss
        assert hinted.hint.winner.text == winner and "not exact" in hinted.hint.note
        assert stored(client) == measured
    daemon.kill()
    # What was measured is back where it holds.
    daemon.start(env=script(**libraries(), uses_nvrtc=1))
    with daemon.client() as client:
        assert stored(client) == measured
        answer = client.get_one(TEXT, min_evidence="EVIDENCE_MEASURED").answer
        assert answer.winner.text == winner


def served_to_programs(daemon):
    """How many choices the snapshot has, now that it is up to date."""
    with daemon.client() as client:
        client.release.DiffReleases()  # waits for what was committed to be decided on
        return client.release.GetPublication().choice_count


def test_unmodified_programs_are_served_nothing_that_another_library_made_old(fake_daemon):
    """Two problems: both are compiled by NVRTC, and one of them is measured anew."""
    again = numbered(2)

    def start(nvrtc="65be0db342ad"):
        daemon.start(env=script(**libraries(nvrtc=nvrtc), uses_nvrtc=1))
        return daemon

    daemon = fake_daemon()
    with start().client() as client:
        client.tune(TEXT, again)
        assert served_to_programs(daemon) == 2
    daemon.stop()
    with start("000000000000").client() as client:
        assert served_to_programs(daemon) == 0
        assert client.tune(again).succeeded_count == 1
        assert served_to_programs(daemon) == 1  # it had no choice: no promotion is needed
        assert client.get_one(TEXT, on_miss="ON_MISS_HEURISTIC").answer.winner.text
        assert served_to_programs(daemon) == 1
    daemon.kill()
    # Back where it was measured, the first holds again and the second does not.
    with start().client() as client:
        wait_until(lambda: client.get_one(again).WhichOneof("outcome") == "miss", 10, "a miss")
        assert served_to_programs(daemon) == 1
        assert client.get_one(TEXT).WhichOneof("outcome") == "answer"


def test_an_imported_tuning_of_another_library_is_not_served(fake_daemon, cli, tmp_path):
    bundle = tmp_path / "b.bundle"
    first = fake_daemon().start(env=script(uses_nvrtc=1, **libraries()))
    with first.client() as client:
        client.tune(TEXT)
    cli(first).ok("export", bundle)
    for nvrtc, outcome in (("000000000000", "miss"), (LIBRARIES["nvrtc"], "answer")):
        second = fake_daemon().start(env=script(uses_nvrtc=1, **libraries(nvrtc=nvrtc)))
        cli(second).ok("import", bundle)
        with second.client() as client:
            assert client.get_one(TEXT).WhichOneof("outcome") == outcome
        based = fake_daemon("--base", bundle).start(env=script(uses_nvrtc=1, **libraries(nvrtc=nvrtc)))
        with based.client() as client:
            assert client.get_one(TEXT).WhichOneof("outcome") == outcome


def test_the_real_worker_tells_the_builds_of_its_cuda_libraries(worker, tmp_path):
    """A library in front of the loader's path is another build; the rest is as before."""
    def probe(**env):
        command = [worker, "--probe", "--devices", "none", "--profile", REPO / "deploy" / "profiles" / "nvidia-h200.json"]
        out = subprocess.run(command, env={**os.environ, **env}, check=True, capture_output=True, text=True).stdout
        found = json.loads(out)
        return {"cuda": found["cuda_version"], "cublaslt": found["cublaslt_build"], "nvrtc": found["nvrtc_build"]}

    there = probe()
    assert all(there.values()) and there["cublaslt"] != there["nvrtc"]
    library(tmp_path / f"libnvrtc.so.{there['cuda'].split('.')[0]}", "", "-Wl,--build-id=0x0123456789abcdef")
    assert probe(LD_LIBRARY_PATH=str(tmp_path)) == {**there, "nvrtc": "0123456789ab"}
