"""PyTorch: the stored winners in front of its cuDNN, and the convolutions of its models.

    import convtune.torch

    convtune.torch.enable()  # before torch
    import torch

Nothing here imports torch before :func:`problems` is used."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from convtune import defaults, interposer
from convtune.interposer import POLICIES, NotEnabled
from convtune.problem import ModelError, one_of

if TYPE_CHECKING:
    from convtune.torch.reader import problems

__all__ = ["ModelError", "NotEnabled", "enable", "problems"]

ALLOWED = ("notes", "workspace")


def enable(
    *, snapshot: str | os.PathLike[str] | None = None, policy: str = "", allow: Iterable[str] = ()
) -> str:
    """Puts convtune's interposer in front of the cuDNN that torch is going to load,
    as `convtune run` does for a whole program. Returns the path of its library.

    To be called before `import torch`. `snapshot` is the folder that a daemon
    publishes; left out: $CONVTUNE_SNAPSHOT, else the user's own daemon's and the
    machine's. `policy` is observe, reorder or truncate, `allow` of notes and
    workspace; left out: $CONVTUNE_PRELOAD_POLICY and $CONVTUNE_PRELOAD_ALLOW. These
    variables are set for this process and those that it starts.

    Raises NotEnabled, with the reason, where no winner would be served: the
    library or a sound snapshot is not there, cuDNN is loaded already, or the
    interposer is switched off: by CONVTUNE_PRELOAD_OFF, the file `disabled`, or a policy or folder
    that it does not take. (What is wrong with another of its variables it says on stderr, when
    cuDNN is first called.) A snapshot without a choice is a RuntimeWarning:
    what the program misses can still be learned. Raises ValueError for an argument. A program that
    can do without catches NotEnabled. A second call changes nothing."""
    wanted = _variables(snapshot, policy, allow)
    if interposer.active():
        differing = [name for name, value in wanted.items() if os.environ.get(name) != value]
        if differing:
            raise NotEnabled(f"the interposer is in this process already, with another {', '.join(differing)}")
        return interposer.mapped(interposer.LIBRARY) or interposer.LIBRARY
    _require_time(interposer.mapped("libcudnn"))
    warning = interposer.check(
        wanted.get("CONVTUNE_SNAPSHOT") or defaults.snapshot_folder(),
        wanted.get("CONVTUNE_PRELOAD_POLICY") or os.environ.get("CONVTUNE_PRELOAD_POLICY", ""),
    )
    path = interposer.load()
    os.environ.update(wanted)  # read at cuDNN's first call
    if warning:
        warnings.warn(f"convtune.torch: {warning}", RuntimeWarning, stacklevel=2)
    return path


def _variables(snapshot: str | os.PathLike[str] | None, policy: str, allow: Iterable[str]) -> dict[str, str]:
    allowed = [allow] if isinstance(allow, str) else list(allow)
    one_of("policy", policy, ("", *POLICIES))
    for one in allowed:
        one_of("allow", one, ALLOWED)
    variables = {"CONVTUNE_PRELOAD_POLICY": policy, "CONVTUNE_PRELOAD_ALLOW": ",".join(allowed)}
    if snapshot is not None:
        variables["CONVTUNE_SNAPSHOT"] = os.path.abspath(snapshot)
    return {name: value for name, value in variables.items() if value}


def _require_time(cudnn: str | None) -> None:
    """The interposer reaches only those who bind cuDNN's functions later."""
    if cudnn is not None:
        who = "torch has been imported and" if "torch" in sys.modules else "something"
        raise NotEnabled(f"{who} loaded cuDNN already ({cudnn}): call enable() before `import torch`")
    if "torch" in sys.modules:
        raise NotEnabled("torch has been imported, without cuDNN: it is a build for the CPU alone")


def __getattr__(name: str) -> Any:
    if name != "problems":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from convtune.torch import reader

    return reader.problems
