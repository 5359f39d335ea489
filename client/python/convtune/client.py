"""A convtune daemon, as seen by a Python program."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import grpc

from convtune import defaults, messages
from convtune.answers import Ask, Demands, Result
from convtune.base import ClientBase
from convtune.errors import Unavailable
from convtune.problem import Problem
from convtune.program import find, find_gpu
from convtune.v1 import maintenance_service_pb2, release_service_pb2, tuning_service_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack

_T = TypeVar("_T")
_P = ParamSpec("_P")


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("a call of Client has suspended")


def _waits(call: Callable[Concatenate[ClientBase, _P], Coroutine[Any, Any, _T]]) -> Callable[Concatenate[ClientBase, _P], _T]:
    """The call `_name` as `name`, for a client whose coroutines never suspend."""

    @functools.wraps(call)
    def waiting(self: ClientBase, /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        return run(call(self, *arguments, **keywords))

    waiting.__name__ = call.__name__.removeprefix("_")
    return waiting


def _sign(result: Result) -> tuple[str, str]:
    """Two results with the same one do not differ."""
    return (result.answer.winner.text, result.answer.evidence) if result.answer else ("", result.miss)


class _Refresh(threading.Thread):
    """A thread that asks every `period_s` seconds and says what changed. It
    keeps no program from ending."""

    def __init__(
        self, ask: Callable[[], list[Result]], changed: Callable[[list[Result]], None], period_s: float
    ) -> None:
        if not (period_s > 0 and math.isfinite(period_s)):
            raise ValueError(f"period_s: must be above 0, is {period_s!r}")
        super().__init__(name="convtune-refresh", daemon=True)
        self._ask = ask
        self._changed = changed
        self._period_s = period_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        if self is not threading.current_thread():
            self.join()

    def run(self) -> None:
        last: dict[int, tuple[str, str]] = {}  # by place
        while not self._stopping.is_set():
            try:
                # A problem that could not be asked for keeps its last answer.
                now = {place: result for place, result in enumerate(self._ask()) if result.source}
                differ = [result for place, result in now.items() if _sign(result) != last.get(place)]
                last |= {place: _sign(result) for place, result in now.items()}
                if differ and not self._stopping.is_set():
                    self._changed(differ)
            except Exception:  # the callback's, or a closed channel's: the next round may go better
                logging.getLogger("convtune").exception("a refresh failed")
            self._stopping.wait(min(self._period_s, threading.TIMEOUT_MAX))


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

    _grpc = grpc
    _lock = threading.Lock()
    _refresh: _Refresh | None = None

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

    get = _waits(ClientBase._get)
    resolve = _waits(ClientBase._resolve)
    tune = _waits(ClientBase._tune)

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
        refresh = _Refresh(
            lambda: run(self._resolve_for(find(given) if looks else given, texts, ask, timeout)),
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

    def info(self) -> Any:
        """convtune.v1.ServerInfo."""
        request = maintenance_service_pb2.GetServerInfoRequest()
        return run(self._call("GetServerInfo", request, time.monotonic() + self._timeout))

    def publish_evidence(self) -> int:
        """What a result needs to be in the snapshot, as a number of convtune.v1.Evidence."""
        request = release_service_pb2.GetPublicationRequest()
        return int(run(self._call("GetPublication", request, time.monotonic() + self._timeout)).publish_evidence)

    async def _attempt(
        self, method: str, request: Any, timeout: float | None, enough: Callable[[], Awaitable[bool]] | None
    ) -> Any:
        if enough is None or timeout is None:
            return self._method(method)(request, timeout=timeout)
        call = self._method(method).future(request, timeout=timeout)
        try:
            return call.result(timeout=timeout / 2)
        except grpc.FutureTimeoutError:
            if await enough():
                call.cancel()
                raise Unavailable("DEADLINE_EXCEEDED", "no answer within half of the time") from None
            return call.result()

    async def _watch(self, job: str, saw: Callable[[Any], None]) -> None:
        for state in self._method("WatchTuningJob")(tuning_service_pb2.WatchTuningJobRequest(name=job)):
            saw(state)

    async def _pause(self, seconds: float) -> None:
        """A sleep in which a connection can come about: without a call gRPC works on one every five seconds."""
        end = time.monotonic() + seconds
        request = maintenance_service_pb2.GetServerInfoRequest()
        with contextlib.suppress(grpc.RpcError):
            self._method("GetServerInfo")(request, timeout=seconds, wait_for_ready=True)
        time.sleep(max(end - time.monotonic(), 0))

    async def _beside(self, function: Callable[..., list[Result]], *arguments: Any) -> list[Result]:
        return function(*arguments)
