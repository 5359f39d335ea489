"""The cuDNN graphs that runtimes make of a convolution and what stands behind it."""

from __future__ import annotations

import dataclasses

PLAIN = ""

# plain: each convolution by itself, as PyTorch runs a model that is not frozen.
# onnxruntime: ONNX Runtime's CUDA provider. It fuses a ReLU, and an addition in
#   front of it, with convolutions of f32. In NCHW it always adds a tensor. Where
#   cuDNN has no engine for that it runs the convolution by itself: both come out.
# onnxruntime-fuse-bias: the same with its option fuse_conv_bias. In f16 and bf16
#   the value between has the type of the input, and cuDNN (9.19) lists no engine.
# torchscript: a model after torch.jit.optimize_for_inference, which makes a
#   convolution with a ReLU an addition, a bias and a ReLU.
# fused: a program of one's own that fuses all that a problem's epilogue can say.
RUNTIMES = ("plain", "onnxruntime", "onnxruntime-fuse-bias", "torchscript", "fused")


@dataclasses.dataclass
class Tail:
    """The operations behind a forward convolution, where nothing else reads the values between."""

    bias: bool = False  # its own, or what is folded into one
    add: bool = False  # of a tensor of the output's shape, in front of the ReLU
    relu: bool = False


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
