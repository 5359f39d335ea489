"""A convtune daemon, as seen by a Python program."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from convtune import snapshot as _snapshot
from convtune.answers import Answer, Candidate, Constraints, Result
from convtune.problem import Problem
from convtune.v1 import (
    maintenance_service_pb2,
    maintenance_service_pb2_grpc,
    problem_pb2,
    tuning_pb2,
    tuning_service_pb2,
    tuning_service_pb2_grpc,
)

_MAX_PROBLEMS = 10_000  # of one request
_MAX_BYTES = (4 << 20) - (64 << 10)
_RETRY_PAUSE_S = 0.05
_MAX_RETRY_PAUSE_S = 1.0


class ConvtuneError(RuntimeError):
    """The daemon refused a call. `code` is gRPC's name, `fields` what is wrong by field path."""

    def __init__(self, code: str, message: str, fields: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message if not fields else "; ".join(f"{f}: {rule}" for f, rule in fields))
        self.code = code
        self.fields = list(fields)


class Unavailable(ConvtuneError):
    """No daemon could be reached in time, or it is stopping."""


def _constraints(of: Constraints) -> Any:
    message = tuning_pb2.Constraints(
        deterministic=of.deterministic,
        forbid_tf32=of.forbid_tf32,
        forbid_down_convert=of.forbid_down_convert,
        forbid_winograd=of.forbid_winograd,
        forbid_fft=of.forbid_fft,
        forbid_reduced_precision_reduction=of.forbid_reduced_precision_reduction,
        api=f"API_{of.api.upper()}",
        launch=f"LAUNCH_MODE_{of.launch.upper()}",
    )
    if of.max_workspace_bytes is not None:
        message.max_workspace_bytes = of.max_workspace_bytes
    return message


def _candidate(message: Any) -> Candidate:
    engine = message.HasField("engine_config")
    return Candidate(
        text=message.text,
        workspace_bytes=message.workspace_bytes,
        deterministic=message.deterministic,
        median_us=message.median_us,
        engine_index=message.engine_config.engine_index if engine else None,
        knobs=tuple((k.type, k.value) for k in message.engine_config.knobs),
        algorithm=None if engine else message.legacy_algorithm.algorithm,
        math_type=None if engine else message.legacy_algorithm.math_type,
    )


def _enum(enum: Any, number: int, prefix: str) -> str:
    return str(enum.Name(number))[len(prefix) :].lower()


def _result(message: Any) -> Result:
    if message.HasField("miss"):
        reason = _enum(tuning_service_pb2.MissReason, message.miss.reason, "MISS_REASON_")
        return Result(message.problem_text, None, reason, message.miss.message, source="daemon")
    answer = message.answer
    return Result(
        message.problem_text,
        Answer(
            winner=_candidate(answer.winner),
            portfolio=tuple(_candidate(c) for c in answer.portfolio),
            evidence=_enum(tuning_pb2.Evidence, answer.evidence, "EVIDENCE_"),
            origin=_enum(tuning_pb2.Origin, answer.origin, "ORIGIN_"),
            environment=answer.environment,
            pinned=answer.pinned,
            note=answer.note,
        ),
        source="daemon",
    )


def _violations(error: grpc.RpcError) -> list[tuple[str, str]]:
    """What google.rpc.BadRequest says, where googleapis-common-protos is installed."""
    try:
        from google.rpc import error_details_pb2, status_pb2
    except ImportError:
        return []
    found = []
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            bad = error_details_pb2.BadRequest()
            if detail.Unpack(bad):
                found += [(v.field, v.description) for v in bad.field_violations]
    return found


def _translate(error: grpc.RpcError) -> ConvtuneError:
    code = error.code()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Unavailable(code.name, error.details() or code.name)
    return ConvtuneError(code.name, error.details() or code.name, _violations(error))


def default_address() -> str:
    """$CONVTUNE_ADDRESS, else the socket that a daemon listens on by itself."""
    address = os.environ.get("CONVTUNE_ADDRESS")
    if address:
        return address
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() != 0 and runtime:
        own = f"{runtime}/convtune/convtune.sock"
        if os.path.exists(own):
            return f"unix:{own}"
    return "unix:/run/convtune/convtune.sock"


class Client:
    """One connection to a daemon; connects at the first call. Thread-safe.

    `timeout` (seconds) is each call's, unless the call has its own; calls that
    wait for a worker have none by default. UNAVAILABLE is tried again until it
    ends, and nothing else is.

    `snapshot` is the folder of the file that resolve() reads where no daemon
    answers; left out: $CONVTUNE_SNAPSHOT, else the daemon's own default."""

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
        self.address = address or default_address()
        self.environment = environment
        self._timeout = timeout
        self._snapshot_folder = snapshot
        self._use_snapshot = use_snapshot
        self._snapshot: _snapshot.Snapshot | None = None
        self._snapshot_file: tuple[int, int] | None = None
        self._snapshot_lock = threading.Lock()
        options = [
            ("grpc.max_receive_message_length", 256 << 20),
            # A daemon that starts is found soon by those who wait for it.
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if credentials is not None:
            self._channel = grpc.secure_channel(self.address, credentials, options=options)
        elif self.address.startswith("unix:"):
            self._channel = grpc.insecure_channel(self.address, options=options)
        else:
            raise ValueError(f"credentials: are needed for {self.address}, as TCP is served with mutual TLS only")
        self._tuning = tuning_service_pb2_grpc.TuningServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._maintenance = maintenance_service_pb2_grpc.MaintenanceServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
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

        on_miss: none, heuristic, enqueue, tune. Raises ConvtuneError, Unavailable."""
        if timeout is None and on_miss in ("none", "enqueue"):
            timeout = self._timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        results: list[Result] = []
        for part in _split([str(p) for p in problems]):
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
            problems=[problem_pb2.ProblemSpec(text=text) for text in part],
            constraints=_constraints(constraints),
            on_miss=f"ON_MISS_{on_miss.upper()}",
            min_evidence=f"EVIDENCE_{min_evidence.upper()}" if min_evidence else "EVIDENCE_UNSPECIFIED",
        )
        return [_result(r) for r in self._call(self._tuning.BatchGet, request, deadline, enough).results]

    def resolve(
        self,
        problems: Iterable[Problem | str],
        *,
        constraints: Constraints = Constraints(),
        min_evidence: str = "",
        timeout: float = 1.0,
    ) -> list[Result]:
        """As get, for a program that starts up: never raises what the daemon or
        its absence causes, and is back within `timeout` seconds.

        Where no daemon answers, the snapshot file does (`Result.source`): at
        once if it has all that is asked for, else when the time is up. What
        neither knows of is a miss with the reason "unavailable"; so is
        everything that the daemon refuses."""
        deadline = time.monotonic() + timeout
        results: list[Result] = []
        for part in _split([str(p) for p in problems]):
            stored: list[Result] = []

            def enough() -> bool:
                stored[:] = self._from_snapshot(part, constraints, min_evidence)
                return all(result.answer for result in stored)

            try:
                results += self._get_part(part, constraints, "none", min_evidence, deadline, enough)
            except ConvtuneError as error:
                if isinstance(error, Unavailable):
                    enough()
                else:  # the daemon is there and says what is wrong
                    stored = [Result(text, None) for text in part]
                for result in stored:
                    if result.answer is None:
                        why = f"{error}; {result.message}" if result.message else str(error)
                        result = dataclasses.replace(result, miss="unavailable", message=why, source="")
                    results.append(result)
        return results

    def _from_snapshot(self, texts: list[str], constraints: Constraints, min_evidence: str) -> list[Result]:
        if not self._use_snapshot:
            return [Result(text, None) for text in texts]
        try:
            snapshot = self._current_snapshot()
            return [snapshot.find(text, constraints, min_evidence) for text in texts]
        except _snapshot.SnapshotError as error:
            return [Result(text, None, message=str(error)) for text in texts]

    def _current_snapshot(self) -> _snapshot.Snapshot:
        """The file that is there now; read again only when it was replaced."""
        folder = self._snapshot_folder or _snapshot.default_folder()
        with self._snapshot_lock:
            identity = _snapshot.identity(folder)
            if self._snapshot is None or identity is None or identity != self._snapshot_file:
                self._snapshot = None
                self._snapshot = _snapshot.Snapshot(folder, self.environment)
                self._snapshot_file = identity
            return self._snapshot

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
        failures: list[str] = []
        parts = _split([str(p) for p in problems])
        total, before = sum(len(p) for p in parts), 0
        for part in parts:
            request = tuning_service_pb2.CreateTuningJobRequest(
                environment=self.environment,
                problems=[problem_pb2.ProblemSpec(text=text) for text in part],
                force=force,
                priority="PRIORITY_INTERACTIVE",
            )
            if budget_s is not None:
                request.options.time_budget.FromNanoseconds(int(budget_s * 1e9))
            job = self._call(self._tuning.CreateTuningJob, request, time.monotonic() + self._timeout)
            try:
                for job in self._tuning.WatchTuningJob(tuning_service_pb2.WatchTuningJobRequest(name=job.name)):
                    if on_progress is not None:
                        on_progress(before + job.succeeded_count + job.failed_count, total)
            except grpc.RpcError as error:
                raise _translate(error) from None
            before += len(part)
            failures += job.failures
        return failures

    def info(self) -> Any:
        """convtune.v1.ServerInfo."""
        request = maintenance_service_pb2.GetServerInfoRequest()
        return self._call(self._maintenance.GetServerInfo, request, time.monotonic() + self._timeout)

    def is_profile(self) -> bool:
        """True if a device profile stands in for the environment's card."""
        request = tuning_service_pb2.ListEnvironmentsRequest()
        listed = self._call(self._tuning.ListEnvironments, request, time.monotonic() + self._timeout)
        chosen = [e for e in listed.environments if e.current and self.environment in ("", e.name, e.text)]
        return bool(chosen) and all(e.profile for e in chosen)

    @staticmethod
    def _call(
        method: Any, request: Any, deadline: float | None, enough: Callable[[], bool] = lambda: False
    ) -> Any:
        """Tries again while nobody answers, unless `enough`, asked once, says that it need not."""
        pause, first = _RETRY_PAUSE_S, True
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            try:
                return method(request, timeout=left)
            except grpc.RpcError as error:
                out_of_time = deadline is not None and time.monotonic() + pause >= deadline
                if error.code() != grpc.StatusCode.UNAVAILABLE or deadline is None or out_of_time:
                    raise _translate(error) from None
                if first and enough():
                    raise _translate(error) from None
                first = False
            time.sleep(pause)
            pause = min(pause * 2, _MAX_RETRY_PAUSE_S)


def _split(texts: list[str]) -> list[list[str]]:
    """Into requests of at most 10,000 problems and 4 MiB."""
    parts: list[list[str]] = []
    size = 0
    for text in texts:
        more = len(text.encode()) + 16
        if not parts or len(parts[-1]) == _MAX_PROBLEMS or size + more > _MAX_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += more
    return parts
