"""Puts convtune's interposer in front of cuDNN in this process.

Import it before anything that loads cuDNN::

    import convtune.preload
    import torch

It loads ``libconvtune_preload.so`` with ``RTLD_GLOBAL``, so that libraries loaded later bind cuDNN's functions to it.
That works for programs that link cuDNN, such as PyTorch; those that look its functions up by name need
``convtune run`` instead. Its behaviour is set by ``CONVTUNE_PRELOAD_*`` and ``CONVTUNE_SNAPSHOT``; see
deploy/docs/programs.md.

Importing never fails: where nothing is served, a warning says why, and the program runs as it would without convtune.
:func:`active` is false where the library is not in this process.
"""

import os
import warnings

from convtune import defaults, interposer
from convtune.interposer import LIBRARY, active, find_library, library_path

__all__ = ["LIBRARY", "active", "find_library", "library_path"]


def _reason() -> str:
    """Why nothing is served; empty if the library is in this process."""
    if active():
        return ""  # LD_PRELOAD was first
    if interposer.mapped("libcudnn.so") or interposer.mapped("libcudnn_graph.so"):
        return "cuDNN is loaded already, so that nothing is served; import it before torch"
    try:
        interposer.load()  # it stays, and reports what the program misses, where nothing is served
        return interposer.check(defaults.snapshot_folder(), os.environ.get("CONVTUNE_PRELOAD_POLICY", ""))
    except interposer.NotEnabled as why:
        return f"{why}; nothing is served"
    except ImportError:
        return ""  # the interposer needs none of the packages that read a snapshot here


if _why := _reason():
    warnings.warn(f"convtune.preload: {_why}", RuntimeWarning, stacklevel=2)
