"""Convolutions as cuDNN sees them, and how often a model runs each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from convtune import problem_key

OPERATIONS = ("fwd", "bwd_data", "bwd_filter")
DATA_TYPES = ("f64", "f32", "f16", "bf16", "i8", "e4m3", "e5m2")
LAYOUTS = ("nchw", "nhwc")
EPILOGUES = ("bias", "bias+relu", "add+bias+relu")


class ModelError(ValueError):
    """A model that cannot be read, or whose convolutions cannot be told."""


def one_of(field: str, value: object, allowed: Sequence[str]) -> None:
    """Raises ValueError unless it is."""
    if value not in allowed:
        raise ValueError(f"{field}: must be one of {', '.join(filter(None, allowed))}, is {value!r}")


def _dims(values: Sequence[int]) -> str:
    return "x".join(str(v) for v in values)


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    """One convolution. x and w are the forward shapes, whatever the operation:
    x is N, C, spatial; w is K, C/groups, spatial. `epilogue` is what the same
    cuDNN graph does with the output of a forward convolution, and `mid` the type
    in between. `out`, `acc` and `mid` are the defaults of the text form where they
    are empty. The daemon judges it."""

    operation: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    pad_low: tuple[int, ...]
    pad_high: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    dtype: str = "f32"
    layout: str = "nchw"
    epilogue: str = ""
    out: str = ""
    acc: str = ""
    mid: str = ""

    def __post_init__(self) -> None:
        one_of("operation", self.operation, OPERATIONS)
        one_of("dtype", self.dtype, DATA_TYPES)
        one_of("layout", self.layout, LAYOUTS)
        for name in ("out", "acc", "mid"):
            one_of(name, getattr(self, name), ("", "i32", *DATA_TYPES))
        one_of("epilogue", self.epilogue, ("", *EPILOGUES))
        if self.epilogue and self.operation != "fwd":
            raise ValueError(f"epilogue: must be left out for {self.operation}: forward only")
        if self.mid and not self.epilogue:
            raise ValueError("mid: must be left out without an epilogue")
        spatial = len(self.x) - 2
        if not 1 <= spatial <= 3 or len(self.w) != len(self.x):
            raise ValueError(f"x, w: must both have 3 to 5 dimensions, have {len(self.x)} and {len(self.w)}")
        for name in ("x", "w"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{name}: must be at least 1 in every dimension, is {_dims(getattr(self, name))}")
        for name in ("pad_low", "pad_high", "stride", "dilation"):
            if len(getattr(self, name)) != spatial:
                raise ValueError(f"{name}: must have {spatial} entries, has {len(getattr(self, name))}")

    def __str__(self) -> str:
        """The canonical text form, as the daemon answers with it; of what is no
        problem, a text form that the daemon refuses."""
        return problem_key.canonical(self._text())

    def _text(self) -> str:
        pads = "x".join(
            str(low) if low == high else f"{low}:{high}" for low, high in zip(self.pad_low, self.pad_high)
        )
        return (
            f"{self.operation},x={_dims(self.x)},w={_dims(self.w)},pad={pads},stride={_dims(self.stride)},"
            f"dilation={_dims(self.dilation)},groups={self.groups},{self.layout},{self.dtype}"
            + "".join(f",{name}={value}" for name in ("out", "acc", "mid", "epilogue") if (value := getattr(self, name)))
        )

    @property
    def y(self) -> tuple[int, ...]:
        """The forward output's shape: N, K, spatial."""
        spatial = (self.pad_low, self.pad_high, self.stride, self.dilation)
        return (self.x[0], self.w[0], *problem_key.outputs(self.x, self.w, *spatial))

    @property
    def flops(self) -> float:
        """Operations of the direct method, padding included."""
        return 2.0 * math.prod((*self.y, *self.w[1:]))


class Workload(Sequence[Problem]):
    """The distinct problems of a model in the order met, with how often each runs."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self._counts: dict[Problem, int] = {}
        self.notices: list[str] = []
        # Convolutions of the model that cuDNN cannot run, each with a notice.
        self.left_out = 0
        for problem in problems:
            self.add(problem)

    def add(self, problem: Problem, count: int = 1) -> None:
        self._counts[problem] = self._counts.get(problem, 0) + count

    def count(self, value: object) -> int:
        return self._counts.get(value, 0)  # type: ignore[call-overload, no-any-return]

    def items(self) -> Iterator[tuple[Problem, int]]:
        return iter(self._counts.items())

    def nothing_to_tune(self, model: str) -> str:
        """The notice for a model that gave an empty workload."""
        if self.left_out == 0:
            return f"{model}: there is nothing to tune: it has no convolution"
        return f"{model}: there is nothing to tune: 0 of {self.left_out} convolutions can be tuned"

    def most_work_first(self) -> list[Problem]:
        """Those that the model spends most on (count times flops) first."""
        return sorted(self._counts, key=lambda p: -self._counts[p] * p.flops)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return list(self._counts)[index]

    def __add__(self, other: "Workload") -> "Workload":
        both = Workload()
        for part in (self, other):
            for problem, count in part.items():
                both.add(problem, count)
            both.notices += [notice for notice in part.notices if notice not in both.notices]
            both.left_out += part.left_out
        return both

    def to_text(self) -> str:
        """A problem list that `convtune warm` reads: a line for each run."""
        return "".join(f"{problem}\n" * count for problem, count in self.items())
