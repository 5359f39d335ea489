"""Puts the winners that convtune measured in front of the cuDNN of ComfyUI's torch, under a limit on their workspace.

ComfyUI runs this script of a custom node before it imports torch. The node of this folder adds nothing to graphs:
engines are chosen for the whole process. Settings: $CONVTUNE_PRELOAD_MAX_WORKSPACE (256MiB), $CONVTUNE_SNAPSHOT.
"""

import logging
import os

import convtune.torch

# ComfyUI plans the card's memory itself, and no convolution should take it by surprise.
limit = os.environ.setdefault("CONVTUNE_PRELOAD_MAX_WORKSPACE", "256MiB")
try:
    convtune.torch.enable(policy="reorder")
    logging.info("convtune: stored winners come first, with a workspace of at most %s", limit)
except convtune.torch.NotEnabled as why:
    logging.warning("convtune: ComfyUI runs as without it: %s", why)
