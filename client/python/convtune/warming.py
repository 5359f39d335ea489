"""A whole model, tuned before it is needed."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from convtune import messages, problem_key, sizes
from convtune.answers import EVIDENCE, Ask, Result
from convtune.client import Client, run
from convtune.problem import OPERATIONS, ModelError, Problem, Workload


@dataclasses.dataclass(frozen=True)
class Summary:
    """The outcome of warm."""

    problems: int
    hits: int  # had an answer before
    tuned: int  # have one now
    failures: dict[str, int]  # reason to number of problems
    notices: tuple[str, ...] = ()  # of the model: what is left out, and why
    # Answers of less evidence than --publish-evidence: unmodified programs are served none of them.
    not_published: int = 0

    @property
    def is_warm(self) -> bool:
        """False where there was nothing to tune, too."""
        return 0 < self.problems == self.hits + self.tuned

    def __str__(self) -> str:
        lines = [
            f"{self.problems} problems: {self.hits} had an answer, {self.tuned} were tuned, "
            f"{self.problems - self.hits - self.tuned} have none"
        ]
        lines += [f"  {count} x {reason}" for reason, count in sorted(self.failures.items())]
        if self.not_published:
            lines.append(
                f"not published: {self.not_published}, of less than --publish-evidence: unmodified programs are served "
                "none of them"
            )
        return "\n".join([*self.notices, *lines])


def warm(
    model: Any,
    client: Client | None = None,
    *,
    budget_s: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **reading: Any,
) -> Summary:
    """Tunes what the daemon has no answer for, those with the most work first,
    and waits for it. A second call asks only for what is missing.

    `model` is the path of an ONNX model, an onnx.ModelProto, a torch.nn.Module
    with `example_inputs`, a Workload, or problems: texts, Problem, or both. A text
    may leave sizes open (convtune.expand).
    `reading` are the keywords of convtune.onnx.problems or of
    convtune.torch.problems, such as `batch_sizes`.

    A problem that the daemon refuses counts as failed and the others are tuned. A
    model without a convolution that can be tuned is not warm; its notices say why.
    HEURISTIC answers count only where a profile stands in for a GPU. Raises
    ModelError, ConvtuneError, Unavailable."""
    problems, notices = _read(model, reading)
    ordered = _most_work_first(problems)
    client = client or Client()
    published = client.publish_evidence()

    def ask(texts: list[str]) -> dict[str, Result]:
        return dict(zip(texts, run(client._answers(texts, Ask(), client._timeout, refused_are_misses=True))))

    results = ask(ordered)
    cold = [text for text in ordered if _why_cold(results[text])]
    missing = [text for text in cold if results[text].miss != "refused"]
    if missing:
        client.tune(missing, budget_s=budget_s, on_progress=on_progress)
        results |= ask(missing)
    failures = collections.Counter(why for text in cold if (why := _why_cold(results[text])))
    answers = [result.answer for result in results.values() if result.answer is not None]
    not_published = sum(not answer.pinned and EVIDENCE.get(answer.evidence, 0) < published for answer in answers)
    tuned = len(cold) - failures.total()
    return Summary(len(ordered), len(ordered) - len(cold), tuned, dict(failures), tuple(notices), not_published)


def _why_cold(result: Result) -> str:
    """Empty for an answer that counts as warm."""
    if result.answer is None:
        return f"refused: {result.message}" if result.miss == "refused" else result.miss
    is_profile = result.environment is not None and result.environment.profile
    least = EVIDENCE["heuristic" if is_profile else "incomplete"]
    is_warm = result.answer.pinned or EVIDENCE.get(result.answer.evidence, 0) >= least
    return "" if is_warm else f"only {result.answer.evidence} evidence"


def _read(model: Any, reading: dict[str, Any]) -> tuple[Iterable[tuple[Problem | str, int]], list[str]]:
    """Problems, with how often each runs; and notices."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from convtune import torch as reader

        if "example_inputs" not in reading:
            raise ModelError("example_inputs: a PyTorch model is run to see its convolutions, and needs them")
        workload = reader.problems(model, **reading)
        return workload.items(), workload.notices
    is_problem = isinstance(model, str) and model.split(",")[0].strip() in OPERATIONS
    onnx = sys.modules.get("onnx")
    if (isinstance(model, (str, os.PathLike)) and not is_problem) or (
        onnx is not None and isinstance(model, onnx.ModelProto)
    ):
        workload = onnx_reader().problems(model, **reading)
        return workload.items(), workload.notices
    if reading:
        raise TypeError(f"warm() takes {', '.join(reading)} with a model only, not with problems")
    if isinstance(model, Workload):
        return model.items(), model.notices
    if is_problem or isinstance(model, Problem):
        model = [model]
    if not isinstance(model, Iterable):
        raise TypeError(
            "model: must be the path of an ONNX model, an onnx.ModelProto, a torch.nn.Module, a Workload or problems, "
            f"is {type(model).__name__}"
        )
    return [(text, 1) for text in messages.texts(model)], []


def onnx_reader() -> Any:
    """convtune.onnx. ModelError where the package onnx is not installed."""
    try:
        return importlib.import_module("convtune.onnx")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "onnx":  # before 1.15 parts of it are missing
            raise
        raise ModelError(f"{error}; install it with: pip install 'onnx>=1.15'") from None


def _most_work_first(problems: Iterable[tuple[Problem | str, int]]) -> list[str]:
    """Their texts, each problem once however it is written."""
    work: dict[bytes | str, float] = {}
    texts: dict[bytes | str, str] = {}
    for problem, count in problems:
        for text in _expanded(str(problem)):
            same, flops = _key(text)
            work[same] = work.get(same, 0.0) + count * flops
            texts.setdefault(same, text)
    return [texts[same] for same in sorted(work, key=lambda same: -work[same])]


def _expanded(text: str) -> list[str]:
    try:
        return sizes.expand(text)
    except ValueError as error:
        raise ModelError(f"problem {text!r}: {error}") from None


def _key(text: str) -> tuple[bytes | str, float]:
    try:
        key = problem_key.parse(text)
    except ValueError:
        return text, 0.0  # the daemon says what is wrong with it
    return key, problem_key.flops(key)


def read_list(path: str) -> Iterator[str]:
    """The problems of a list in the text form, a line each, where a line with open
    sizes is several; # begins a comment. ModelError names the line and the rule."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: is neither an ONNX model nor a list of problems") from None
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        try:
            expanded = sizes.expand(text)
            for one in expanded:
                problem_key.parse(one)
        except ValueError as error:
            raise ModelError(
                f"{path}:{number}: {error} (lists here are in the text form; the program `convtune warm` reads CSV "
                "and JSON lines, too)"
            ) from None
        yield from expanded
