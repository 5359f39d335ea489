"""The convolutions of a PyTorch model, seen while it runs.

Needs torch 1.13 or later. It sees what reaches ATen's convolution and
convolution_backward, so modules and torch.nn.functional calls alike.
"""

from __future__ import annotations

import collections
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode

from convtune.fusion import PLAIN, RUNTIMES, Does, forms, tail_of
from convtune.problem import ModelError, Problem, Workload, one_of

_TYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}

_FORWARD = ("convolution", "_convolution", "convolution_overrideable")


def problems(
    model: Any,
    example_inputs: Any = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    dtype: str | None = None,
    layout: str | None = None,
    runtime: str = "plain",
) -> Workload:
    """Every convolution that `model(*example_inputs, **example_kwargs)` runs, in
    evaluation mode. A tensor or a dict as `example_inputs` is one argument.

    Runs the model once, on the device and with the shapes of the inputs; inputs
    and parameters on the meta device, or fake ones (under FakeTensorMode), cost
    neither time nor memory. With `backward` also those of the gradient of the
    sum of its floating-point outputs, in the model's present mode, and the
    parameters' gradients are left as they were. `dtype` and `layout` replace
    what the tensors have. `runtime` is who runs the model, and so what is fused:
    "torchscript" after torch.jit.optimize_for_inference, "plain" otherwise, and the
    others of convtune.fusion.RUNTIMES. Several sizes are several calls, whose
    workloads add up. ModelError: this torch cannot run the model on the meta
    device, a lazy module has not run yet, or a tensor is empty. Whatever else the model
    raises is its own."""
    one_of("runtime", runtime, RUNTIMES)
    if backward and runtime != "plain":
        raise ValueError(f"runtime: must be plain with backward: a model that is trained is not fused, is {runtime!r}")
    inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    keywords = dict(example_kwargs or {})
    _refuse_lazy(model)
    recorder = _Recorder(dtype, layout, runtime)
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
    workload = recorder.workload()
    if not workload:
        workload.notices.append(workload.nothing_to_tune("model"))
    return workload


def _refuse_lazy(model: Any) -> None:
    """Torch gives such modules their weights in a way that cannot be watched on every device.
    After the first run they are of another class."""
    for name, module in getattr(model, "named_modules", list)():
        if isinstance(module, LazyModuleMixin) and (module.cls_to_become or module.has_uninitialized_params()):
            raise ModelError(
                f"model: {name or 'it'} ({type(module).__name__}) has no weights before its first run: call the model "
                "once, with inputs on its own device"
            )


def _run(model: Any, inputs: Sequence[Any], keywords: dict[str, Any], recorder: "_Recorder") -> None:
    training = getattr(model, "training", False)
    if training:
        model.eval()
    try:
        with torch.no_grad(), recorder:
            given = model(*inputs, **keywords)
        recorder.values.read(given)
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


class _Values:
    """Follows the outputs of convolutions while the model runs: which operations read them, and what these write. Values
    have numbers: a tensor that is written in place is another value."""

    _NORMS = ("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")

    def __init__(self) -> None:
        self.readers: list[list[tuple[Does, int]]] = []  # by value
        self._numbers: dict[int, tuple[Any, int]] = {}  # by id: a weak reference and the number

    def add(self, tensor: Any) -> int:
        self.readers.append([])
        self._numbers[id(tensor)] = weakref.ref(tensor), len(self.readers) - 1
        return len(self.readers) - 1

    def _of(self, value: Any) -> list[int]:
        """The numbers of the tensors in it that have one."""
        known = [(tensor, self._numbers[id(tensor)]) for tensor in _tensors(value) if id(tensor) in self._numbers]
        return [number for tensor, (reference, number) in known if reference() is tensor]

    def read(self, value: Any) -> None:
        """It is read by something that is never fused."""
        for number in self._of(value):
            self.readers[number].append(("other", -1))

    def see(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """An operation has run."""
        self.read([*args[1:], dict(kwargs)])
        numbers = self._of(args[:1])
        if len(numbers) != 1 or not isinstance(args[0], torch.Tensor):
            return self.read(args[:1])
        does = self._what(name, args)
        if args[0] is result:
            del self._numbers[id(result)]
        written = self.add(result[0] if name in self._NORMS else result) if does in ("bias", "add") else -1
        self.readers[numbers[0]].append((does, written))

    def _what(self, name: str, args: Sequence[Any]) -> Does:
        if name in ("relu", "relu_"):
            return "relu"
        if name in self._NORMS:
            return "other" if name != self._NORMS[1] and args[5] else "bias"  # while it is trained, or not
        if name not in ("add", "add_"):
            return "other"
        x, other = args[:2]
        return "add" if isinstance(other, torch.Tensor) and (other.shape, other.dtype) == (x.shape, x.dtype) else "other"


@dataclasses.dataclass
class _Run:
    """A convolution's problem, and the value that it writes; None for gradients and transposed ones."""

    problem: Problem
    value: int | None = None
    bias: bool = False


class _Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    def __init__(self, dtype: str | None, layout: str | None, runtime: str) -> None:
        super().__init__()
        self.values = _Values()
        self._runs: list[_Run] = []
        self._dtype = dtype
        self._layout = layout
        self._runtime = runtime

    def workload(self) -> Workload:
        """All that ran, in the order met."""
        found = Workload()
        layouts = collections.Counter(run.problem.layout for run in self._runs if not _fit_both(run.problem.x, run.problem.w, run.problem.y))
        if len(layouts) > 1:
            counts = " and ".join(f"{count} {layout}" for layout, count in sorted(layouts.items()))
            found.notices.append(
                f"model: its convolutions lie in two layouts, {counts}: model.to(memory_format=torch.channels_last) makes that one; "
                "layout= does here, for a program that has it so"
            )
        for run in self._runs:
            problem = run.problem
            known = [PLAIN]
            if run.value is not None:
                tail = tail_of(run.value, run.bias, self.values.readers.__getitem__)
                known = forms(self._runtime, tail, problem.dtype, problem.layout, len(problem.stride))
            for epilogue in known:
                found.add(dataclasses.replace(problem, epilogue=epilogue))
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")[1] if "." in str(func) else str(func)
        if name == "convolution_backward" and args[0].device.type == "meta":
            result = _meta_gradients(args[1], args[2], args[3], args[10])
        else:
            result = func(*args, **(kwargs or {}))
            if name in _FORWARD and not result.is_cuda:
                result = _as_cudnn_writes(result, *args[:2])
        self.values.see(name, args, kwargs or {}, result)
        if name in _FORWARD:
            x, w, bias, *geometry = args[:9]
            transposed = geometry[3]
            self._add(("bwd_data" if transposed else "fwd",), x, w, result, geometry)
            # TorchScript fuses filters of the ordinary layout alone.
            if not transposed and (self._runtime != "torchscript" or w.is_contiguous()):
                self._runs[-1].value = self.values.add(result)
                self._runs[-1].bias = bias is not None
        elif name == "convolution_backward":
            grad, x, w, _, *geometry, mask = args[:11]
            by_input = ("fwd" if geometry[3] else "bwd_data",) if mask[0] else ()
            by_weight = ("bwd_filter",) if mask[1] else ()
            self._add(by_input + by_weight, x, w, grad, geometry)
        return result

    def _add(self, operations: Sequence[str], x: Any, w: Any, y: Any, geometry: Sequence[Any]) -> None:
        stride, padding, dilation, transposed, _, groups = geometry
        if self._dtype is None and x.dtype == torch.float32 and _autocast_may_be_lost(x):
            raise ModelError(
                f"dtype: a convolution is f32 on {x.device}, within torch.autocast, which may give it another type on a GPU: name "
                'the type that it has there, such as dtype="f16", or dtype="f32" where autocast is disabled'
            )
        spatial = x.dim() - 2
        # The output of a transposed convolution is the forward input.
        forward_x = y if transposed else x
        if self._dtype is None and x.dtype not in _TYPES:
            raise ValueError(f"dtype: no cuDNN convolution has inputs of {x.dtype}")
        for operation in operations:
            try:
                problem = Problem(
                    operation=operation,
                    x=tuple(forward_x.shape),
                    w=tuple(w.shape),
                    pad_low=_spread(padding, spatial),
                    pad_high=_spread(padding, spatial),
                    stride=_spread(stride, spatial),
                    dilation=_spread(dilation, spatial),
                    groups=groups,
                    dtype=self._dtype or _TYPES[x.dtype],
                    layout=self._layout or _layout_of(x, w, y),
                )
            except ValueError as error:
                raise ModelError(f"model: a convolution of {tuple(x.shape)} by {tuple(w.shape)}: {error}") from None
            self._runs.append(_Run(problem))


def _as_cudnn_writes(y: Any, x: Any, w: Any) -> Any:
    """The output of a convolution in the layout that torch's call of cuDNN gives it. Elsewhere than on a GPU torch may look at the
    input alone, and what stands behind would be read in another layout."""
    if not _runs_channels_last(x, w) or _is_channels_last(y):
        return y
    return torch.empty_like(y, memory_format=torch.channels_last if y.dim() == 4 else torch.channels_last_3d).copy_(y)


def _meta_gradients(x: Any, w: Any, bias: Any, mask: Sequence[bool]) -> tuple[Any, Any, Any]:
    """The results of convolution_backward on the meta device, which torch 1.13 has no version of there."""
    return (
        torch.empty_like(x) if mask[0] else None,
        torch.empty_like(w) if mask[1] else None,
        w.new_empty(bias) if mask[2] else None,
    )


def _spread(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(values) * spatial if len(values) == 1 else tuple(values)


def _autocast_may_be_lost(x: Any) -> bool:
    """True within torch.autocast for a tensor elsewhere than on a GPU, whose types autocast for CUDA leaves alone. Within a dispatch
    its state says nothing, and without CUDA torch switches it off; the depth of the nesting is kept all the same."""
    if x.device.type == "cuda" and torch.cuda.is_available():
        return False
    torch.autocast_increment_nesting()
    return bool(torch.autocast_decrement_nesting() > 0)


def _is_channels_last(tensor: Any) -> bool:
    """By its strides, as torch decides it: is_channels_last_strides_2d of c10/core/MemoryFormat.h."""
    if tensor.dim() not in (4, 5) or tensor.stride(1) == 0:
        return False
    least = 0
    for dim in (1, *range(tensor.dim() - 1, 1, -1), 0):
        if tensor.stride(dim) < least or (dim == 0 and least == tensor.stride(1)):
            return False
        least = tensor.stride(dim) * max(tensor.shape[dim], 1)
    return True


def _runs_channels_last(x: Any, w: Any) -> bool:
    """As cudnn_conv_suggest_memory_format of ATen/native/ConvUtils.h: not in f64."""
    return bool(x.dtype != torch.float64) and (_is_channels_last(x) or _is_channels_last(w))


def _layout_of(x: Any, w: Any, y: Any) -> str:
    """torch gives cuDNN all three tensors in one layout. nchw where all three lie as both."""
    return "nchw" if not _runs_channels_last(x, w) or _fit_both(x.shape, w.shape, y.shape) else "nhwc"


def _fit_both(*shapes: Any) -> bool:
    """True if tensors of these shapes lie alike in nchw and nhwc."""
    return all(shape[1] == 1 or max(shape[2:]) == 1 for shape in shapes)
