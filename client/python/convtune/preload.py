"""Puts convtune's interposer in front of cuDNN in this process.

Import it before anything that loads cuDNN::

    import convtune.preload
    import torch

It loads ``libconvtune_preload.so`` with ``RTLD_GLOBAL``, so that libraries loaded later bind cuDNN's functions to it.
That works for programs that link cuDNN, such as PyTorch; those that look its functions up by name need
``convtune run --audit`` instead. Its behaviour is set by ``CONVTUNE_PRELOAD_*`` and ``CONVTUNE_SNAPSHOT``; see
deploy/docs/programs.md.

Importing never fails for want of the library: the program then runs as if nothing had been imported, a warning says so,
and :func:`active` is false.
"""

import warnings

from convtune import interposer
from convtune.interposer import LIBRARY, active, find_library, library_path

__all__ = ["LIBRARY", "active", "find_library", "library_path"]


def _reason() -> str:
    """Why nothing is served; empty if the library is in this process."""
    if active():
        return ""  # LD_PRELOAD was first
    if interposer.mapped("libcudnn.so") or interposer.mapped("libcudnn_graph.so"):
        return "cuDNN is loaded already, so that nothing is served; import it before torch"
    path = find_library()
    if path is None:
        return f"{LIBRARY} was not found, so that nothing is served; name it with CONVTUNE_PRELOAD_LIBRARY"
    try:
        interposer.load(path)
    except OSError as error:
        return f"{error}; nothing is served"
    return ""


if _why := _reason():
    warnings.warn(f"convtune.preload: {_why}", RuntimeWarning, stacklevel=2)
