"""A convtune daemon, as seen by a program that runs an asyncio loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from convtune import messages
from convtune.answers import Ask, Demands, Environment, Result
from convtune.base import ClientBase, JobWatch, Retries
from convtune.errors import ConvtuneError, Unavailable, translate
from convtune.problem import Problem
from convtune.problem_key import canonical
from convtune.v1 import tuning_service_pb2, tuning_service_pb2_grpc

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncClient(ClientBase):
    """convtune.Client for asyncio: the same arguments, answers and errors, and
    nothing blocks the loop. Made and used in one loop; `async with` closes it.

    A cancelled get() gives its call up; of the work that it waited for the daemon
    drops what nobody else wants."""

    def _open(self) -> None:
        self._channel = self._channel_by(grpc.aio)
        self._tuning = tuning_service_pb2_grpc.TuningServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def get(
        self,
        problems: Iterable[Problem | str],
        *,
        on_miss: str = "none",
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> list[Result]:
        """As Client.get."""
        ask = Ask(on_miss=on_miss, **demands)
        deadline = self._deadline(ask, timeout)
        program = self.program()
        results: list[Result] = []
        for part in messages.split(messages.texts(problems)):
            request = messages.batch_get(self.environment, program, part, ask)
            results += messages.results(await self._call(self._tuning.BatchGet, request, deadline), request)
        return results

    async def resolve(
        self,
        problems: Iterable[Problem | str],
        *,
        timeout: float = 1.0,
        **demands: Unpack[Demands],
    ) -> list[Result]:
        """As Client.resolve."""
        ask = Ask(on_miss="none", **demands)
        deadline = time.monotonic() + timeout
        program = self.program()
        results: list[Result] = []
        for part in messages.split(messages.texts(problems)):
            results += await self._resolve_part(part, program, ask, deadline)
        return results

    async def _resolve_part(
        self, part: list[str], program: Environment, ask: Ask, deadline: float
    ) -> list[Result]:
        results: dict[int, Result] = messages.no_texts(part)
        while left := [place for place in range(len(part)) if place not in results]:
            texts = [part[place] for place in left]
            stored: list[Result] = []

            async def enough() -> bool:
                # A disk can hang.
                stored[:] = await asyncio.to_thread(self._from_snapshot, texts, program, ask)
                return all(result.answer for result in stored)

            request = messages.batch_get(self.environment, program, texts, ask)
            try:
                found = messages.results(await self._call(self._tuning.BatchGet, request, deadline, enough), request)
            except Unavailable as error:
                if not stored or not all(result.answer for result in stored):
                    await enough()
                found = [r if r.answer else messages.unavailable(r, error) for r in stored]
            except ConvtuneError as error:
                if refused := error.refused_problems(len(left)):
                    results.update({left[n]: messages.refused(part[left[n]], why) for n, why in refused.items()})
                    continue
                found = [messages.unavailable(Result(canonical(text), None), error) for text in texts]
            results.update(zip(left, found))
        return [results[place] for place in range(len(part))]

    async def tune(
        self,
        problems: Iterable[Problem | str],
        *,
        budget_s: float | None = None,
        force: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, str]:
        """As Client.tune. The job of a cancelled one goes on."""
        failures: dict[str, str] = {}
        for request, watch in self._jobs(problems, budget_s, force, on_progress):
            failures |= messages.failures(await self._run_job(request, watch))
        return failures

    async def _run_job(self, request: Any, watch: JobWatch) -> Any:
        """The job's last state."""
        while True:
            job = await self._call(self._tuning.CreateTuningJob, request, time.monotonic() + self._timeout)
            try:
                async for job in self._tuning.WatchTuningJob(tuning_service_pb2.WatchTuningJobRequest(name=job.name)):
                    watch.saw(job)
                return job
            except grpc.RpcError as error:
                if not watch.may_retry(error):
                    raise translate(error) from None
            await asyncio.sleep(watch.PAUSE_S)

    async def _call(
        self,
        method: Callable[..., Any],
        request: Any,
        deadline: float | None,
        enough: Callable[[], Awaitable[bool]] | None = None,
    ) -> Any:
        """Client._call's rules."""
        retries = Retries(deadline, self._timeout)
        while True:
            left = retries.left()
            call = method(request, timeout=left)
            try:
                if enough is not None and left is not None:
                    done, _ = await asyncio.wait([asyncio.create_task(call.code())], timeout=left / 2)
                    if not done and await enough():
                        raise Unavailable("DEADLINE_EXCEEDED", "no answer within half of the time")
                return await call
            except grpc.RpcError as error:
                if not retries.may_retry(error) or (retries.failures == 1 and enough is not None and await enough()):
                    raise translate(error) from None
            finally:
                call.cancel()  # where it has not ended
            await asyncio.sleep(retries.pause())
