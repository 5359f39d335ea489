"""The convolutions of a PyTorch model, seen while it runs.

Needs torch 1.13 or later. What is seen is what reaches ATen's convolution and
convolution_backward, so modules and torch.nn.functional calls alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from convtune.problem import Problem, Workload

_TYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


def problems(
    model: Any,
    example_inputs: Any,
    *,
    backward: bool = False,
    dtype: str | None = None,
    layout: str | None = None,
) -> Workload:
    """Every convolution that `model(*example_inputs)` runs, in evaluation mode.

    Runs the model once, on the device and with the shapes of the inputs; inputs
    and parameters on the meta device cost neither time nor memory. With
    `backward` also those of the gradient of the sum of its floating-point
    outputs, in the model's present mode, and the parameters' gradients are left
    as they were. `dtype` and `layout` replace what the tensors have."""
    inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    recorder = _Recorder(dtype, layout)
    if not backward:
        training = getattr(model, "training", False)
        if training:
            model.eval()
        try:
            with torch.no_grad(), recorder:
                model(*inputs)
        finally:
            if training:
                model.train()
        return recorder.workload
    with torch.enable_grad(), recorder:
        total = sum(t.sum() for t in _tensors(model(*inputs)) if t.is_floating_point())
        wanted = [p for p in getattr(model, "parameters", list)() if p.requires_grad]
        wanted += [t for t in _tensors(inputs) if t.requires_grad]
        if not wanted or not isinstance(total, torch.Tensor):
            raise ValueError("backward: needs a floating-point output, and a parameter or input that requires a gradient")
        torch.autograd.grad(total, wanted, allow_unused=True)
    return recorder.workload


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for part in value for tensor in _tensors(part)]


class _Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    def __init__(self, dtype: str | None, layout: str | None) -> None:
        super().__init__()
        self.workload = Workload()
        self._dtype = dtype
        self._layout = layout

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).split(".")[1] if "." in str(func) else str(func)
        if name in ("convolution", "_convolution", "convolution_overrideable"):
            x, w, _, stride, padding, dilation, transposed, _, groups = args[:9]
            self._add(("bwd_data" if transposed else "fwd",), x, w, result, stride, padding, dilation, transposed, groups)
        elif name == "convolution_backward":
            grad, x, w, _, stride, padding, dilation, transposed, _, groups, mask = args[:11]
            by_input = ("fwd" if transposed else "bwd_data",) if mask[0] else ()
            by_weight = ("bwd_filter",) if mask[1] else ()
            self._add(by_input + by_weight, x, w, grad, stride, padding, dilation, transposed, groups)
        return result

    def _add(
        self,
        operations: Sequence[str],
        x: Any,
        w: Any,
        y: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        groups: int,
    ) -> None:
        spatial = x.dim() - 2
        # What a transposed convolution writes is the forward input.
        forward_x = y if transposed else x
        if self._dtype is None and x.dtype not in _TYPES:
            raise ValueError(f"dtype: no cuDNN convolution has inputs of {x.dtype}")
        for operation in operations:
            self.workload.add(
                Problem(
                    operation=operation,
                    x=tuple(forward_x.shape),
                    w=tuple(w.shape),
                    pad_low=_spread(padding, spatial),
                    pad_high=_spread(padding, spatial),
                    stride=_spread(stride, spatial),
                    dilation=_spread(dilation, spatial),
                    groups=groups,
                    dtype=self._dtype or _TYPES[x.dtype],
                    layout=self._layout or _layout_of(x, w),
                )
            )


def _spread(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(values) * spatial if len(values) == 1 else tuple(values)


def _layout_of(*tensors: Any) -> str:
    """nhwc if one of them lies so and not also as nchw."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for tensor in tensors:
        channels_last = formats.get(tensor.dim())
        if (
            channels_last is not None
            and tensor.is_contiguous(memory_format=channels_last)
            and not tensor.is_contiguous()
        ):
            return "nhwc"
    return "nchw"
