"""A budget is what a tuning takes, whatever the worker is at."""

# ConvTranspose1d(1000, 1, 10000, 1000) on 16x1000x100, whose search in cuDNN takes minutes on a GPU.
TRANSPOSED = "bwd_data,x=16x1x109000,w=1000x1x10000,stride=1000"


# The first tuning of its worker: what cuDNN loads is not taken from the budget.
def test_a_convolution_whose_search_takes_minutes_is_answered(daemons, worker):
    daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker).start()
    with daemon.client() as client:
        job = client.tune(TRANSPOSED, options={"time_budget": {"seconds": 2}})
        assert job.succeeded_count == 1, job
        assert client.get_one(TRANSPOSED).answer.winner.text
