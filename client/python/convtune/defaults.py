"""Where a daemon and its snapshot are looked for when nobody says where."""

from __future__ import annotations

import os
import stat

SNAPSHOT = "current.snapshot"
SYSTEM_SOCKET = "/run/convtune/convtune.sock"
SYSTEM_SNAPSHOT = "/var/lib/convtune/snapshot"


def _absolute(variable: str) -> str:
    """Its value. The XDG base directory specification: relative paths are invalid and ignored."""
    value = os.environ.get(variable, "")
    return value if value.startswith("/") else ""


def _is_private(folder: str) -> bool:
    """True if it is a folder, not a link, that is this user's and that nobody else can write to."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def address() -> str:
    """The first that is a socket of this user's own daemon's and the machine's;
    without any, where this user's own would be."""
    runtime = _absolute("XDG_RUNTIME_DIR")
    own = f"{runtime}/convtune/convtune.sock" if runtime else f"/tmp/convtune-{os.geteuid()}/convtune.sock"
    paths = [SYSTEM_SOCKET] if os.geteuid() == 0 else [own, SYSTEM_SOCKET]
    for path in paths:
        # In /tmp, whoever made the folder may listen in the daemon's place.
        if path.startswith("/tmp/") and not _is_private(os.path.dirname(path)):
            continue
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return f"unix:{path}"
        except OSError:
            pass
    return f"unix:{paths[0]}"


def snapshot_folder() -> str:
    """$CONVTUNE_SNAPSHOT, else the first with a snapshot that can be read of
    this service's (systemd), this user's own daemon's and the machine's."""
    named = os.environ.get("CONVTUNE_SNAPSHOT")
    if named:
        return named
    state = _absolute("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    folders = [f"{state}/convtune/snapshot", SYSTEM_SNAPSHOT]
    if service := _absolute("STATE_DIRECTORY").split(":")[0]:
        folders.insert(0, f"{service}/snapshot")
    with_file = (folder for folder in folders if os.access(os.path.join(folder, SNAPSHOT), os.R_OK))
    there = (folder for folder in folders if os.access(folder, os.X_OK))
    return next(with_file, None) or next(there, folders[0])
