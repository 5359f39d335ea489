"""The convolutions of an ONNX model.

Needs the onnx package. Conv and ConvTranspose of any opset that it reads, in
the graph, in the bodies of If, Loop and Scan, and in local functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx.inliner
import onnx.shape_inference

from convtune.problem import ModelError, Problem, Workload

_TYPES: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "f64",
    onnx.TensorProto.FLOAT: "f32",
    onnx.TensorProto.FLOAT16: "f16",
    onnx.TensorProto.BFLOAT16: "bf16",
    onnx.TensorProto.FLOAT8E4M3FN: "e4m3",
    onnx.TensorProto.FLOAT8E5M2: "e5m2",
}
_OTHERS = ("ConvInteger", "QLinearConv", "DeformConv")
_DOMAINS = ("", "ai.onnx")


def problems(
    model: str | os.PathLike[str] | onnx.ModelProto,
    batch_sizes: Sequence[int] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    dtype: str | None = None,
    layout: str = "nchw",
    backward: bool = False,
) -> Workload:
    """Every convolution of the model, for each batch size.

    A symbolic first dimension of the inputs is the batch; where it is a number,
    `batch_sizes` must be left out or be that number. `dims` gives other symbolic
    dimensions by name. `dtype` replaces the model's own; `layout` is how the
    tensors will lie in memory (ONNX does not say). `backward` adds bwd_data and
    bwd_filter of each. Raises ModelError, naming the model and the node."""
    name = "model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    loaded = _load(model, name)
    workload = Workload()
    for batch in batch_sizes if batch_sizes is not None else [None]:
        sized = onnx.ModelProto()
        sized.CopyFrom(loaded)
        _set_dimensions(sized, name, batch, dims or {})
        try:
            inferred = onnx.shape_inference.infer_shapes(sized, strict_mode=True, data_prop=True)
        except Exception as error:  # its C++ exceptions have no common base
            raise ModelError(f"{name}: shape inference failed: {_first_line(error)}") from None
        for problem in _Graph(inferred.graph, name, None, workload.notices).problems(dtype, layout):
            for operation in (problem.operation, *_backward(problem.operation)) if backward else [problem.operation]:
                workload.add(Problem(**{**vars(problem), "operation": operation}))
    return workload


def _backward(operation: str) -> tuple[str, ...]:
    # The gradient of a transposed convolution by its input is the convolution.
    return ("bwd_data" if operation == "fwd" else "fwd", "bwd_filter")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _load(model: Any, name: str) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        loaded = model
    else:
        try:
            # Weights in files beside it are not needed: their shapes are in the model.
            loaded = onnx.load(name, load_external_data=False)
        except OSError as error:
            raise ModelError(f"{name}: cannot be read: {error.strerror}") from None
        except Exception:
            raise ModelError(f"{name}: is no ONNX model, or is cut short") from None
    if not loaded.graph.node:
        raise ModelError(f"{name}: is no ONNX model, or is cut short: its graph has no nodes")
    return onnx.inliner.inline_local_functions(loaded) if loaded.functions else loaded


def _set_dimensions(model: onnx.ModelProto, name: str, batch: int | None, dims: Mapping[str, int]) -> None:
    initialized = {i.name for i in model.graph.initializer}
    sizes = dict(dims)
    inputs = [i for i in model.graph.input if i.name not in initialized and i.type.HasField("tensor_type")]
    fixed = set()
    for value in inputs:
        shape = value.type.tensor_type.shape.dim
        if not shape:
            continue
        if shape[0].WhichOneof("value") == "dim_value":
            fixed.add(shape[0].dim_value)
        elif shape[0].dim_param:
            sizes.setdefault(shape[0].dim_param, batch or 1)
        else:
            shape[0].dim_value = batch or 1
    if batch is not None and fixed and batch not in fixed:
        raise ModelError(f"{name}: batch_sizes: the model has the fixed batch {min(fixed)}, asked for is {batch}")
    for value in inputs:
        for position, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.WhichOneof("value") == "dim_value":
                continue
            if dim.dim_param not in sizes:
                symbol = dim.dim_param or f"dimension {position}"
                raise ModelError(f"{name}: dims: input {value.name} needs a size for {symbol}")
            dim.dim_value = sizes[dim.dim_param]
    # What the exporter wrote down for one size does not hold for another.
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


class _Graph:
    """A graph, or a body within one, whose names are seen inside."""

    def __init__(self, graph: onnx.GraphProto, model: str, outer: "_Graph | None", notices: list[str]) -> None:
        self._graph = graph
        self._model = model
        self._outer = outer
        self._notices = notices
        self._values = {v.name: v.type.tensor_type for v in (*graph.input, *graph.output, *graph.value_info)}
        self._weights = {t.name: (list(t.dims), t.data_type) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in _DOMAINS and node.attribute:
                tensor = node.attribute[0].t
                self._weights[node.output[0]] = (list(tensor.dims), tensor.data_type)

    def problems(self, dtype: str | None, layout: str) -> Iterator[Problem]:
        for position, node in enumerate(self._graph.node):
            for attribute in node.attribute:
                for body in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
                    yield from _Graph(body, self._model, self, self._notices).problems(dtype, layout)
            if node.domain not in _DOMAINS:
                continue
            where = f"{self._model}: node {node.name or position} ({node.op_type})"
            if node.op_type in ("Conv", "ConvTranspose"):
                try:
                    yield self._problem(node, where, dtype, layout)
                except ValueError as error:
                    text = str(error)
                    raise ModelError(text if text.startswith(where) else f"{where}: {text}") from None
            elif node.op_type in _OTHERS:
                self._notices.append(f"{where}: left out, no cuDNN convolution has its types")

    def _tensor(self, name: str, where: str) -> tuple[list[int], int]:
        if name in self._weights:
            return self._weights[name]
        if name in self._values:
            tensor = self._values[name]
            shape = [d.dim_value if d.WhichOneof("value") == "dim_value" else 0 for d in tensor.shape.dim]
            if shape and min(shape) > 0:
                return shape, tensor.elem_type
        elif self._outer is not None:
            return self._outer._tensor(name, where)
        raise ModelError(f"{where}: the shape of {name} is not known")

    def _problem(self, node: onnx.NodeProto, where: str, dtype: str | None, layout: str) -> Problem:
        x, elem_type = self._tensor(node.input[0], where)
        w, _ = self._tensor(node.input[1], where)
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        spatial = len(x) - 2
        if spatial < 1 or len(w) != len(x):
            raise ModelError(f"{where}: input and weights must have as many dimensions, have {len(x)} and {len(w)}")
        stride = tuple(attributes.get("strides", [1] * spatial))
        dilation = tuple(attributes.get("dilations", [1] * spatial))
        groups = attributes.get("group", 1)
        if len(stride) != spatial or len(dilation) != spatial or min(*stride, *dilation, groups) < 1:
            raise ModelError(f"{where}: strides, dilations and group must be at least 1, one for each dimension")
        spans = [d * (k - 1) + 1 for k, d in zip(w[2:], dilation)]
        if node.op_type == "Conv":
            low, high = _conv_pads(attributes, x[2:], spans, stride, where)
            operation = "fwd"
            forward_x = tuple(x)
        else:
            # What it writes is the input of the convolution whose data gradient it is.
            low, high, out = _transposed_pads(attributes, x[2:], spans, stride, where)
            operation = "bwd_data"
            forward_x = (x[0], w[1] * groups, *out)
        if min(*low, *high) < 0:
            raise ModelError(f"{where}: pads: cuDNN has no negative ones, are {low} and {high}")
        if dtype is None and elem_type not in _TYPES:
            raise ModelError(f"{where}: no cuDNN convolution has inputs of type {onnx.TensorProto.DataType.Name(elem_type)}")
        return Problem(
            operation=operation,
            x=forward_x,
            w=tuple(w),
            pad_low=tuple(low),
            pad_high=tuple(high),
            stride=stride,
            dilation=dilation,
            groups=groups,
            dtype=dtype or _TYPES[elem_type],
            layout=layout,
        )


def _halves(total: int, more_at_end: bool) -> tuple[int, int]:
    less = total // 2
    return (less, total - less) if more_at_end else (total - less, less)


def _split_pads(pads: Sequence[int], spatial: int, where: str) -> tuple[list[int], list[int]]:
    if len(pads) != 2 * spatial:
        raise ModelError(f"{where}: pads must have {2 * spatial} entries, has {len(pads)}")
    return list(pads[:spatial]), list(pads[spatial:])


def _conv_pads(
    attributes: Mapping[str, Any], x: Sequence[int], spans: Sequence[int], stride: Sequence[int], where: str
) -> tuple[list[int], list[int]]:
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    if auto_pad in ("NOTSET", ""):
        return _split_pads(attributes.get("pads", [0] * 2 * len(x)), len(x), where)
    if auto_pad == "VALID":
        return [0] * len(x), [0] * len(x)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{where}: auto_pad: must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, is {auto_pad}")
    # The output has ceil(size / stride) elements.
    totals = [max((-(-size // s) - 1) * s + span - size, 0) for size, span, s in zip(x, spans, stride)]
    pairs = [_halves(total, auto_pad == "SAME_UPPER") for total in totals]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _transposed_pads(
    attributes: Mapping[str, Any], x: Sequence[int], spans: Sequence[int], stride: Sequence[int], where: str
) -> tuple[list[int], list[int], list[int]]:
    """Pads before and behind, and the output's size."""
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    extra = attributes.get("output_padding", [0] * len(x))
    whole = [s * (size - 1) + e + span for size, s, e, span in zip(x, stride, extra, spans)]
    out = attributes.get("output_shape")
    if out is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = [size * s for size, s in zip(x, stride)]
    if out is not None:
        # Some exporters write all dimensions.
        out = list(out)[-len(x) :]
        pairs = [_halves(total - o, auto_pad == "SAME_UPPER") for total, o in zip(whole, out)]
        return [low for low, _ in pairs], [high for _, high in pairs], out
    low, high = _split_pads(attributes.get("pads", [0] * 2 * len(x)), len(x), where)
    return low, high, [total - a - b for total, a, b in zip(whole, low, high)]
