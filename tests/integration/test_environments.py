"""What was measured for one cuDNN and one card answers for no other."""

import grpc
import pytest

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


def test_another_cudnn_version_is_a_miss_with_a_hint_on_request(restarted):
    daemon, winner = restarted(environment(cudnn="9.20.1"))
    with daemon.client() as client:
        plain = client.get_one(TEXT)
        assert plain.WhichOneof("outcome") == "miss" and not plain.miss.HasField("hint")
        hinted = client.get_one(TEXT, include_hints=True)
        assert hinted.WhichOneof("outcome") == "miss"
        assert hinted.miss.hint.winner.text == winner


def test_another_library_configuration_is_a_miss_with_a_hint(restarted):
    daemon, winner = restarted(environment(library="graph_jit_only"))
    with daemon.client() as client:
        assert client.get_one(TEXT, include_hints=True).miss.hint.winner.text == winner


def test_another_gpu_model_is_a_miss_without_a_hint(restarted):
    daemon, _ = restarted(environment(model="other-gpu"))
    with daemon.client() as client:
        found = client.get_one(TEXT, include_hints=True)
        assert found.WhichOneof("outcome") == "miss" and not found.miss.HasField("hint")


def test_the_old_environment_is_still_listed(restarted):
    daemon, _ = restarted(environment(cudnn="9.20.1"))
    with daemon.client() as client:
        known = {e.cudnn_version: e for e in client.tuning.ListEnvironments().environments}
    assert known["9.20.1"].current and not known["9.19.0"].current
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
