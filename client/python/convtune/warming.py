"""A whole model, tuned before it is needed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable

from convtune.client import Client
from convtune.problem import Problem, Workload

_EVIDENCE = {"heuristic": 10, "observed": 20, "incomplete": 30, "measured": 40}


@dataclasses.dataclass(frozen=True)
class Summary:
    """What warm found and did."""

    problems: int
    hits: int  # had an answer before
    tuned: int  # have one now
    failures: dict[str, int]  # reason to number of problems

    @property
    def is_warm(self) -> bool:
        return self.hits + self.tuned == self.problems

    def __str__(self) -> str:
        lines = [
            f"{self.problems} problems: {self.hits} had an answer, {self.tuned} were tuned, "
            f"{self.problems - self.hits - self.tuned} have none"
        ]
        return "\n  ".join(lines + [f"{count} x {reason}" for reason, count in sorted(self.failures.items())])


def warm(
    problems: Workload | Iterable[Problem],
    client: Client | None = None,
    *,
    budget_s: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Tunes what the daemon has no answer for, those with the most work first,
    and waits for it. A second call asks only for what is missing.

    HEURISTIC answers count only where a profile stands in for a card. Raises
    ConvtuneError, Unavailable."""
    workload = problems if isinstance(problems, Workload) else Workload(problems)
    client = client or Client()
    ordered = workload.most_work_first()
    least = _EVIDENCE["heuristic" if client.is_profile() else "incomplete"]

    def cold(asked: list[Problem]) -> list[tuple[Problem, str]]:
        found = []
        for problem, result in zip(asked, client.get(asked)):
            if result.answer is None:
                found.append((problem, result.miss))
            elif not result.answer.pinned and _EVIDENCE.get(result.answer.evidence, 0) < least:
                found.append((problem, f"only {result.answer.evidence} evidence"))
        return found

    missing = [problem for problem, _ in cold(ordered)]
    if missing:
        client.tune(missing, budget_s=budget_s, on_progress=on_progress)
    left = cold(missing) if missing else []
    failures = collections.Counter(reason for _, reason in left)
    return Summary(len(ordered), len(ordered) - len(missing), len(missing) - len(left), dict(failures))
