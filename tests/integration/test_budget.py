"""A budget is what a tuning takes, whatever the worker is at."""

from harness.problems import numbered

# ConvTranspose1d(1000, 1, 10000, 1000) on 16x1000x100, whose search in cuDNN takes minutes on a GPU.
TRANSPOSED = "bwd_data,x=16x1x109000,w=1000x1x10000,stride=1000"
TWO_SECONDS = {"time_budget": {"seconds": 2}}


def test_a_slow_candidate_does_not_hold_up_the_answer(fake_daemon):
    text = numbered(1)
    # Eight candidates, of which each takes a minute.
    daemon = fake_daemon().start(env={"CONVTUNE_FAKE_SCRIPT": "prepare_delay_ms=60000"})
    with daemon.client() as client:
        job = client.tune(text, options=TWO_SECONDS)
        assert job.failed_count == 1, job
        assert "the budget ended, and no candidate ran" in job.failures[0].reason
        (device,) = client.tuning.ListDevices().devices
        assert device.worker_deaths == 0
    assert daemon.stop() == 0


def test_what_was_timed_by_then_is_the_answer_and_says_that_it_is_incomplete(fake_daemon):
    text = numbered(2)
    daemon = fake_daemon().start(env={"CONVTUNE_FAKE_SCRIPT": "measure_delay_ms=300"})
    with daemon.client() as client:
        job = client.tune(text, options=TWO_SECONDS)
        assert job.succeeded_count == 1, job
        answer = client.get_one(text).answer
        assert answer.winner.median_us > 0
        assert "budget ended" in answer.note


# The first tuning of its worker: what cuDNN loads is not taken from the budget.
def test_a_convolution_whose_search_takes_minutes_is_answered(daemons, worker):
    daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker).start()
    with daemon.client() as client:
        job = client.tune(TRANSPOSED, options=TWO_SECONDS)
        assert job.succeeded_count == 1, job
        assert client.get_one(TRANSPOSED).answer.winner.text
