"""The convolutions of a PyTorch model, seen while it runs.

Needs torch 1.13 or later. What is seen is what reaches ATen's convolution and
convolution_backward, so modules and torch.nn.functional calls alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from convtune.problem import ModelError, Problem, Workload

_TYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


def problems(
    model: Any,
    example_inputs: Any = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    dtype: str | None = None,
    layout: str | None = None,
) -> Workload:
    """Every convolution that `model(*example_inputs, **example_kwargs)` runs, in
    evaluation mode. A tensor or a dict as `example_inputs` is one argument.

    Runs the model once, on the device and with the shapes of the inputs; inputs
    and parameters on the meta device, or fake ones (under FakeTensorMode), cost
    neither time nor memory. With `backward` also those of the gradient of the
    sum of its floating-point outputs, in the model's present mode, and the
    parameters' gradients are left as they were. `dtype` and `layout` replace
    what the tensors have. ModelError: this torch cannot run the model on the
    meta device. Whatever else the model raises is its own."""
    inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    keywords = dict(example_kwargs or {})
    recorder = _Recorder(dtype, layout)
    try:
        if backward:
            _run_with_gradients(model, inputs, keywords, recorder)
        else:
            _run(model, inputs, keywords, recorder)
    except NotImplementedError as error:
        if "meta" not in str(error).lower():
            raise
        raise ModelError(
            f"model: torch {torch.__version__} cannot run it on the meta device; on the CPU it can: "
            f"{str(error).split('. ')[0]}"
        ) from error
    return recorder.workload


def _run(model: Any, inputs: Sequence[Any], keywords: dict[str, Any], recorder: "_Recorder") -> None:
    training = getattr(model, "training", False)
    if training:
        model.eval()
    try:
        with torch.no_grad(), recorder:
            model(*inputs, **keywords)
    finally:
        if training:
            model.train()


def _run_with_gradients(model: Any, inputs: Sequence[Any], keywords: dict[str, Any], recorder: "_Recorder") -> None:
    with torch.enable_grad(), recorder:
        total = sum(t.sum() for t in _tensors(model(*inputs, **keywords)) if t.is_floating_point())
        wanted = [p for p in getattr(model, "parameters", list)() if p.requires_grad]
        wanted += [t for t in _tensors([*inputs, keywords]) if t.requires_grad]
        if not wanted or not isinstance(total, torch.Tensor):
            raise ValueError("backward: needs a floating-point output, and a parameter or input that requires a gradient")
        torch.autograd.grad(total, wanted, allow_unused=True)


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
        name = str(func).split(".")[1] if "." in str(func) else str(func)
        if name == "convolution_backward" and args[0].device.type == "meta":
            result = _meta_gradients(args[1], args[2], args[3], args[10])
        else:
            result = func(*args, **(kwargs or {}))
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


def _meta_gradients(x: Any, w: Any, bias: Any, mask: Sequence[bool]) -> tuple[Any, Any, Any]:
    """What convolution_backward gives on the meta device, which torch 1.13 has no version of there."""
    return (
        torch.empty_like(x) if mask[0] else None,
        torch.empty_like(w) if mask[1] else None,
        w.new_empty(bias) if mask[2] else None,
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
