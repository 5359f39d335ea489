"""A convtune daemon, as seen by a Python program."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from convtune import defaults, messages
from convtune.answers import EVIDENCE, ON_MISS, Constraints, Result, one_of
from convtune.errors import ConvtuneError, Unavailable, translate
from convtune.problem import Problem
from convtune.refresh import Refresh
from convtune.snapshot import Current
from convtune.v1 import (
    maintenance_service_pb2,
    maintenance_service_pb2_grpc,
    tuning_service_pb2,
    tuning_service_pb2_grpc,
)

_RETRY_PAUSE_S = 0.05
_MAX_RETRY_PAUSE_S = 1.0


class Client:
    """One connection to a daemon; connects at the first call. Thread-safe.

    `timeout` (seconds) is each call's, unless the call has its own; calls that
    wait for a worker have none by default. UNAVAILABLE is tried again until it
    ends, and nothing else is; a call without a time limit tries for `timeout`
    from when nobody answered first.

    Without `address`: $CONVTUNE_ADDRESS, else the socket of the user's own
    daemon, else the machine's. `snapshot` is the folder of the file that
    resolve() reads where no daemon answers; left out: $CONVTUNE_SNAPSHOT, else
    the first with a file of the user's own daemon's and the machine's."""

    def __init__(
        self,
        address: str | None = None,
        *,
        environment: str = "",
        timeout: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        snapshot: str | None = None,
        use_snapshot: bool = True,
    ) -> None:
        self._named = address or defaults.named_address()
        self._credentials = credentials
        self._lock = threading.Lock()
        self.environment = environment
        self._timeout = timeout
        self._snapshot = Current(snapshot, environment) if use_snapshot else None
        self._refresh: Refresh | None = None
        self.address = self._named or defaults.address()
        if credentials is None and not self.address.startswith("unix:"):
            raise ValueError(f"credentials: are needed for {self.address}, as TCP is served with mutual TLS only")
        self._connect()

    def _connect(self) -> None:
        options = [
            ("grpc.max_receive_message_length", 256 << 20),
            # A daemon that starts is found soon by those who wait for it.
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if self._credentials is not None:
            self._channel = grpc.secure_channel(self.address, self._credentials, options=options)
        else:
            self._channel = grpc.insecure_channel(self.address, options=options)
        self._tuning = tuning_service_pb2_grpc.TuningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._maintenance = maintenance_service_pb2_grpc.MaintenanceServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )

    def _look_again(self) -> None:
        """Nobody may have named the daemon, and its socket come to be only later."""
        if self._named:
            return
        address = defaults.address()
        with self._lock:
            if address != self.address:
                self.address = address
                self._connect()  # the other channel ends with the calls that are on it

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends a refresh, too, and waits for it."""
        self.stop_refresh()
        self._channel.close()

    def get(
        self,
        problems: Iterable[Problem | str],
        *,
        constraints: Constraints = Constraints(),
        on_miss: str = "none",
        min_evidence: str = "",
        timeout: float | None = None,
    ) -> list[Result]:
        """The answers, in the order of the problems; a miss is a result, too.

        on_miss: none, heuristic, enqueue, tune. min_evidence: heuristic,
        observed, incomplete, measured; empty: any. Raises ValueError for an
        argument, ConvtuneError (with `fields`) where the daemon refuses,
        Unavailable."""
        one_of("on_miss", on_miss, ON_MISS)
        one_of("min_evidence", min_evidence, ("", *EVIDENCE))
        if timeout is None and on_miss in ("none", "enqueue"):
            timeout = self._timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        results: list[Result] = []
        for part in messages.split(messages.texts(problems)):
            results += self._get_part(part, constraints, on_miss, min_evidence, deadline)
        return results

    def _get_part(
        self,
        part: list[str],
        constraints: Constraints,
        on_miss: str,
        min_evidence: str,
        deadline: float | None,
        enough: Callable[[], bool] = lambda: False,
    ) -> list[Result]:
        request = tuning_service_pb2.BatchGetRequest(
            environment=self.environment,
            problems=messages.specs(part),
            constraints=messages.constraints(constraints),
            on_miss=f"ON_MISS_{on_miss.upper()}",
            min_evidence=f"EVIDENCE_{min_evidence.upper() or 'UNSPECIFIED'}",
        )
        response = self._call(lambda: self._tuning.BatchGet, request, deadline, enough)
        return [messages.result(r) for r in response.results]

    def _get_sound(self, problems: Iterable[Problem | str], *, timeout: float | None = None) -> list[Result]:
        """As get, but a problem that the daemon refuses is a miss of its own,
        "refused", and the others are answered."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)

        def ask(part: list[str]) -> list[Result]:
            return self._get_part(part, Constraints(), "none", "", deadline)

        return [r for part in messages.split(messages.texts(problems)) for r in messages.each_by_itself(part, ask)]

    def resolve(
        self,
        problems: Iterable[Problem | str],
        *,
        constraints: Constraints = Constraints(),
        min_evidence: str = "",
        timeout: float = 1.0,
    ) -> list[Result]:
        """As get, for a program that starts up: never raises what the daemon or
        its absence or a problem causes, and is back within `timeout` seconds
        and what it takes to read the snapshot file. ValueError is raised for a
        `min_evidence` that is none.

        Where no daemon answers, the snapshot file does (`Result.source`): at
        once if it has all that is asked for, else when the time is up. What
        neither knows of is a miss with the reason "unavailable". A problem that
        the daemon refuses is a miss with the reason "refused" and what is wrong;
        the others are answered all the same."""
        one_of("min_evidence", min_evidence, ("", *EVIDENCE))
        deadline = time.monotonic() + timeout

        def ask(part: list[str]) -> list[Result]:
            stored: list[Result] = []

            def enough() -> bool:
                if self._snapshot is None:
                    stored[:] = [Result(text, None) for text in part]
                else:
                    stored[:] = self._snapshot.find(part, constraints, min_evidence)
                return all(result.answer for result in stored)

            try:
                return self._get_part(part, constraints, "none", min_evidence, deadline, enough)
            except Unavailable as error:
                if not stored or not all(result.answer for result in stored):
                    enough()
                return [r if r.answer else messages.unavailable(r, error) for r in stored]
            except ConvtuneError as error:
                if error.refused_problems(len(part)):
                    raise
                return [messages.unavailable(Result(text, None), error) for text in part]

        return [r for part in messages.split(messages.texts(problems)) for r in messages.each_by_itself(part, ask)]

    def start_refresh(
        self,
        problems: Iterable[Problem | str],
        changed: Callable[[list[Result]], None],
        *,
        constraints: Constraints = Constraints(),
        min_evidence: str = "",
        period_s: float = 60.0,
        timeout: float = 1.0,
    ) -> None:
        """Resolves again every `period_s` seconds on a thread of its own, each
        time for at most `timeout`, and gives `changed` those results that
        differ from the last ones: at first all that there are. What could not
        be asked for leaves the last answer as it was. What `changed` raises is
        logged ("convtune"), and the refresh goes on. Replaces an earlier
        refresh. ValueError names the argument."""
        one_of("min_evidence", min_evidence, ("", *EVIDENCE))
        texts = messages.texts(problems)
        refresh = Refresh(
            lambda: self.resolve(texts, constraints=constraints, min_evidence=min_evidence, timeout=timeout),
            changed,
            period_s,
        )
        self.stop_refresh()
        self._refresh = refresh
        refresh.start()

    def stop_refresh(self) -> None:
        """After it returns, the callback is not called again. Within the
        callback it does not wait for the end of that same call."""
        refresh, self._refresh = self._refresh, None
        if refresh is not None:
            refresh.stop()

    def tune(
        self,
        problems: Iterable[Problem | str],
        *,
        budget_s: float | None = None,
        force: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """Tunes what has no sufficient evidence, in this order, and waits for
        the end. Returns the first failures, each "problem: reason"."""
        if budget_s is not None and not 0 < budget_s < 1e9:
            raise ValueError(f"budget_s: must be above 0, is {budget_s!r}")
        failures: list[str] = []
        parts = messages.split(messages.texts(problems))
        total, before = sum(len(p) for p in parts), 0
        for part in parts:
            request = tuning_service_pb2.CreateTuningJobRequest(
                environment=self.environment,
                problems=messages.specs(part),
                force=force,
                priority="PRIORITY_INTERACTIVE",
            )
            if budget_s is not None:
                request.options.time_budget.FromNanoseconds(int(budget_s * 1e9))
            job = self._call(lambda: self._tuning.CreateTuningJob, request, time.monotonic() + self._timeout)
            try:
                for job in self._tuning.WatchTuningJob(tuning_service_pb2.WatchTuningJobRequest(name=job.name)):
                    if on_progress is not None:
                        on_progress(before + job.succeeded_count + job.failed_count, total)
            except grpc.RpcError as error:
                raise translate(error) from None
            before += len(part)
            failures += job.failures
        return failures

    def info(self) -> Any:
        """convtune.v1.ServerInfo."""
        request = maintenance_service_pb2.GetServerInfoRequest()
        return self._call(lambda: self._maintenance.GetServerInfo, request, time.monotonic() + self._timeout)

    def is_profile(self) -> bool:
        """True if a device profile stands in for the environment's GPU."""
        request = tuning_service_pb2.ListEnvironmentsRequest()
        listed = self._call(lambda: self._tuning.ListEnvironments, request, time.monotonic() + self._timeout)
        chosen = [e for e in listed.environments if e.current and self.environment in ("", e.name, e.text)]
        return bool(chosen) and all(e.profile for e in chosen)

    def _pause(self, seconds: float) -> None:
        """A sleep in which a connection can come about: without a call gRPC works on one every five seconds."""
        end = time.monotonic() + seconds
        with contextlib.suppress(grpc.RpcError):
            self._maintenance.GetServerInfo(
                maintenance_service_pb2.GetServerInfoRequest(), timeout=seconds, wait_for_ready=True
            )
        time.sleep(max(end - time.monotonic(), 0))

    def _call(
        self, method: Callable[[], Any], request: Any, deadline: float | None, enough: Callable[[], bool] = lambda: False
    ) -> Any:
        """Tries again while nobody answers, unless `enough`, asked once, says that it need not."""
        pause, give_up = _RETRY_PAUSE_S, deadline
        first = True
        while True:
            self._look_again()
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            try:
                return method()(request, timeout=left)
            except grpc.RpcError as error:
                if give_up is None:
                    give_up = time.monotonic() + self._timeout
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() + pause >= give_up:
                    raise translate(error) from None
                if first and enough():
                    raise translate(error) from None
                first = False
            self._pause(pause)
            pause = min(pause * 2, _MAX_RETRY_PAUSE_S)
