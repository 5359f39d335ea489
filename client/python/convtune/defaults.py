"""Where a daemon and its snapshot are looked for when nobody says where."""

from __future__ import annotations

import os
import stat

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
    """$CONVTUNE_ADDRESS, else the socket of this user's own daemon if there is
    one, else the machine's. Without any, where this user's own would be."""
    named = os.environ.get("CONVTUNE_ADDRESS")
    if named:
        return named
    if os.geteuid() == 0:
        return f"unix:{SYSTEM_SOCKET}"
    runtime = _absolute("XDG_RUNTIME_DIR")
    folder = f"{runtime}/convtune" if runtime else f"/tmp/convtune-{os.geteuid()}"
    own = f"{folder}/convtune.sock"
    # In /tmp, whoever made the folder may listen in the daemon's place.
    is_safe = bool(runtime) or not os.path.lexists(folder) or _is_private(folder)
    if is_safe and (os.path.exists(own) or not os.path.exists(SYSTEM_SOCKET)):
        return f"unix:{own}"
    return f"unix:{SYSTEM_SOCKET}"


def snapshot_folder() -> str:
    """$CONVTUNE_SNAPSHOT, else the folder of this user's own daemon if it is
    there, else the machine's if it can be read. Without any, this user's own."""
    named = os.environ.get("CONVTUNE_SNAPSHOT")
    if named:
        return named
    service = _absolute("STATE_DIRECTORY").split(":")[0]  # systemd's: this is the daemon's own service
    if service:
        return f"{service}/snapshot"
    state = _absolute("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    own = f"{state}/convtune/snapshot"
    if not os.path.isdir(own) and os.path.isdir(SYSTEM_SNAPSHOT) and os.access(SYSTEM_SNAPSHOT, os.R_OK | os.X_OK):
        return SYSTEM_SNAPSHOT
    return own
