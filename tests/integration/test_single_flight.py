"""Many callers for one missing key: one tuning, few threads."""

import asyncio

import grpc

from harness.api import API
from harness.fakes import script
from harness.problems import numbered

CALLERS = 1000
CHANNELS = 4


async def call_together(address, request):
    """Every caller's response; the barrier opens when all are there."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CHANNELS)]
    calls = [
        channel.unary_unary(
            "/convtune.v1.TuningService/BatchGet",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=API.BatchGetResponse.FromString,
        )
        for channel in channels
    ]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    barrier = asyncio.Event()

    async def caller(index):
        await barrier.wait()
        return await calls[index % CHANNELS](request, timeout=60)

    tasks = [asyncio.create_task(caller(i)) for i in range(CALLERS)]
    await asyncio.sleep(0)
    barrier.set()
    try:
        return await asyncio.gather(*tasks)
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


async def watch_peaks(daemon, client, done):
    """Largest (waiting callers, threads of the daemon) seen until `done`."""
    waiting = threads = 0
    while not done.is_set():
        info = await asyncio.to_thread(client.info)
        waiting = max(waiting, info.waiting_callers)
        threads = max(threads, daemon.threads(), info.threads)
        await asyncio.sleep(0.02)
    return waiting, threads


def test_thousand_callers_for_one_key_are_one_request(fake_daemon):
    daemon = fake_daemon(env=script(start_delay_ms=6000)).start()
    request = API.BatchGetRequest(problems=[{"text": numbered(1)}], on_miss="ON_MISS_TUNE")

    async def scenario(client):
        done = asyncio.Event()
        peaks = asyncio.create_task(watch_peaks(daemon, client, done))
        responses = await call_together(daemon.address, request)
        done.set()
        return responses, await peaks

    with daemon.client() as client:
        before = client.info().worker_requests
        responses, (waiting, threads) = asyncio.run(scenario(client))
        assert client.info().worker_requests - before == 1
    assert len(responses) == CALLERS
    winners = {r.results[0].answer.winner.text for r in responses}
    assert len(winners) == 1 and "" not in winners
    assert waiting == CALLERS
    assert threads < 100


def test_doubles_in_one_batch_are_one_request(fake_daemon):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        before = client.info().worker_requests
        results = client.get(*[numbered(1)] * 100, on_miss="ON_MISS_TUNE")
        assert client.info().worker_requests - before == 1
    assert {r.WhichOneof("outcome") for r in results} == {"answer"}
