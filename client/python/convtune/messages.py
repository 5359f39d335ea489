"""The API's messages, made from what callers give and made into what they get."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from convtune.answers import Answer, Ask, Candidate, Constraints, Environment, Result
from convtune.errors import ConvtuneError, Unavailable
from convtune.problem import Problem
from convtune.v1 import problem_pb2, record_pb2, tuning_pb2, tuning_service_pb2

CHANNEL = [
    ("grpc.max_receive_message_length", 256 << 20),
    # A daemon that starts is found soon by those who wait for it.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_MAX_PROBLEMS = 10_000  # of one request
_MAX_REPLY_BYTES = 64 << 20  # the daemon's most; the channel takes more
_MAX_BYTES = (4 << 20) - (64 << 10)
_BYTES_PER_PROBLEM = 16  # tags and lengths around the text


def texts(problems: Iterable[Problem | str]) -> list[str]:
    """In the text form. Half of a surrogate pair, which no message can hold, becomes a "?", which no problem has."""
    if isinstance(problems, (str, Problem)):
        problems = [problems]  # not its characters
    if not isinstance(problems, Iterable):
        raise TypeError(f"problems: must be texts or convtune.Problem, is {type(problems).__name__}")
    found = []
    for place, problem in enumerate(problems):
        if not isinstance(problem, (str, Problem)):
            raise TypeError(f"problems[{place}]: must be a text or a convtune.Problem, is {type(problem).__name__}")
        found.append(str(problem).encode(errors="replace").decode())
    return found


def split(of: list[str]) -> list[list[str]]:
    """Into requests of at most 10,000 problems and 4 MiB."""
    parts: list[list[str]] = []
    size = 0
    for text in of:
        more = len(text.encode()) + _BYTES_PER_PROBLEM
        if not parts or len(parts[-1]) == _MAX_PROBLEMS or size + more > _MAX_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += more
    return parts


def constraints(of: Constraints) -> Any:
    fields = dataclasses.asdict(of) | {
        "max_workspace_bytes": None if of.max_workspace_bytes is None else int(of.max_workspace_bytes),
        "max_error": None if of.max_error is None else float(of.max_error),
        "api": f"API_{of.api.upper()}",
        "launch": f"LAUNCH_MODE_{of.launch.upper()}",
        "cache_state": f"CACHE_STATE_{of.cache_state.upper() or 'UNSPECIFIED'}",
    }
    return tuning_pb2.Constraints(**fields)


def batch_get(environment: str, program: Environment, part: list[str], ask: Ask) -> Any:
    request = tuning_service_pb2.BatchGetRequest(
        environment=environment,
        program=own(program),
        problems=[problem_pb2.ProblemSpec(text=text) for text in part],
        max_reply_bytes=_MAX_REPLY_BYTES,
        constraints=constraints(ask.constraints),
        on_miss=f"ON_MISS_{ask.on_miss.upper()}",
        min_evidence=f"EVIDENCE_{ask.min_evidence.upper() or 'UNSPECIFIED'}",
    )
    if ask.max_age_s is not None:
        request.max_age.FromNanoseconds(int(ask.max_age_s * 1e9))
    return request


def create_job(environment: str, program: Environment, part: list[str], force: bool, budget_s: float | None) -> Any:
    request = tuning_service_pb2.CreateTuningJobRequest(
        environment=environment,
        program=own(program),
        problems=[problem_pb2.ProblemSpec(text=text) for text in part],
        force=force,
        priority="PRIORITY_INTERACTIVE",
    )
    if budget_s is not None:
        request.options.time_budget.FromNanoseconds(int(budget_s * 1e9))
    return request


def own(program: Environment) -> Any:
    """The part of a request about the program that sends it."""
    library = program.library_configuration
    known = "UNSPECIFIED" if library in ("", "unknown") else library.upper()
    fields = dataclasses.asdict(program) | {"name": "", "text": "", "library_configuration": f"LIBRARY_CONFIGURATION_{known}"}
    return record_pb2.Environment(**fields)


def environment(message: Any) -> Environment:
    library = _enum(record_pb2.LibraryConfiguration, message.library_configuration, "LIBRARY_CONFIGURATION_")
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(Environment)}
    return Environment(**fields | {"library_configuration": "unknown" if library == "unspecified" else library})


def results(response: Any, request: Any) -> list[Result]:
    """Of the first problems, at least of one: the daemon leaves out what would make its reply too long. ConvtuneError
    where the daemon, which knows fields below 10, does not know what was asked for."""
    for field, _ in request.ListFields():
        if field.number >= 10 and field.number not in response.known_fields:
            raise ConvtuneError("UNIMPLEMENTED", f"{field.name}: the daemon is too old to know it")
    gave, wanted = len(response.results), len(request.problems)
    if not 0 < gave <= wanted:
        raise ConvtuneError("INTERNAL", f"the daemon gave {gave} results for {wanted} problems")
    asked = environment(response.environment)
    return [_result(message, asked) for message in response.results]


def _result(message: Any, asked: Environment) -> Result:
    if message.HasField("miss"):
        miss = message.miss
        reason = _enum(tuning_service_pb2.MissReason, miss.reason, "MISS_REASON_")
        return Result(message.problem_text, None, reason, miss.message, "daemon", asked, miss.job)
    answer = message.answer
    return Result(
        message.problem_text,
        Answer(
            winner=_candidate(answer.winner),
            portfolio=tuple(_candidate(c) for c in answer.portfolio),
            evidence=_enum(record_pb2.Evidence, answer.evidence, "EVIDENCE_"),
            origin=_enum(record_pb2.Origin, answer.origin, "ORIGIN_"),
            pinned=answer.pinned,
            note=answer.note,
        ),
        source="daemon",
        environment=asked,
    )


def _candidate(message: Any) -> Candidate:
    engine = message.HasField("engine_config")
    return Candidate(
        text=message.text,
        workspace_bytes=message.workspace_bytes,
        deterministic=message.deterministic,
        median_us=message.median_us or None,
        engine_index=message.engine_config.engine_index if engine else None,
        knobs=tuple(zip(message.engine_config.knob_types, message.engine_config.knob_values)),
        algorithm=None if engine else message.legacy_algorithm.algorithm,
        math_type=None if engine else message.legacy_algorithm.math_type,
    )


def _enum(enum: Any, number: int, prefix: str) -> str:
    return str(enum.Name(number))[len(prefix) :].lower()


def unavailable(result: Result, error: ConvtuneError) -> Result:
    """The miss of a problem that could not be asked for, with what the snapshot said of it. Where a daemon was there,
    to ask again does not help: it refused the request."""
    if result.miss == "refused":
        return dataclasses.replace(result, source="")
    why = f"{error}; {result.message}" if result.message else str(error)
    miss = "unavailable" if isinstance(error, Unavailable) else "refused"
    miss = result.miss if result.miss == "other_environment" else miss
    return dataclasses.replace(result, miss=miss, message=why, source="")
