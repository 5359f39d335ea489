"""A convtune daemon, as seen by a program that runs an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from convtune.answers import Result
from convtune.base import ClientBase
from convtune.errors import Unavailable
from convtune.v1 import tuning_service_pb2


class AsyncClient(ClientBase):
    """convtune.Client for asyncio: get(), resolve() and tune() have the same arguments, answers and errors, and
    nothing blocks the loop. Made and used in one loop; `async with` closes it.

    A cancelled get() gives its call up; of the work that it waited for the daemon
    drops what nobody else wants. The job of a cancelled tune() goes on."""

    _grpc = grpc.aio

    get = ClientBase._get
    resolve = ClientBase._resolve
    tune = ClientBase._tune

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def _attempt(
        self, method: str, request: Any, timeout: float | None, enough: Callable[[], Awaitable[bool]] | None
    ) -> Any:
        call = self._method(method)(request, timeout=timeout)
        try:
            if enough is not None and timeout is not None:
                done, _ = await asyncio.wait([asyncio.create_task(call.code())], timeout=timeout / 2)
                if not done and await enough():
                    raise Unavailable("DEADLINE_EXCEEDED", "no answer within half of the time")
            return await call
        finally:
            call.cancel()  # where it has not ended

    async def _watch(self, job: str, saw: Callable[[Any], None]) -> None:
        async for state in self._method("WatchTuningJob")(tuning_service_pb2.WatchTuningJobRequest(name=job)):
            saw(state)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _beside(self, function: Callable[..., list[Result]], *arguments: Any) -> list[Result]:
        return await asyncio.to_thread(function, *arguments)
