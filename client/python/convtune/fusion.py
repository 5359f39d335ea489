"""The cuDNN graphs that runtimes make of a convolution and what stands behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

PLAIN = ""

# What each of them makes of a convolution: "Fused operations" in README.md.
RUNTIMES = ("plain", "onnxruntime", "onnxruntime-fuse-bias", "torchscript", "fused")


@dataclasses.dataclass
class Tail:
    """The operations behind a forward convolution, where nothing else reads the values between."""

    bias: bool = False  # its own, or what is folded into one
    add: bool = False  # of a tensor of the output's shape, in front of the ReLU
    relu: bool = False


_Value = TypeVar("_Value")
# What an operation does with a value that it reads. bias and scale: what is folded into the convolution's own bias and
# weights; add: of a tensor of the output's shape; other: what nothing is fused with.
Does = Literal["relu", "bias", "scale", "add", "other"]


def tail_of(value: _Value, bias: bool, readers: Callable[[_Value], Sequence[tuple[Does, _Value]]]) -> Tail:
    """The tail of a convolution that writes the value. `readers` gives what each reader of a value does, and the value
    that it writes."""
    tail, added = Tail(bias=bias), False
    while len(steps := readers(value)) == 1:
        does, value = steps[0]
        if does == "relu":
            tail.relu, tail.add = True, added
        if added or does in ("relu", "other"):
            break
        tail.bias |= does == "bias"
        added = does == "add"
    return tail


def forms(runtime: str, tail: Tail, dtype: str, layout: str, spatial: int) -> list[str]:
    """The epilogues that the runtime may ask cuDNN for; PLAIN: without one. The likeliest
    comes first."""
    if runtime == "torchscript" and tail.relu and spatial > 1:
        return ["add+bias+relu"]
    if runtime == "fused":
        if tail.relu and (tail.add or tail.bias):
            return ["add+bias+relu" if tail.add else "bias+relu"]
        return ["bias"] if tail.bias else [PLAIN]
    if runtime.startswith("onnxruntime"):
        if tail.relu and dtype == "f32":
            return ["add+bias+relu" if tail.add or layout == "nchw" else "bias+relu", PLAIN]
        if runtime == "onnxruntime-fuse-bias" and tail.bias and layout == "nhwc" and dtype in ("f32", "f64"):
            return ["bias", PLAIN]
    return [PLAIN]
