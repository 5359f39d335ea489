"""The demands on an answer, and the answer."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral, Real
from typing import TypedDict

from convtune.problem import one_of
from convtune.v1 import record_pb2

APIS = ("any", "graph", "legacy")
LAUNCHES = ("eager", "graph_capture")
CACHE_STATES = ("", "cold", "input_hot", "hot")
# heuristic, observed, incomplete, measured; higher is better.
EVIDENCE = {name.removeprefix("EVIDENCE_").lower(): number for name, number in record_pb2.Evidence.items() if number}
ON_MISS = ("none", "heuristic", "enqueue", "tune")


@dataclasses.dataclass(frozen=True)
class Constraints:
    """The limits of an answer; the default allows everything.

    Raises ValueError, naming the field and the rule."""

    max_workspace_bytes: int | None = None
    deterministic: bool = False
    forbid_tf32: bool = False
    forbid_down_convert: bool = False
    forbid_winograd: bool = False
    forbid_fft: bool = False
    forbid_reduced_precision_reduction: bool = False
    api: str = "any"  # any, graph, legacy
    launch: str = "eager"  # eager, graph_capture
    # Largest difference from a reference of higher precision, in units of the
    # reference's largest value. A candidate that was not compared does not keep to it:
    # none of a snapshot was, and none of a heuristic.
    max_error: float | None = None
    # Rank by times in this cache state where they were taken: cold, input_hot,
    # hot. Empty: as the tuning was ranked; a snapshot's choices always are.
    cache_state: str = ""

    def __post_init__(self) -> None:
        limit, error = self.max_workspace_bytes, self.max_error
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Integral) or not 0 <= limit < 2**63):
            raise ValueError(f"max_workspace_bytes: must be a whole number from 0 to 2^63-1, is {limit!r}")
        if error is not None and (
            isinstance(error, bool) or not isinstance(error, Real) or not math.isfinite(error) or error < 0
        ):
            raise ValueError(f"max_error: must be a finite number of at least 0, is {error!r}")
        for flag in dataclasses.fields(self)[1:7]:
            if not isinstance(getattr(self, flag.name), bool):
                raise ValueError(f"{flag.name}: must be True or False, is {getattr(self, flag.name)!r}")
        one_of("api", self.api, APIS)
        one_of("launch", self.launch, LAUNCHES)
        one_of("cache_state", self.cache_state, CACHE_STATES)


class Demands(TypedDict, total=False):
    """The keywords of Client.get(), resolve() and start_refresh() that say which answers will do.

    max_age_s: an answer of a tuning that is as old, in seconds, or older is a miss,
    "too_old"; a pin has no age."""

    constraints: Constraints
    min_evidence: str  # heuristic, observed, incomplete, measured; empty: any
    max_age_s: float | None


@dataclasses.dataclass(frozen=True)
class Ask:
    """What a caller asks of an answer: the arguments of Client.get() that a daemon judges.

    Raises ValueError, naming the field and the rule."""

    constraints: Constraints = Constraints()
    on_miss: str = "none"
    min_evidence: str = ""
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        one_of("on_miss", self.on_miss, ON_MISS)
        one_of("min_evidence", self.min_evidence, ("", *EVIDENCE))
        age = self.max_age_s
        if age is not None and (isinstance(age, bool) or not isinstance(age, Real) or not abs(age) < 2**33):
            raise ValueError(f"max_age_s: must be a number of seconds, is {age!r}")


@dataclasses.dataclass(frozen=True)
class Environment:
    """A GPU model and a cuDNN that answers hold for; as Client(program=), as much
    of that as is known: empty texts and 0 are not, and name and text are not read."""

    name: str = ""  # "nvidia-h200", "profile:nvidia-h200"
    text: str = ""  # the whole of it in one line
    profile: bool = False  # a device profile stands in for the GPU
    gpu_model: str = ""  # "NVIDIA H200", or as in `text`, "nvidia-h200"
    compute_capability: str = ""  # "9.0"
    sm_count: int = 0  # SMs that a process can use
    mig_profile: str = ""  # "1g.18gb"
    cudnn_version: str = ""  # "9.19.0"
    library_configuration: str = ""  # full, graph_jit_only, unknown


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run a problem. Either engine_index and knobs (a graph-API engine
    config), or algorithm and math_type (the legacy API)."""

    text: str
    workspace_bytes: int
    deterministic: bool
    median_us: float | None  # None: not timed
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
    pinned: bool
    note: str


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome for one problem: an answer, or why there is no answer."""

    problem: str  # canonical; a text that is not a valid problem stays as it was given
    answer: Answer | None
    # convtune.v1.MissReason in lower case, such as not_found: the daemon's. Of these
    # other_environment: the program has another GPU or another cuDNN than those that
    # there are answers for, whose engine numbers mean other things. refused: the text is
    # not a valid problem, or the daemon does not let the caller ask: `message` says why,
    # and asking again does not help. unavailable: no daemon answered, and no snapshot has it.
    miss: str = ""
    message: str = ""
    source: str = ""  # daemon, snapshot; empty: neither answered
    # The environment that was asked for the problem: an answer holds for it alone.
    # None: neither a daemon nor a snapshot answered.
    environment: Environment | None = None
    job: str = ""  # with on_miss="enqueue": "jobs/N", which tunes it

    @property
    def winner(self) -> Candidate | None:
        return self.answer.winner if self.answer else None
