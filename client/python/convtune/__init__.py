"""The fastest cuDNN algorithm of a convolution, from a convtune daemon.

    import convtune

    problems = convtune.onnx.problems("model.onnx", batch_sizes=[1, 8, 32])
    for result in convtune.Client().get(problems):
        print(result.problem, result.winner)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from convtune.problem import ModelError, Problem, Workload
from convtune.sizes import expand

if TYPE_CHECKING:
    from convtune import onnx, torch
    from convtune.aio import AsyncClient as AsyncClient
    from convtune.answers import Answer as Answer, Candidate as Candidate, Constraints as Constraints
    from convtune.answers import Demands as Demands, Environment as Environment, Result as Result
    from convtune.client import Client as Client
    from convtune.errors import ConvtuneError as ConvtuneError, Unavailable as Unavailable
    from convtune.warming import Summary as Summary, warm as warm

__version__ = "0.1.0"

# Loaded at first use, so that reading a model needs no gRPC.
_LATE = {
    **dict.fromkeys(["Answer", "Candidate", "Constraints", "Demands", "Environment", "Result"], "convtune.answers"),
    "AsyncClient": "convtune.aio",
    "Client": "convtune.client",
    **dict.fromkeys(["ConvtuneError", "Unavailable"], "convtune.errors"),
    **dict.fromkeys(["Summary", "warm"], "convtune.warming"),
}

__all__ = ["ModelError", "Problem", "Workload", "expand", *_LATE]

# They need the packages onnx and torch. Not in __all__: a star import would hide those.
_READERS = ("onnx", "torch")


def __getattr__(name: str) -> Any:
    if name in _READERS:
        return importlib.import_module(f"convtune.{name}")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
