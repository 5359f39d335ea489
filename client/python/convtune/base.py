"""What both clients do, however they wait."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc

from convtune import defaults, messages
from convtune.answers import Ask, Demands, Environment, Result
from convtune.errors import ConvtuneError, Unavailable, translate
from convtune.problem import Problem
from convtune.problem_key import canonical
from convtune.program import check, find
from convtune.snapshot import Current
from convtune.v1 import maintenance_service_pb2_grpc, release_service_pb2_grpc, tuning_service_pb2_grpc

if TYPE_CHECKING:
    from typing_extensions import Unpack

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_log = logging.getLogger("convtune")


class ClientBase:
    """The settings of Client and AsyncClient, and their calls as coroutines, which wait in _attempt, _watch, _pause and
    _beside alone: those of Client never suspend, and Client has them as plain functions."""

    _grpc: Any  # grpc or grpc.aio

    def __init__(
        self,
        address: str | None = None,
        *,
        environment: str = "",
        program: Environment = Environment(),
        find_program: bool = True,
        timeout: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        snapshot: str | None = None,
        use_snapshot: bool = True,
    ) -> None:
        check(program)
        self._named = address or os.environ.get("CONVTUNE_ADDRESS", "")
        self.address = self._named or defaults.address()
        self.environment = environment
        self._program = program
        self._find_program = find_program
        self._timeout = timeout
        self._credentials = credentials
        self._snapshot = Current(snapshot) if use_snapshot else None
        self._said_that_it_waits = False
        if credentials is None and not self.address.startswith("unix:"):
            raise ValueError(f"credentials: are needed for {self.address}, as TCP is served with mutual TLS only")
        self._connect()

    def _connect(self) -> None:
        """Makes the channel to `address`, which connects at the first call."""
        if self._credentials is not None:
            self._channel = self._grpc.secure_channel(self.address, self._credentials, options=messages.CHANNEL)
        else:
            self._channel = self._grpc.insecure_channel(self.address, options=messages.CHANNEL)
        self._stubs: list[Any] = [
            tuning_service_pb2_grpc.TuningServiceStub(self._channel),  # type: ignore[no-untyped-call]
            maintenance_service_pb2_grpc.MaintenanceServiceStub(self._channel),  # type: ignore[no-untyped-call]
            release_service_pb2_grpc.ReleaseServiceStub(self._channel),  # type: ignore[no-untyped-call]
        ]

    def _method(self, name: str) -> Any:
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))

    def _look_again(self) -> None:
        """Called before each attempt: the daemon may be at another address by now."""

    async def _attempt(
        self, method: str, request: Any, timeout: float | None, enough: Callable[[], Awaitable[bool]] | None
    ) -> Any:
        """One call. `enough` is asked where no answer came within half of the time; Unavailable if it says so."""
        raise NotImplementedError

    async def _watch(self, job: str, saw: Callable[[Any], None]) -> None:
        """Calls `saw` with each state of the job, until it has ended."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    async def _beside(self, function: Callable[..., list[Result]], *arguments: Any) -> list[Result]:
        """The result of a function that reads the disk, which can hang: no loop waits for it."""
        raise NotImplementedError

    def program(self) -> Environment:
        """The GPU and the cuDNN that answers are for now, as far as they are known."""
        return find(self._program) if self._find_program else self._program

    async def _get(
        self,
        problems: Iterable[Problem | str],
        *,
        on_miss: str = "none",
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> list[Result]:
        """The answers, in the order of the problems; a miss is a result, too.

        on_miss: none, heuristic, enqueue, tune. convtune.Demands describes the others.
        Raises ValueError for an argument, ConvtuneError (with `fields`) where the
        daemon refuses, Unavailable."""
        ask = Ask(on_miss=on_miss, **demands)
        if timeout is None and on_miss in ("none", "enqueue"):
            timeout = self._timeout  # the others are back when the worker is done
        return await self._answers(problems, ask, timeout, refused_are_misses=False)

    async def _answers(
        self, problems: Iterable[Problem | str], ask: Ask, timeout: float | None, refused_are_misses: bool
    ) -> list[Result]:
        """As get. With `refused_are_misses` a problem that the daemon refuses is a miss, "refused", and the others are
        answered."""
        deadline = None if timeout is None else time.monotonic() + timeout
        program = self.program()

        async def answer(part: list[str]) -> list[Result]:
            return await self._get_part(part, program, ask, deadline)

        return await _in_parts(problems, answer, refused_are_misses)

    async def _get_part(
        self,
        part: list[str],
        program: Environment,
        ask: Ask,
        deadline: float | None,
        enough: Callable[[], Awaitable[bool]] | None = None,
    ) -> list[Result]:
        """The results of the first problems of `part`, at least of one: the daemon may leave out the others."""
        request = messages.batch_get(self.environment, program, part, ask)
        return messages.results(await self._call("BatchGet", request, deadline, enough), request)

    async def _resolve(
        self, problems: Iterable[Problem | str], *, timeout: float = 1.0, **demands: Unpack[Demands]
    ) -> list[Result]:
        """As get, for a program that starts up: never raises what the daemon or
        its absence or a problem causes, and is back within `timeout` seconds
        and what it takes to read the snapshot file. ValueError is raised for an
        argument.

        Where no daemon answers, the snapshot file does (`Result.source`). If it
        has all that is asked for, that is at once, or, where a daemon is there and
        says nothing, after half of the time; else when the time is up. A problem that
        neither has is a miss with the reason "unavailable". A problem that
        the daemon refuses is a miss with the reason "refused" and what is wrong;
        the others are answered all the same."""
        return await self._resolve_for(self.program(), problems, Ask(on_miss="none", **demands), timeout)

    async def _resolve_for(
        self, program: Environment, problems: Iterable[Problem | str], ask: Ask, timeout: float
    ) -> list[Result]:
        deadline = time.monotonic() + timeout

        async def answer(part: list[str]) -> list[Result]:
            stored: list[Result] = []

            async def enough() -> bool:
                stored[:] = await self._beside(self._from_snapshot, part, program, ask)
                return all(result.answer for result in stored)

            try:
                return await self._get_part(part, program, ask, deadline, enough)
            except Unavailable as error:
                if not stored or not all(result.answer for result in stored):
                    await enough()
                return [r if r.answer else messages.unavailable(r, error) for r in stored]
            except ConvtuneError as error:
                if error.refused_problems(len(part)):
                    raise
                return [messages.unavailable(Result(canonical(text), None), error) for text in part]

        return await _in_parts(problems, answer, refused_are_misses=True)

    def _from_snapshot(self, part: list[str], program: Environment, ask: Ask) -> list[Result]:
        if self._snapshot is None:
            return [Result(canonical(text), None) for text in part]
        return self._snapshot.find(part, self.environment, program, ask)

    async def _tune(
        self,
        problems: Iterable[Problem | str],
        *,
        budget_s: float | None = None,
        force: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, str]:
        """Tunes what has no sufficient evidence, in this order, and waits for
        the end. Returns the reasons of the first failures, by problem. A daemon
        that stops meanwhile is waited for, and asked for the rest; Unavailable
        once nothing has moved for the client's `timeout`."""
        if budget_s is not None and not 0 < budget_s < 1e9:
            raise ValueError(f"budget_s: must be above 0, is {budget_s!r}")
        parts = messages.split(messages.texts(problems))
        total, before = sum(len(part) for part in parts), 0
        failures: dict[str, str] = {}
        for part in parts:
            request = messages.create_job(self.environment, self.program(), part, force, budget_s)
            job = await self._run_job(request, lambda ended: on_progress and on_progress(before + ended, total))
            failures |= {failure.problem_text: failure.reason for failure in job.failures}
            before += len(part)
        return failures

    async def _run_job(self, request: Any, progress: Callable[[int], object]) -> Any:
        """The job's last state. A job ends with its daemon, and the next daemon skips what is tuned already: so it is asked
        for again, until nothing has moved for the client's timeout."""
        job: Any = None
        lost: float | None = None  # since when nothing has moved

        def saw(state: Any) -> None:
            nonlocal job, lost
            job = state
            ended = job.succeeded_count + job.failed_count
            if ended > job.skipped_count:
                lost = None
            progress(ended)

        while True:
            job = await self._call("CreateTuningJob", request, time.monotonic() + self._timeout)
            try:
                await self._watch(job.name, saw)
                return job
            except grpc.RpcError as error:
                lost = time.monotonic() if lost is None else lost
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() - lost > self._timeout:
                    raise translate(error, self.address) from None
            await self._pause(_PAUSE_S)

    async def _call(
        self, method: str, request: Any, deadline: float | None, enough: Callable[[], Awaitable[bool]] | None = None
    ) -> Any:
        """UNAVAILABLE alone is tried again: until the deadline, or without one for the client's timeout from the first
        failure on. `enough` is asked whether that is needless: once after the first attempt failed, and where no answer
        came within half of the time."""
        pause, give_up, is_first = _PAUSE_S, deadline, True
        while True:
            self._look_again()
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            try:
                return await self._attempt(method, request, left, enough)
            except grpc.RpcError as error:
                why = translate(error, self.address)
                give_up = time.monotonic() + self._timeout if give_up is None else give_up
                wait = give_up - time.monotonic()
                if error.code() != grpc.StatusCode.UNAVAILABLE or wait <= pause:
                    raise why from None
                if is_first and enough is not None and await enough():
                    raise why from None
            if wait > 1 and not self._said_that_it_waits:
                self._said_that_it_waits = True
                _log.warning("%s; waiting for one, up to %.3g s", why, wait)
            is_first = False
            await self._pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)


async def _in_parts(
    problems: Iterable[Problem | str], ask: Callable[[list[str]], Awaitable[list[Result]]], refused_are_misses: bool
) -> list[Result]:
    """The results of `ask`, which gets as many problems as a request may have, and again those that it left out. With
    `refused_are_misses` the problems that it refuses are misses, and it gets the others again."""
    results: list[Result] = []
    for part in messages.split(messages.texts(problems)):
        found: dict[int, Result] = {}
        while left := [place for place in range(len(part)) if place not in found]:
            try:
                found.update(zip(left, await ask([part[place] for place in left])))
            except ConvtuneError as error:
                if not refused_are_misses or not (wrong := error.refused_problems(len(left))):
                    raise
                for place, why in wrong.items():
                    found[left[place]] = Result(part[left[place]], None, "refused", why, source="daemon")
        results += [found[place] for place in range(len(part))]
    return results
