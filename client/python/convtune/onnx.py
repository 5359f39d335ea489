"""The convolutions of an ONNX model.

Needs the onnx package. Conv and ConvTranspose of any opset that it reads, in
the graph, in the bodies of If, Loop and Scan, and in local functions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx.reference
import onnx.shape_inference

from convtune.fusion import RUNTIMES, Tail, forms
from convtune.onnx_graph import Inputs, Tails, bodies, conv_pads, transposed_pads
from convtune.problem import ModelError, Problem, Workload, one_of

_MOST_SIZES = 1024  # elements of a tensor that a shape may be computed of
# Operators that compute sizes from sizes.
_OF_SIZES = (
    *("Add", "Cast", "Concat", "ConstantOfShape", "Div", "Gather", "Identity", "Mul", "Neg", "Reshape", "Slice", "Squeeze"),
    *("Sub", "Transpose", "Unsqueeze"),
)

_TYPES: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "f64",
    onnx.TensorProto.FLOAT: "f32",
    onnx.TensorProto.FLOAT16: "f16",
    onnx.TensorProto.BFLOAT16: "bf16",
    onnx.TensorProto.FLOAT8E4M3FN: "e4m3",
    onnx.TensorProto.FLOAT8E5M2: "e5m2",
}
_NO_ZERO_POINTS = "cuDNN's 8-bit convolutions have no zero points"
_LEFT_OUT = {
    "ConvInteger": _NO_ZERO_POINTS,
    "QLinearConv": _NO_ZERO_POINTS,
    "DeformConv": "cuDNN has no deformable convolution",
}
_DOMAINS = ("", "ai.onnx")


class _LeftOut(Exception):
    """The message says why there is no problem of a node; the model's other nodes have theirs."""


@dataclasses.dataclass
class _Found:
    where: str
    problem: Problem
    tail: Tail


@dataclasses.dataclass
class _Reading:
    """A model with one choice of its sizes."""

    found: list[_Found] = dataclasses.field(default_factory=list)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # why, by where
    dequantized: list[str] = dataclasses.field(default_factory=list)  # where they are

    def notices(self) -> Iterator[tuple[str, str]]:
        """Each with where that is."""
        yield from ((where, f"{where}: left out, {why}") for where, why in self.left_out.items())
        for where in self.dequantized[:1]:
            more = len(self.dequantized) - 1
            yield where, (
                f"{where}{f' and {more} more' if more else ''}: counted as convolutions of the dequantized "
                "type; a runtime that runs them in 8 bits asks cuDNN for others"
            )


def problems(
    model: str | os.PathLike[str] | onnx.ModelProto,
    batch_sizes: Sequence[int] | None = None,
    *,
    dims: Mapping[str, int | Sequence[int]] | Sequence[Mapping[str, int]] | None = None,
    dtype: str | None = None,
    layout: str = "nchw",
    runtime: str = "onnxruntime",
    backward: bool = False,
) -> Workload:
    """Every convolution of the model, for each batch size and each choice of sizes.

    A symbolic first dimension of the data inputs is the batch; inputs whose
    first dimension is a number keep it. Where all are numbers, `batch_sizes` must
    be left out or be one of them. `dims` gives other symbolic dimensions by name,
    those of weights that are inputs too: a size, or several, of which every
    combination is read; a list of dicts names the combinations. An input that no
    convolution depends on needs no sizes. `dtype` replaces the model's own;
    `layout` is how the tensors will lie in memory (ONNX does not say). `runtime`
    is who runs the model, and so what is fused (convtune.fusion.RUNTIMES); where
    that is not certain each form comes out. `backward` adds bwd_data and
    bwd_filter of each, which have nothing fused.

    ONNX Runtime's FusedConv counts as the Conv that it was made of, with its tail.
    A symbolic batch that was read as 1, what is left out, a convolution whose batch does not follow the model's, and
    one of dequantized inputs is in the workload's `notices`; `left_out` counts the
    convolutions that cuDNN cannot run. Raises ModelError, naming the model and the
    node; also where no convolution's batch follows."""
    name = "model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    one_of("runtime", runtime, RUNTIMES)
    choices = _choices_of_dims(name, dims)
    _check_batch_sizes(name, batch_sizes)
    try:  # what is wrong with these is so for every node
        Problem("fwd", (1, 1, 1, 1), (1, 1, 1, 1), (0, 0), (0, 0), (1, 1), (1, 1), dtype=dtype or "f32", layout=layout)
    except ValueError as error:
        raise ModelError(f"{name}: {error}") from None
    loaded = _load(model, name)
    reader = _Reader(loaded, name, dtype, layout)
    for chosen in choices:
        reader.check_dims(chosen)
    workload = Workload()
    left_out: set[str] = set()
    for place, (chosen, batch) in enumerate(itertools.product(choices, [None] if batch_sizes is None else batch_sizes)):
        reading = reader.read(batch, chosen)
        workload.notices += [text for where, text in reading.notices() if where not in left_out and text not in workload.notices]
        left_out |= reading.left_out.keys()
        if place == 0 and batch is None and reader.has_open_batch(chosen):
            workload.notices.append(
                f"{name}: batch is symbolic and was read as 1; --batch 1,8,32 (batch_sizes=[1, 8, 32]) names yours"
            )
        if place == 0 and batch is not None:
            workload.notices += reader.notices_of_fixed_batches(batch, chosen, reading.found)
        for one in reading.found:
            for problem in _as_run(one, runtime):
                workload.add(problem)
            for operation in _backward(one.problem.operation) if backward else ():
                workload.add(_in_runtimes_rank(dataclasses.replace(one.problem, operation=operation), runtime))
    workload.left_out = len(left_out)
    if not workload:
        workload.notices.append(workload.nothing_to_tune(name))
    return workload


def _is_size(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _check_batch_sizes(name: str, batch_sizes: Sequence[int] | None) -> None:
    if batch_sizes is not None and (len(batch_sizes) == 0 or not all(map(_is_size, batch_sizes))):
        raise ModelError(f"{name}: batch_sizes: must be whole numbers from 1, are {list(batch_sizes)}")


def _choices_of_dims(
    name: str, dims: Mapping[str, int | Sequence[int]] | Sequence[Mapping[str, int]] | None
) -> list[dict[str, int]]:
    """Each combination of sizes; the last dimension's change first."""
    if dims is None:
        return [{}]
    if not isinstance(dims, Mapping):
        return [choice for one in dims for choice in _choices_of_dims(name, one)] or [{}]
    sizes = []
    for symbol, given in dims.items():
        several = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        wrong = next((size for size in several if not _is_size(size)), None)
        if wrong is not None or not several:
            raise ModelError(f"{name}: dims: {symbol} must be a whole number from 1, is {wrong!r}")
        sizes.append([int(size) for size in several])
    return [dict(zip(dims, chosen)) for chosen in itertools.product(*sizes)]


def _as_run(found: _Found, runtime: str) -> list[Problem]:
    """The problem in the forms that the runtime may ask cuDNN for."""
    problem = found.problem
    if problem.operation != "fwd":
        return [_in_runtimes_rank(problem, runtime)]
    known = forms(runtime, found.tail, problem.dtype, problem.layout, len(problem.stride))
    return [_in_runtimes_rank(dataclasses.replace(problem, epilogue=epilogue), runtime) for epilogue in known]


def _in_runtimes_rank(problem: Problem, runtime: str) -> Problem:
    """ONNX Runtime makes one dimension two by a 1 behind it; elsewhere it is in front."""
    if len(problem.stride) != 1 or not runtime.startswith("onnxruntime"):
        return problem
    behind = {"x": 1, "w": 1, "pad_low": 0, "pad_high": 0, "stride": 1, "dilation": 1}
    longer: Any = {field: (*getattr(problem, field), size) for field, size in behind.items()}
    return dataclasses.replace(problem, **longer)


class _Reader:
    """Reads one model for one choice of its sizes after the other."""

    def __init__(self, model: onnx.ModelProto, name: str, dtype: str | None, layout: str) -> None:
        self._model = model
        self.name = name
        self.dtype = dtype
        self.layout = layout
        self.fused = _unfuse(model.graph)
        self._inputs = Inputs(model)

    def check_dims(self, dims: Mapping[str, int]) -> None:
        symbols = self._inputs.symbols()
        for symbol in dims:
            if symbol not in symbols:
                known = ", ".join(sorted(symbols)) or "none"
                raise ModelError(
                    f"{self.name}: dims: no input has a dimension named {symbol!r}; those that it has: {known}"
                )

    def has_open_batch(self, dims: Mapping[str, int]) -> bool:
        """True if the batch is a symbol that `dims` gives no size."""
        return any(symbol not in dims for symbol in self._inputs.open_batches)

    def read(self, batch: int | None, dims: Mapping[str, int]) -> _Reading:
        sized = onnx.ModelProto()
        sized.CopyFrom(self._model)
        _set_dimensions(sized, self.name, self._inputs, batch, dims)
        try:
            inferred = onnx.shape_inference.infer_shapes(sized, strict_mode=True, data_prop=True)
        except Exception as error:  # its C++ exceptions have no common base
            raise ModelError(f"{self.name}: shape inference failed: {_first_line(error)}") from None
        reading = _Reading()
        _Graph(inferred.graph, self).read(reading)
        return reading

    def notices_of_fixed_batches(self, batch: int, dims: Mapping[str, int], found: Sequence[_Found]) -> list[str]:
        """Notices of the convolutions whose batch is the same for a model of twice the batch. ModelError if all are such."""
        if not self._inputs.open_batches:
            return []
        try:
            twice = self.read(2 * batch, dims).found
        except ModelError:
            return []  # there is no such model: what was found is all that can be said
        fixed = [one for one, two in zip(found, twice) if one.problem.x[0] == two.problem.x[0]]
        why = "a shape within the model is a number, such as that of a Reshape"
        if fixed and len(fixed) == len(found):
            raise ModelError(
                f"{fixed[0].where}: batch_sizes: asked for is {batch}, but its batch is {fixed[0].problem.x[0]} "
                f"whatever the model's is: {why}; export the model with a symbolic batch"
            )
        return [f"{one.where}: its batch is {one.problem.x[0]} whatever the model's is: {why}" for one in fixed]


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
    if loaded is model:  # the caller's stays as it is
        loaded = onnx.ModelProto()
        loaded.CopyFrom(model)
    _drop_weights(loaded.graph)
    for function in loaded.functions:
        _drop_weights(function)
    if loaded.functions:
        loaded = onnx.inliner.inline_local_functions(loaded)
    _compute_sizes(loaded)
    return loaded


def _drop_weights(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Takes the values of large tensors away, which every inference of shapes would copy several times. No shape
    depends on them: sizes are small tensors, or of 32 or 64 bit integers."""
    tensors = list(getattr(graph, "initializer", ()))
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else attribute.tensors
        for body in bodies(node):
            _drop_weights(body)
    for tensor in tensors:
        integers = tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
        if not integers and math.prod(tensor.dims) > _MOST_SIZES:
            for field in ("raw_data", "float_data", "int32_data", "double_data"):
                tensor.ClearField(field)


def _compute_sizes(model: onnx.ModelProto) -> None:
    """Puts values in the place of nodes that compute sizes from constants, as exporters write the pads of a Pad. The
    inference of shapes computes few of them itself."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    known = {name: tensor for name, tensor in tensors.items() if math.prod(tensor.dims) <= _MOST_SIZES and not tensor.data_location}
    left = []
    for node in model.graph.node:  # a node stands behind those that it reads
        computes = node.domain in _DOMAINS and node.op_type in _OF_SIZES and all(n in known for n in node.input if n)
        result = _result_of(node, known, model.opset_import) if computes else None
        if result is None:
            left.append(node)
        else:
            known[result.name] = result
            model.graph.initializer.append(result)
    if len(left) < len(model.graph.node):
        graph = onnx.GraphProto(node=left)
        del model.graph.node[:]
        model.graph.node.MergeFrom(graph.node)


def _result_of(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto], opsets: Any) -> onnx.TensorProto | None:
    """The output of a node that reads only `known`; None if that is large, or cannot be computed here."""
    try:
        arrays = {name: onnx.numpy_helper.to_array(known[name]) for name in node.input if name}
        if node.op_type == "ConstantOfShape" and math.prod(arrays[node.input[0]].tolist()) > _MOST_SIZES:
            return None
        inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in arrays]
        output = onnx.helper.make_empty_tensor_value_info(node.output[0])
        alone = onnx.helper.make_model(onnx.helper.make_graph([node], "sizes", inputs, [output]), opset_imports=opsets)
        values: Any = onnx.reference.ReferenceEvaluator(alone).run(None, arrays)
        value = values[0]
    except Exception:  # of any kind; then the inference of shapes says what is not known
        return None
    return onnx.numpy_helper.from_array(value, node.output[0]) if value.size <= _MOST_SIZES else None


def _unfuse(graph: onnx.GraphProto) -> dict[str, Tail]:
    """Makes ONNX Runtime's FusedConv the Conv that it was made of, whose shapes are inferred.
    What was fused, by the name of the output."""
    tails: dict[str, Tail] = {}
    for node in graph.node:
        for body in bodies(node):
            tails |= _unfuse(body)
        if (node.domain, node.op_type) == ("com.microsoft", "FusedConv"):
            node.domain, node.op_type = "", "Conv"
            bias, add = (len(node.input) > at and bool(node.input[at]) for at in (2, 3))
            relu = any(a.name == "activation" and a.s == b"Relu" for a in node.attribute)
            tails[node.output[0]] = Tail(bias, add and relu, relu)
            del node.input[3:]  # what is added after the bias
            kept = [a for a in node.attribute if not a.name.startswith("activation")]
            del node.attribute[:]
            node.attribute.extend(kept)
    return tails


def _set_dimensions(
    model: onnx.ModelProto, name: str, inputs: Inputs, batch: int | None, dims: Mapping[str, int]
) -> None:
    fixed = inputs.fixed_batches
    if batch is not None and fixed and not inputs.open_batches and batch not in fixed:
        raise ModelError(f"{name}: batch_sizes: the model has the fixed batch {fixed[0]}, asked for is {batch}")
    sizes = {symbol: batch or 1 for symbol in inputs.open_batches} | dict(dims)
    for value in model.graph.input:
        for dim, own in zip(value.type.tensor_type.shape.dim, inputs.dims.get(value.name, ())):
            if own in sizes:
                dim.dim_value = sizes[own]
            elif isinstance(own, str) and value.name in inputs.data | inputs.weights:
                why = "" if value.name in inputs.data else ": it is no data, and the batch is not for it"
                raise ModelError(f"{name}: dims: input {value.name} needs a size for {own}{why}")
    # The shapes that the exporter wrote down for one size do not hold for another.
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


class _Graph:
    """A graph, or a body within one, whose names are seen inside."""

    def __init__(self, graph: onnx.GraphProto, reader: _Reader, outer: "_Graph | None" = None) -> None:
        self._graph = graph
        self._reader = reader
        self._outer = outer
        self._values = {v.name: v.type.tensor_type for v in (*graph.input, *graph.output, *graph.value_info)}
        self._makers = {output: node for node in graph.node for output in node.output}
        self._weights = {t.name: (list(t.dims), t.data_type) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in _DOMAINS and node.attribute:
                tensor = node.attribute[0].t
                self._weights[node.output[0]] = (list(tensor.dims), tensor.data_type)

        self._tails = Tails(graph, self._constant, self._shape)

    def read(self, reading: _Reading) -> None:
        for position, node in enumerate(self._graph.node):
            for body in bodies(node):
                _Graph(body, self._reader, self).read(reading)
            where = f"{self._reader.name}: node {node.name or position} ({node.op_type})"
            if node.domain not in _DOMAINS:
                if re.search("Conv(?!ert)", node.op_type):
                    reading.left_out[where] = f"it is no operator of ONNX but of {node.domain}"
            elif node.op_type in ("Conv", "ConvTranspose"):
                try:
                    problem = self._problem(node, where)
                except _LeftOut as why:
                    reading.left_out[where] = str(why)
                    continue
                tail = Tail()
                if node.op_type == "Conv":
                    tail = self._reader.fused.get(node.output[0]) or self._tails.of(node, problem.y)
                reading.found.append(_Found(where, problem, tail))
                if any(self._is_dequantized(value) for value in node.input[:2]):
                    reading.dequantized.append(where)
            elif node.op_type in _LEFT_OUT:
                reading.left_out[where] = _LEFT_OUT[node.op_type]

    def _is_dequantized(self, name: str) -> bool:
        maker = self._makers.get(name)
        if maker is None:
            return self._outer is not None and self._outer._is_dequantized(name)
        return str(maker.op_type) == "DequantizeLinear"

    def _constant(self, name: str) -> list[int] | None:
        if name in self._weights:
            return self._weights[name][0]
        return None if name in self._values or self._outer is None else self._outer._constant(name)

    def _shape(self, name: str) -> list[int] | None:
        try:
            return self._tensor(name, "")[0]
        except ModelError:
            return None

    def _tensor(self, name: str, where: str) -> tuple[list[int], int]:
        if name in self._weights:
            return self._weights[name]
        if name in self._values:
            tensor = self._values[name]
            shape = [d.dim_value if d.WhichOneof("value") == "dim_value" else 0 for d in tensor.shape.dim]
            if shape and min(shape) > 0:
                return shape, tensor.elem_type
            if any(d.HasField("dim_value") and d.dim_value == 0 for d in tensor.shape.dim):
                sizes = "x".join(str(d.dim_value) if d.HasField("dim_value") else "?" for d in tensor.shape.dim)
                raise ModelError(f"{where}: {name}: must not be empty, has the shape {sizes}")
        elif self._outer is not None:
            return self._outer._tensor(name, where)
        maker = self._makers.get(name)
        foreign = maker is not None and maker.domain not in _DOMAINS
        why = f": {maker.op_type} writes it, of which only {maker.domain} knows what it does" if maker and foreign else ""
        raise ModelError(f"{where}: the shape of {name} is not known{why}")

    def _problem(self, node: onnx.NodeProto, where: str) -> Problem:
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
            pads = conv_pads(attributes, x[2:], spans, stride, where)
            operation = "fwd"
            forward_x = tuple(x)
        else:
            # Its output is the input of the convolution whose data gradient it is.
            pads, out = transposed_pads(attributes, x[2:], spans, stride, where)
            operation = "bwd_data"
            forward_x = (x[0], w[1] * groups, *out)
        low, high = (tuple(pad[end] for pad in pads) for end in (0, 1))
        if min(*low, *high) < 0:
            raise _LeftOut(f"pads: cuDNN has no negative ones, are {list(low)} and {list(high)}")
        dtype = self._reader.dtype or _TYPES.get(elem_type)
        if dtype is None:
            raise _LeftOut(f"no cuDNN convolution has inputs of type {onnx.TensorProto.DataType.Name(elem_type)}")
        try:
            return Problem(
                operation=operation,
                x=forward_x,
                w=tuple(w),
                pad_low=low,
                pad_high=high,
                stride=stride,
                dilation=dilation,
                groups=groups,
                dtype=dtype,
                layout=self._reader.layout,
            )
        except ValueError as error:
            raise _LeftOut(str(error)) from None
