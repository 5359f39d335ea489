"""A convtune daemon, as seen by a Python program."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc

from convtune import defaults, messages
from convtune.answers import Ask, Demands, Environment, Result
from convtune.base import ClientBase, JobWatch, Retries
from convtune.errors import ConvtuneError, Unavailable, translate
from convtune.problem import Problem
from convtune.problem_key import canonical
from convtune.program import find, find_gpu, fits
from convtune.refresh import Refresh
from convtune.v1 import (
    maintenance_service_pb2,
    maintenance_service_pb2_grpc,
    release_service_pb2,
    release_service_pb2_grpc,
    tuning_service_pb2,
    tuning_service_pb2_grpc,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Client(ClientBase):
    """One connection to a daemon; connects at the first call. Thread-safe.

    `timeout` (seconds) is each call's, unless the call has its own; calls that
    wait for a worker have none by default. UNAVAILABLE is tried again until it
    ends, and nothing else is; a call without a time limit tries for `timeout`
    from when nobody answered first.

    Without `address`: $CONVTUNE_ADDRESS, else the socket of the user's own
    daemon, else the machine's. `snapshot` is the folder of the file that
    resolve() reads where no daemon answers; left out: $CONVTUNE_SNAPSHOT, else
    the first with a file of the user's own daemon's and the machine's.

    `environment` is a name or a text, where the daemon has several. `program` is
    the GPU and the cuDNN that answers are for: another environment's are misses,
    "other_environment". With `find_program`, whichever of the two is left out is
    looked for at each call: the cuDNN that is loaded, and the GPU of the calling
    thread's context, else the only kind that the process sees. Of what is not known
    then nothing is compared, and Result.environment says what an answer holds
    for."""

    _refresh: Refresh | None = None

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._connect()

    def _connect(self) -> None:
        self._channel = self._channel_by(grpc)
        self._tuning = tuning_service_pb2_grpc.TuningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._maintenance = maintenance_service_pb2_grpc.MaintenanceServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )
        self._release = release_service_pb2_grpc.ReleaseServiceStub(self._channel)  # type: ignore[no-untyped-call]

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
        on_miss: str = "none",
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> list[Result]:
        """The answers, in the order of the problems; a miss is a result, too.

        on_miss: none, heuristic, enqueue, tune. convtune.Demands describes the others.
        Raises ValueError for an argument, ConvtuneError (with `fields`) where the
        daemon refuses, Unavailable."""
        ask = Ask(on_miss=on_miss, **demands)
        deadline = self._deadline(ask, timeout)
        results: list[Result] = []
        program = self.program()
        for part in messages.split(messages.texts(problems)):
            results += self._get_part(part, program, ask, deadline)
        return results

    def _get_part(
        self,
        part: list[str],
        program: Environment,
        ask: Ask,
        deadline: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> list[Result]:
        request = messages.batch_get(self.environment, program, part, ask)
        return messages.results(self._call(lambda: self._tuning.BatchGet, request, deadline, enough), request)

    def _get_sound(self, problems: Iterable[Problem | str], *, timeout: float | None = None) -> list[Result]:
        """As get, but a problem that the daemon refuses is a miss of its own,
        "refused", and the others are answered."""
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        program = self.program()

        def ask(part: list[str]) -> list[Result]:
            return self._get_part(part, program, Ask(), deadline)

        return [r for part in messages.split(messages.texts(problems)) for r in messages.each_by_itself(part, ask)]

    def resolve(
        self,
        problems: Iterable[Problem | str],
        *,
        timeout: float = 1.0,
        **demands: Unpack[Demands],
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
        return self._resolve(problems, self.program(), Ask(on_miss="none", **demands), timeout)

    def _resolve(
        self,
        problems: Iterable[Problem | str],
        program: Environment,
        ask: Ask,
        timeout: float,
    ) -> list[Result]:
        deadline = time.monotonic() + timeout

        def answer(part: list[str]) -> list[Result]:
            stored: list[Result] = []

            def enough() -> bool:
                stored[:] = self._from_snapshot(part, program, ask)
                return all(result.answer for result in stored)

            try:
                return self._get_part(part, program, ask, deadline, enough)
            except Unavailable as error:
                if not stored or not all(result.answer for result in stored):
                    enough()
                return [r if r.answer else messages.unavailable(r, error) for r in stored]
            except ConvtuneError as error:
                if error.refused_problems(len(part)):
                    raise
                return [messages.unavailable(Result(canonical(text), None), error) for text in part]

        return [r for part in messages.split(messages.texts(problems)) for r in messages.each_by_itself(part, answer)]

    def start_refresh(
        self,
        problems: Iterable[Problem | str],
        changed: Callable[[list[Result]], None],
        *,
        period_s: float = 60.0,
        timeout: float = 1.0,
        **demands: Unpack[Demands],
    ) -> None:
        """Resolves again every `period_s` seconds on a thread of its own, each
        time for at most `timeout`, and gives `changed` those results that
        differ from the last ones: at first all that there are. A problem
        that could not be asked for keeps its last answer. The GPU is looked for
        here, on the calling thread, the cuDNN each time. An exception of `changed` is
        logged ("convtune"), and the refresh goes on. Replaces an earlier
        refresh. ValueError names the argument."""
        ask = Ask(on_miss="none", **demands)
        texts = messages.texts(problems)
        looks = self._find_program
        given = find_gpu(self._program) if looks else self._program
        refresh = Refresh(
            lambda: self._resolve(texts, find(given) if looks else given, ask, timeout),
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
    ) -> dict[str, str]:
        """Tunes what has no sufficient evidence, in this order, and waits for
        the end. Returns the reasons of the first failures, by problem. A daemon
        that stops meanwhile is waited for, and asked for the rest; Unavailable
        once nothing has moved for the client's `timeout`."""
        failures: dict[str, str] = {}
        for request, watch in self._jobs(problems, budget_s, force, on_progress):
            failures |= messages.failures(self._run_job(request, watch))
        return failures

    def _run_job(self, request: Any, watch: JobWatch) -> Any:
        """The job's last state."""
        while True:
            job = self._call(lambda: self._tuning.CreateTuningJob, request, time.monotonic() + self._timeout)
            try:
                for job in self._tuning.WatchTuningJob(tuning_service_pb2.WatchTuningJobRequest(name=job.name)):
                    watch.saw(job)
                return job
            except grpc.RpcError as error:
                if not watch.may_retry(error):
                    raise translate(error) from None
            self._pause(watch.PAUSE_S)

    def info(self) -> Any:
        """convtune.v1.ServerInfo."""
        request = maintenance_service_pb2.GetServerInfoRequest()
        return self._call(lambda: self._maintenance.GetServerInfo, request, time.monotonic() + self._timeout)

    def publish_evidence(self) -> int:
        """What a result needs to be in the snapshot, as a number of convtune.v1.Evidence."""
        request = release_service_pb2.GetPublicationRequest()
        publication = self._call(lambda: self._release.GetPublication, request, time.monotonic() + self._timeout)
        return int(publication.publish_evidence)

    def is_profile(self) -> bool:
        """True if a device profile stands in for the environment's GPU."""
        known, request = [], tuning_service_pb2.ListEnvironmentsRequest()
        while True:
            page = self._call(lambda: self._tuning.ListEnvironments, request, time.monotonic() + self._timeout)
            known += page.environments
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        program = self.program()
        chosen = [
            e
            for e in known
            if e.current and self.environment in ("", e.name, e.text) and fits(program, messages.environment(e))
        ]
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
        self,
        method: Callable[[], Any],
        request: Any,
        deadline: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> Any:
        """Tries again while no daemon answers. `enough` is asked whether that is needless: once
        after the first attempt failed, and where no answer came within half of the time."""
        retries = Retries(deadline, self._timeout)
        while True:
            self._look_again()
            left = retries.left()
            try:
                if enough is None or left is None:
                    return method()(request, timeout=left)
                call = method().future(request, timeout=left)
                try:
                    return call.result(timeout=left / 2)
                except grpc.FutureTimeoutError:
                    if enough():
                        call.cancel()
                        raise Unavailable("DEADLINE_EXCEEDED", "no answer within half of the time") from None
                    return call.result()
            except grpc.RpcError as error:
                if not retries.may_retry(error) or (retries.failures == 1 and enough is not None and enough()):
                    raise translate(error) from None
            self._pause(retries.pause())
