"""Connections to a unix socket that another user makes: a forwarder that gives root up.

    python as_user.py UID GID LISTEN_PATH TARGET_PATH
"""

import os
import pathlib
import socket
import subprocess
import sys
import threading

from .daemon import wait_until


class AsUser:
    """`address` leads to a socket of the daemon's, with that user's credentials; needs root."""

    def __init__(self, daemon, target, uid, gid):
        path = daemon.directory / f"u-{target.name}"
        daemon.directory.chmod(0o755)
        self.address = f"unix:{path}"
        package = pathlib.Path(__file__).resolve().parent
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{package.name}.as_user", str(uid), str(gid), str(path), str(target)],
            cwd=package.parent,
        )
        wait_until(path.exists, 20, "the forwarder")

    def close(self):
        self._process.kill()
        self._process.wait()


def _copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _forward(uid, gid, listen_path, target_path):
    listener = socket.socket(socket.AF_UNIX)
    # Whoever waits for the path finds somebody who listens.
    listener.bind(listen_path + ".new")
    listener.listen()
    os.rename(listen_path + ".new", listen_path)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(target_path)
        except OSError:
            near.close()
            continue
        for ends in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=ends, daemon=True).start()


if __name__ == "__main__":
    _forward(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
