"""Puts convtune's interposer in front of cuDNN in this process.

Import it before anything that loads cuDNN::

    import convtune.preload
    import torch

It loads ``libconvtune_preload.so`` with ``RTLD_GLOBAL``, so that libraries loaded later bind cuDNN's functions to it.
That works for programs that link cuDNN, such as PyTorch; those that look its functions up by name need
``convtune run --audit`` instead. What it does is set by ``CONVTUNE_PRELOAD_*`` and ``CONVTUNE_SNAPSHOT``; see
deploy/docs/programs.md.

Importing never fails for want of the library: the program then runs as if nothing had been imported, a warning says so,
and :func:`active` is false.
"""

import ctypes
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator

__all__ = ["LIBRARY", "active", "find_library", "library_path"]

LIBRARY = "libconvtune_preload.so"

_loaded: ctypes.CDLL | None = None
_path: str | None = None


def _folders() -> Iterator[pathlib.Path]:
    """Where the library may lie, in order."""
    here = pathlib.Path(__file__).resolve().parent
    yield here / "lib"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (pathlib.Path(folder) / "convtune").exists():
            prefix = pathlib.Path(folder).resolve().parent
            yield from (prefix / "lib", prefix / "lib64", *sorted(prefix.glob("lib/*-linux-gnu")), prefix / "lib/convtune")
    yield from (pathlib.Path(sys.prefix) / "lib", pathlib.Path("/usr/local/lib"))
    # In a source tree: client/python/convtune/.
    yield here.parents[2] / "build" / "lib"


def find_library() -> str | None:
    """The library's path, or None.

    ``CONVTUNE_PRELOAD_LIBRARY`` names it where it lies in none of the usual places.
    """
    named = os.environ.get("CONVTUNE_PRELOAD_LIBRARY")
    if named:
        return named
    for folder in _folders():
        if (folder / LIBRARY).is_file():
            return str(folder / LIBRARY)
    return None


def _is_mapped(name: str) -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(name in line for line in maps)
    except OSError:
        return False


def active() -> bool:
    """True if the interposer is in this process, by this module or by LD_PRELOAD."""
    return _loaded is not None or _is_mapped(LIBRARY)


def library_path() -> str | None:
    """Path of the library that this module loaded; None if it loaded none."""
    return _path


def _load() -> None:
    global _loaded, _path
    if _is_mapped(LIBRARY):
        return  # LD_PRELOAD was first
    if _is_mapped("libcudnn.so") or _is_mapped("libcudnn_graph.so"):
        warnings.warn(
            "convtune.preload: cuDNN is loaded already, so that nothing is served; import it before torch",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    path = find_library()
    if path is None:
        warnings.warn(
            f"convtune.preload: {LIBRARY} was not found, so that nothing is served; "
            "name it with CONVTUNE_PRELOAD_LIBRARY",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    try:
        _loaded = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        _path = path
    except OSError as error:
        warnings.warn(f"convtune.preload: {error}; nothing is served", RuntimeWarning, stacklevel=3)


_load()
