"""The API's messages, made from what callers give and made into what they get."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from convtune.answers import Answer, Candidate, Constraints, Result
from convtune.errors import ConvtuneError
from convtune.problem import Problem
from convtune.v1 import problem_pb2, record_pb2, tuning_pb2, tuning_service_pb2

_MAX_PROBLEMS = 10_000  # of one request
_MAX_BYTES = (4 << 20) - (64 << 10)
_BYTES_PER_PROBLEM = 16  # tags and lengths around the text


def texts(problems: Iterable[Problem | str]) -> list[str]:
    """In the text form."""
    if isinstance(problems, (str, Problem)):
        problems = [problems]  # not its characters
    return [str(problem) for problem in problems]


def is_text(text: str) -> bool:
    """False for what no message can hold: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def split(of: list[str]) -> list[list[str]]:
    """Into requests of at most 10,000 problems and 4 MiB."""
    parts: list[list[str]] = []
    size = 0
    for text in of:
        more = len(text.encode(errors="surrogatepass")) + _BYTES_PER_PROBLEM
        if not parts or len(parts[-1]) == _MAX_PROBLEMS or size + more > _MAX_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += more
    return parts


def specs(of: list[str]) -> list[Any]:
    """ValueError names the problem that is no text."""
    for place, text in enumerate(of):
        if not is_text(text):
            raise ValueError(f"problems[{place}]: must be valid UTF-8, is {text!r}")
    return [problem_pb2.ProblemSpec(text=text) for text in of]


def constraints(of: Constraints) -> Any:
    message = tuning_pb2.Constraints(
        deterministic=of.deterministic,
        forbid_tf32=of.forbid_tf32,
        forbid_down_convert=of.forbid_down_convert,
        forbid_winograd=of.forbid_winograd,
        forbid_fft=of.forbid_fft,
        forbid_reduced_precision_reduction=of.forbid_reduced_precision_reduction,
        api=f"API_{of.api.upper()}",
        launch=f"LAUNCH_MODE_{of.launch.upper()}",
        cache_state=f"CACHE_STATE_{of.cache_state.upper() or 'UNSPECIFIED'}",
    )
    if of.max_workspace_bytes is not None:
        message.max_workspace_bytes = int(of.max_workspace_bytes)
    if of.max_error is not None:
        message.max_error = float(of.max_error)
    return message


def result(message: Any) -> Result:
    if message.HasField("miss"):
        reason = _enum(tuning_service_pb2.MissReason, message.miss.reason, "MISS_REASON_")
        return Result(message.problem_text, None, reason, message.miss.message, source="daemon")
    answer = message.answer
    return Result(
        message.problem_text,
        Answer(
            winner=_candidate(answer.winner),
            portfolio=tuple(_candidate(c) for c in answer.portfolio),
            evidence=_enum(record_pb2.Evidence, answer.evidence, "EVIDENCE_"),
            origin=_enum(record_pb2.Origin, answer.origin, "ORIGIN_"),
            environment=answer.environment,
            pinned=answer.pinned,
            note=answer.note,
        ),
        source="daemon",
    )


def _candidate(message: Any) -> Candidate:
    engine = message.HasField("engine_config")
    return Candidate(
        text=message.text,
        workspace_bytes=message.workspace_bytes,
        deterministic=message.deterministic,
        median_us=message.median_us,
        engine_index=message.engine_config.engine_index if engine else None,
        knobs=tuple(zip(message.engine_config.knob_types, message.engine_config.knob_values)),
        algorithm=None if engine else message.legacy_algorithm.algorithm,
        math_type=None if engine else message.legacy_algorithm.math_type,
    )


def _enum(enum: Any, number: int, prefix: str) -> str:
    return str(enum.Name(number))[len(prefix) :].lower()


def unavailable(result: Result, error: ConvtuneError) -> Result:
    """The miss of a problem that could not be asked for, with what the snapshot said of it."""
    why = f"{error}; {result.message}" if result.message else str(error)
    return dataclasses.replace(result, miss="unavailable", message=why, source="")


def each_by_itself(texts: list[str], ask: Callable[[list[str]], list[Result]]) -> list[Result]:
    """What `ask` answers; problems that it refuses are misses, and the others are asked again."""
    results: dict[int, Result] = {}
    for place, text in enumerate(texts):
        if not is_text(text):
            results[place] = Result(text, None, "refused", "must be valid UTF-8")
    while left := [place for place in range(len(texts)) if place not in results]:
        try:
            results.update(zip(left, ask([texts[place] for place in left])))
            break
        except ConvtuneError as error:
            refused = error.refused_problems(len(left))
            if not refused:
                raise
            for place, why in refused.items():
                results[left[place]] = Result(texts[left[place]], None, "refused", why, source="daemon")
    return [results[place] for place in range(len(texts))]
