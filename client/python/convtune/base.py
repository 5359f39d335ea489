"""The part of a client that does not depend on how it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from convtune import defaults, messages
from convtune.answers import Ask, Environment, Result
from convtune.problem import Problem
from convtune.problem_key import canonical
from convtune.program import check, find
from convtune.snapshot import Current

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class ClientBase:
    """The settings of Client and AsyncClient, and the rules that both keep to."""

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
        self._named = address or defaults.named_address()
        self.address = self._named or defaults.address()
        self.environment = environment
        self._program = program
        self._find_program = find_program
        self._timeout = timeout
        self._credentials = credentials
        self._snapshot = Current(snapshot) if use_snapshot else None
        if credentials is None and not self.address.startswith("unix:"):
            raise ValueError(f"credentials: are needed for {self.address}, as TCP is served with mutual TLS only")
        self._open()

    def _open(self) -> None:
        """Makes the channel to `address`, which connects at the first call."""
        raise NotImplementedError

    def _channel_by(self, module: Any) -> Any:
        """That of grpc or grpc.aio."""
        if self._credentials is not None:
            return module.secure_channel(self.address, self._credentials, options=messages.CHANNEL)
        return module.insecure_channel(self.address, options=messages.CHANNEL)

    def _from_snapshot(self, part: list[str], program: Environment, ask: Ask) -> list[Result]:
        if self._snapshot is None:
            return [Result(canonical(text), None) for text in part]
        return self._snapshot.find(part, self.environment, program, ask)

    def program(self) -> Environment:
        """The GPU and the cuDNN that answers are for now, as far as they are known."""
        return find(self._program) if self._find_program else self._program

    def _deadline(self, ask: Ask, timeout: float | None) -> float | None:
        """When a get() must be back; None: when the worker is done."""
        if timeout is None and ask.on_miss in ("none", "enqueue"):
            timeout = self._timeout
        return None if timeout is None else time.monotonic() + timeout

    def _jobs(
        self,
        problems: Iterable[Problem | str],
        budget_s: float | None,
        force: bool,
        on_progress: Callable[[int, int], None] | None,
    ) -> Iterator[tuple[Any, JobWatch]]:
        """The requests of a tune(), and for each a watch over its job."""
        messages.check_budget(budget_s)
        parts = messages.split(messages.texts(problems))
        total, before = sum(len(part) for part in parts), 0
        for part in parts:
            request = messages.create_job(self.environment, self.program(), part, force, budget_s)
            yield request, JobWatch(self._timeout, before, total, on_progress)
            before += len(part)


class Retries:
    """The attempts of one call. UNAVAILABLE alone is tried again: until the deadline, or without one for `timeout`
    from the first failure on."""

    def __init__(self, deadline: float | None, timeout: float) -> None:
        self._deadline = deadline
        self._give_up = deadline
        self._timeout = timeout
        self._pause = _PAUSE_S
        self.failures = 0

    def left(self) -> float | None:
        """Seconds for the next attempt; None: no limit."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.001)

    def may_retry(self, error: grpc.RpcError) -> bool:
        """Counts an attempt that failed; false if it was the last."""
        self.failures += 1
        if self._give_up is None:
            self._give_up = time.monotonic() + self._timeout
        return error.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() + self._pause < self._give_up

    def pause(self) -> float:
        """Seconds to wait before the next attempt, each time twice as many."""
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_S)
        return pause


class JobWatch:
    """Follows a job of tune(). A job ends with its daemon, and the next daemon skips what is tuned already: so it is asked
    for again, until nothing has moved for `timeout`."""

    PAUSE_S = _PAUSE_S  # before it is asked for again

    def __init__(
        self, timeout: float, before: int, total: int, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._timeout = timeout
        self._before = before
        self._total = total
        self._on_progress = on_progress
        self._lost: float | None = None  # since when nothing has moved

    def saw(self, job: Any) -> None:
        """Takes a state of the job that the daemon sent."""
        ended = job.succeeded_count + job.failed_count
        if ended > job.skipped_count:
            self._lost = None
        if self._on_progress is not None:
            self._on_progress(self._before + ended, self._total)

    def may_retry(self, error: grpc.RpcError) -> bool:
        """False if the watch that ended with `error` is not worth another job."""
        self._lost = time.monotonic() if self._lost is None else self._lost
        return error.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() - self._lost <= self._timeout
