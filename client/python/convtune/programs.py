"""Starts the programs that the wheel of deploy/build-wheel carries."""

from __future__ import annotations

import os
import signal
import sys


def _cudnn_folder() -> str | None:
    """That of the wheel nvidia-cudnn, which PyTorch loads, too."""
    folders = (os.path.join(path, "nvidia", "cudnn", "lib") for path in sys.path)
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "libcudnn.so.9"))), None)


def _run(name: str) -> None:
    # Python ignores these, and whoever is started would, too.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(program, [program, *sys.argv[1:]])


def convtune() -> None:
    _run("convtune")


def convtuned() -> None:
    # As in PyTorch, whose libraries name this folder, the wheel's cuDNN comes before any other.
    if folder := _cudnn_folder():
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{folder}:{others}" if others else folder
    _run("convtuned")
