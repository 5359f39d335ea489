"""Loads convtune's interposer, libconvtune_preload.so, into this process."""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
from collections.abc import Iterator

from convtune import defaults

LIBRARY = "libconvtune_preload.so"
KILL_SWITCH = "disabled"  # a file in the snapshot folder
POLICIES = ("observe", "reorder", "truncate")

_loaded: str | None = None


class NotEnabled(RuntimeError):
    """The message says why this process is not served. It runs as it would without convtune."""


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


def mapped(name: str) -> str | None:
    """Path of a library of this process whose path has this in it; None without any."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = (line.rstrip("\n").split(maxsplit=5)[5:] for line in maps if name in line)
            return next((path[0] for path in paths if path), None)
    except OSError:
        return None


def active() -> bool:
    """True if the interposer is in this process, however it came there."""
    return _loaded is not None or mapped(LIBRARY) is not None


def load() -> str:
    """So that libraries loaded later bind cuDNN's functions to it. Returns its path. Raises NotEnabled."""
    global _loaded
    path = find_library()
    if path is None:
        raise NotEnabled(f"{LIBRARY} was not found; name it with CONVTUNE_PRELOAD_LIBRARY")
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NotEnabled(str(error)) from None
    _loaded = path
    return path


def check(folder: str, policy: str) -> str:
    """Raises NotEnabled where the interposer is switched off, or no process is served from the folder. Returns what else
    is worth a warning, or nothing."""
    off = os.environ.get("CONVTUNE_PRELOAD_OFF", "")
    for variable, value, leaves_on in (
        ("CONVTUNE_PRELOAD_OFF", off, off in ("", "0")),
        ("CONVTUNE_PRELOAD_POLICY", policy, policy in ("", *POLICIES)),
        ("CONVTUNE_SNAPSHOT", folder, os.path.isabs(folder) or not os.environ.get("CONVTUNE_SNAPSHOT")),
    ):
        if not leaves_on:
            raise NotEnabled(f"{variable} is {value!r}, which switches the interposer off")
    switch = os.path.join(folder, KILL_SWITCH)
    if os.path.exists(switch):
        raise NotEnabled(f"{switch} is there, which switches the interposer off")
    if policy == "observe":
        return ""  # which serves nothing
    path = os.path.join(folder, defaults.SNAPSHOT)
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise NotEnabled(
            f"{path}: {error.strerror}; name the snapshot's folder with CONVTUNE_SNAPSHOT; `convtune doctor` prints it"
        ) from None
    from convtune.snapshot import Snapshot, SnapshotError

    try:
        choices = Snapshot(folder).choices
    except SnapshotError as error:
        raise NotEnabled(str(error)) from None
    return "" if choices else f"{path}: the snapshot holds 0 choices"


def library_path() -> str | None:
    """Path of the library that load() loaded; None if it loaded none."""
    return _loaded
