"""What was measured for one cuDNN and one GPU answers for no other."""

import grpc
import pytest

from harness.api import API
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered

TEXT = numbered(1)


def environment(model="nvidia-h200", capability="9.0", sms=132, cudnn="9.19.0", library="full"):
    return f"{model},cc={capability},sms={sms},cudnn={cudnn},lib={library}"


@pytest.fixture
def restarted(fake_daemon):
    """restarted(environment) tunes TEXT in the default one, then starts in that one."""

    def restart(text):
        daemon = fake_daemon().start(env=script(environment=environment()))
        with daemon.client() as client:
            winner = client.get_one(TEXT, on_miss="ON_MISS_TUNE").answer.winner.text
        assert daemon.stop() == 0
        daemon.start(env=script(environment=text))
        return daemon, winner

    return restart


def test_another_cudnn_version_is_a_miss_with_a_hint_on_request(restarted, cli):
    daemon, winner = restarted(environment(cudnn="9.20.1"))
    with daemon.client() as client:
        plain = client.get_one(TEXT)
        assert plain.WhichOneof("outcome") == "miss" and not plain.miss.HasField("hint")
        hinted = client.get_one(TEXT, include_hints=True)
        assert hinted.WhichOneof("outcome") == "miss"
        assert hinted.miss.hint.winner.text == winner
        assert hinted.miss.hint.environment_text == environment()
    shown = cli(daemon)("get", "--hints", TEXT)
    assert shown.code == 3 and f"hint from cuDNN 9.19.0 (nvidia-h200): {winner}" in shown.out, shown


def test_another_library_configuration_is_a_miss_with_a_hint(restarted):
    daemon, winner = restarted(environment(library="graph_jit_only"))
    with daemon.client() as client:
        assert client.get_one(TEXT, include_hints=True).miss.hint.winner.text == winner


def test_another_gpu_model_is_a_miss_without_a_hint(restarted):
    daemon, _ = restarted(environment(model="other-gpu"))
    with daemon.client() as client:
        found = client.get_one(TEXT, include_hints=True)
        assert found.WhichOneof("outcome") == "miss" and not found.miss.HasField("hint")


def test_the_old_environment_is_still_listed(restarted, cli):
    daemon, _ = restarted(environment(cudnn="9.20.1"))
    with daemon.client() as client:
        known = {e.cudnn_version: e for e in client.tuning.ListEnvironments().environments}
    assert known["9.20.1"].current and not known["9.19.0"].current
    run, old = cli(daemon), environment()
    shown = run.ok("environments")
    assert old in shown.out and environment(cudnn="9.20.1") in shown.out, shown
    assert shown.err == "2 environments have the name nvidia-h200: --environment takes the TEXT of one as well\n"
    shown = run.ok("environments", "--environment", old)
    assert old in shown.out and "9.20.1" not in shown.out and shown.err == "", shown
    assert known["9.19.0"].tuning_count == 1


def test_without_a_device_what_is_known_is_served(fake_daemon, daemons):
    daemon = fake_daemon().start(env=script(environment=environment()))
    with daemon.client() as client:
        client.tune(TEXT)
        name = client.tuning.ListEnvironments().environments[0].name
    assert daemon.stop() == 0
    bare = daemons("--devices", "none", directory=daemon.directory).start()
    with bare.client() as client:
        assert client.get_one(TEXT, environment=name).WhichOneof("outcome") == "answer"
        missed = client.get_one(numbered(2), environment=name, on_miss="ON_MISS_TUNE")
        assert missed.WhichOneof("outcome") == "miss" and missed.miss.message


def test_environment_that_nobody_knows_is_not_found(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        with pytest.raises(grpc.RpcError) as error:
            client.get_one(TEXT, environment="nvidia-nothing")
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert "nvidia-nothing" in error.value.details()


LIBRARIES = {"cublaslt": "a7d443494f0d", "nvrtc": "65be0db342ad"}


def libraries(**changed):
    return {**LIBRARIES, **changed}


@pytest.mark.parametrize("library, words", [("cublaslt", "cuBLASLt"), ("nvrtc", "NVRTC")])
def test_another_cuda_library_is_a_miss_where_candidates_use_it(fake_daemon, library, words):
    """The key has two parts for candidates whose notes say so: each changed in turn, and changed back."""
    uses = {"cublaslt": "uses_cublaslt", "nvrtc": "uses_nvrtc"}
    other = {"cublaslt": "nvrtc", "nvrtc": "cublaslt"}[library]
    daemon = fake_daemon().start(env=script(**libraries(), **{uses[library]: 1}))
    with daemon.client() as client:
        winner = client.get_one(TEXT, on_miss="ON_MISS_TUNE").answer.winner.text
    for changed in ("000000000000",):
        daemon.stop()
        daemon.start(env=script(**libraries(**{library: changed}), **{uses[library]: 1}))
        with daemon.client() as client:
            missed = client.get_one(TEXT, include_hints=True)
            assert missed.WhichOneof("outcome") == "miss", missed
            assert f"measured with {words} {LIBRARIES[library]}, there is {changed} now" in missed.miss.message
            assert missed.miss.hint.winner.text == winner and "not exact" in missed.miss.hint.note
    # What no candidate uses may change.
    daemon.stop()
    daemon.start(env=script(**libraries(**{other: "000000000000"}), **{uses[library]: 1}))
    with daemon.client() as client:
        assert client.get_one(TEXT).answer.winner.text == winner
    # A new tuning takes the place of the old one, whatever that had measured.
    daemon.stop()
    daemon.start(env=script(**libraries(**{library: "111111111111"}), **{uses[library]: 1}))
    with daemon.client() as client:
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


def test_what_was_measured_with_unknown_libraries_is_a_miss_once_they_are_known(fake_daemon):
    daemon = fake_daemon().start(env=script(uses_nvrtc=1))
    with daemon.client() as client:
        client.tune(TEXT)
    daemon.stop()
    daemon.start(env=script(uses_nvrtc=1, **libraries()))
    with daemon.client() as client:
        assert "an unknown NVRTC" in client.get_one(TEXT).miss.message
    daemon.stop()
    daemon.start(env=script(uses_nvrtc=1))  # and not known any more: nothing says that it is another
    with daemon.client() as client:
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
    import json
    import os
    import pathlib
    import subprocess

    profile = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "profiles" / "nvidia-h200.json"

    def probe(**env):
        command = [worker, "--probe", "--devices", "none", "--profile", profile]
        out = subprocess.run(command, env={**os.environ, **env}, check=True, capture_output=True, text=True).stdout
        found = json.loads(out)
        return {"cuda": found["cuda_version"], "cublaslt": found["cublaslt_build"], "nvrtc": found["nvrtc_build"]}

    there = probe()
    assert all(there.values()) and there["cublaslt"] != there["nvrtc"]
    (tmp_path / "empty.c").write_text("")
    library = tmp_path / f"libnvrtc.so.{there['cuda'].split('.')[0]}"
    subprocess.run(["cc", "-shared", "-Wl,--build-id=0x0123456789abcdef", "-o", library, tmp_path / "empty.c"], check=True)
    assert probe(LD_LIBRARY_PATH=str(tmp_path)) == {**there, "nvrtc": "0123456789ab"}
