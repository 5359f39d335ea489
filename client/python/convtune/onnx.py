"""The convolutions of an ONNX model.

Needs the onnx package. Conv and ConvTranspose of any opset that it reads, in
the graph, in the bodies of If, Loop and Scan, and in local functions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import onnx
import onnx.inliner
import onnx.shape_inference

from convtune import onnx_pads
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

    A symbolic first dimension of the inputs is the batch; inputs whose first
    dimension is a number keep it. Where all are numbers, `batch_sizes` must be
    left out or be one of them. `dims` gives other symbolic dimensions by name.
    `dtype` replaces the model's own; `layout` is how the tensors will lie in
    memory (ONNX does not say). `backward` adds bwd_data and bwd_filter of each.

    ONNX Runtime's FusedConv counts as the Conv that it was made of. What is left
    out, and a convolution whose batch does not follow the model's, is in the
    workload's `notices`. Raises ModelError, naming the model and the node; also
    where no convolution's batch follows."""
    name = "model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    _check_arguments(name, batch_sizes, dims)
    loaded = _load(model, name)
    _unfuse(loaded.graph)
    _check_dims(loaded, name, dims)
    workload = Workload()
    for position, batch in enumerate(batch_sizes if batch_sizes is not None else [None]):
        found, notices = _convolutions(loaded, name, batch, dims, dtype, layout)
        if position == 0:
            workload.notices += notices
            if batch is not None and any(_is_symbolic(i) for i in _inputs(loaded)):
                workload.notices += _that_do_not_follow(loaded, name, batch, dims, found)
        for _, problem in found:
            for operation in (problem.operation, *_backward(problem.operation)) if backward else [problem.operation]:
                workload.add(Problem(**{**vars(problem), "operation": operation}))
    return workload


def _check_arguments(name: str, batch_sizes: Sequence[int] | None, dims: Mapping[str, int] | None) -> None:
    def is_size(value: object) -> bool:
        return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1

    if batch_sizes is not None and (len(batch_sizes) == 0 or not all(map(is_size, batch_sizes))):
        raise ModelError(f"{name}: batch_sizes: must be whole numbers from 1, are {list(batch_sizes)}")
    for symbol, size in (dims or {}).items():
        if not is_size(size):
            raise ModelError(f"{name}: dims: {symbol} must be a whole number from 1, is {size!r}")


def _check_dims(model: onnx.ModelProto, name: str, dims: Mapping[str, int] | None) -> None:
    symbols = {d.dim_param for i in _inputs(model) for d in i.type.tensor_type.shape.dim if d.dim_param}
    for symbol in dims or {}:
        if symbol not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise ModelError(f"{name}: dims: no input has a dimension named {symbol!r}; those that it has: {known}")


def _convolutions(
    model: onnx.ModelProto,
    name: str,
    batch: int | None,
    dims: Mapping[str, int] | None,
    dtype: str | None,
    layout: str,
) -> tuple[list[tuple[str, Problem]], list[str]]:
    """Where each is, what it is, and notices of what is left out."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    _set_dimensions(sized, name, batch, dims or {})
    try:
        inferred = onnx.shape_inference.infer_shapes(sized, strict_mode=True, data_prop=True)
    except Exception as error:  # its C++ exceptions have no common base
        raise ModelError(f"{name}: shape inference failed: {_first_line(error)}") from None
    notices: list[str] = []
    return list(_Graph(inferred.graph, name, None, notices).problems(dtype, layout)), notices


def _that_do_not_follow(
    model: onnx.ModelProto,
    name: str,
    batch: int,
    dims: Mapping[str, int] | None,
    found: Sequence[tuple[str, Problem]],
) -> list[str]:
    """Notices of those whose batch is the same for a model of twice the batch."""
    try:
        twice, _ = _convolutions(model, name, 2 * batch, dims, "f32", "nchw")
    except ModelError:
        return []  # there is no such model: what was found is all that can be said
    fixed = [(where, one.x[0]) for (where, one), (_, two) in zip(found, twice) if one.x[0] == two.x[0]]
    why = "a shape within the model is a number, such as that of a Reshape"
    if fixed and len(fixed) == len(found):
        where, size = fixed[0]
        raise ModelError(
            f"{where}: batch_sizes: asked for is {batch}, but its batch is {size} whatever the model's is: {why}; "
            "export the model with a symbolic batch"
        )
    return [f"{where}: its batch is {size} whatever the model's is: {why}" for where, size in fixed]


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
    if loaded.functions:
        return onnx.inliner.inline_local_functions(loaded)
    own = onnx.ModelProto()
    own.CopyFrom(loaded)
    return own


def _unfuse(graph: onnx.GraphProto) -> None:
    """Makes ONNX Runtime's FusedConv the Conv that it was made of, whose shapes are inferred."""
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
                _unfuse(body)
        if (node.domain, node.op_type) == ("com.microsoft", "FusedConv"):
            node.domain, node.op_type = "", "Conv"
            del node.input[3:]  # what is added after the bias
            kept = [a for a in node.attribute if not a.name.startswith("activation")]
            del node.attribute[:]
            node.attribute.extend(kept)


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initialized = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initialized and i.type.HasField("tensor_type")]


def _is_symbolic(value: onnx.ValueInfoProto) -> bool:
    shape = value.type.tensor_type.shape.dim
    return bool(shape) and shape[0].WhichOneof("value") != "dim_value"


def _set_dimensions(model: onnx.ModelProto, name: str, batch: int | None, dims: Mapping[str, int]) -> None:
    sizes = dict(dims)
    inputs = _inputs(model)
    fixed = []
    for value in inputs:
        shape = value.type.tensor_type.shape.dim
        if not shape:
            continue
        if not _is_symbolic(value):
            fixed.append(shape[0].dim_value)
        elif shape[0].dim_param:
            sizes.setdefault(shape[0].dim_param, batch or 1)
        else:
            shape[0].dim_value = batch or 1
    if batch is not None and fixed and batch not in fixed and len(fixed) == sum(
        bool(i.type.tensor_type.shape.dim) for i in inputs
    ):
        raise ModelError(f"{name}: batch_sizes: the model has the fixed batch {fixed[0]}, asked for is {batch}")
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

    def problems(self, dtype: str | None, layout: str) -> Iterator[tuple[str, Problem]]:
        for position, node in enumerate(self._graph.node):
            for attribute in node.attribute:
                for body in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
                    yield from _Graph(body, self._model, self, self._notices).problems(dtype, layout)
            where = f"{self._model}: node {node.name or position} ({node.op_type})"
            if node.domain not in _DOMAINS:
                if re.search("Conv(?!ert)", node.op_type):
                    self._notices.append(f"{where}: left out, it is no operator of ONNX but of {node.domain}")
            elif node.op_type in ("Conv", "ConvTranspose"):
                try:
                    yield where, self._problem(node, where, dtype, layout)
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
        maker = next((n for n in self._graph.node if name in n.output and n.domain not in _DOMAINS), None)
        why = f": {maker.op_type} writes it, of which only {maker.domain} knows what it does" if maker else ""
        raise ModelError(f"{where}: the shape of {name} is not known{why}")

    def _problem(self, node: onnx.NodeProto, where: str, dtype: str | None, layout: str) -> Problem:
        if len(node.input) < 2 or not node.input[0] or not node.input[1]:
            raise ModelError(f"{where}: must have an input and weights, has {sum(map(bool, node.input))} of the two")
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
            low, high = onnx_pads.conv_pads(attributes, x[2:], spans, stride, where)
            operation = "fwd"
            forward_x = tuple(x)
        else:
            # What it writes is the input of the convolution whose data gradient it is.
            low, high, out = onnx_pads.transposed_pads(attributes, x[2:], spans, stride, where)
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
