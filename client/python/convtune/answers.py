"""What is asked of an answer, and what an answer says."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Constraints:
    """What an answer must keep to; the default allows everything."""

    max_workspace_bytes: int | None = None
    deterministic: bool = False
    forbid_tf32: bool = False
    forbid_down_convert: bool = False
    forbid_winograd: bool = False
    forbid_fft: bool = False
    forbid_reduced_precision_reduction: bool = False
    api: str = "any"  # any, graph, legacy
    launch: str = "eager"  # eager, graph_capture


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run a problem. Either engine_index and knobs (a graph-API engine
    config), or algorithm and math_type (the legacy API)."""

    text: str
    workspace_bytes: int
    deterministic: bool
    median_us: float  # 0: not timed
    engine_index: int | None = None
    knobs: tuple[tuple[int, int], ...] = ()  # cudnnBackendKnobType_t, setting
    algorithm: int | None = None
    math_type: int | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """The winner and what stands behind it; see convtune.v1.Answer."""

    winner: Candidate
    portfolio: tuple[Candidate, ...]
    evidence: str  # heuristic, observed, incomplete, measured
    origin: str  # local, imported, fleet; empty: from the snapshot, which does not say
    environment: str
    pinned: bool
    note: str


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome for one problem: an answer, or why there is none."""

    problem: str
    answer: Answer | None
    miss: str = ""  # not_found, insufficient_evidence, no_candidate, tuning_failed, no_device, unavailable
    message: str = ""
    source: str = ""  # daemon, snapshot; empty: nobody was there to ask

    @property
    def winner(self) -> Candidate | None:
        return self.answer.winner if self.answer else None
