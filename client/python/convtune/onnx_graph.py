"""What the reader of ONNX models looks up in a graph: inputs, pads, and the operations behind convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from convtune.fusion import Does, Tail, tail_of
from convtune.problem import ModelError

CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "FusedConv", "NhwcConv")
# Of these the first input is data; the others are weights, scales and the like, and have no batch.
_OF_ONE_DATA_INPUT = (
    *CONVOLUTIONS,
    *("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
    *("DequantizeLinear", "QuantizeLinear", "PRelu", "Gemm", "LSTM", "GRU", "RNN"),
)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs within a node: those of If, Loop and Scan."""
    for attribute in node.attribute:
        yield from (attribute.g,) if attribute.HasField("g") else attribute.graphs


class Inputs:
    """The tensors that a caller gives, which have no value in the model: their dimensions, and which of them
    convolutions read as data, and which as weights only. One that reaches no convolution is neither."""

    def __init__(self, model: onnx.ModelProto) -> None:
        initialized = {i.name for i in model.graph.initializer}
        # Each a size or a symbol, which is the input and the place, "image:2", where it has no name.
        self.dims: dict[str, list[int | str]] = {
            i.name: [
                d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param or f"{i.name}:{place}"
                for place, d in enumerate(i.type.tensor_type.shape.dim)
            ]
            for i in model.graph.input
            if i.name not in initialized and i.type.HasField("tensor_type")
        }
        self._sources: dict[str, list[str]] = {}
        self._data: list[str] = []
        self._weights: list[str] = []
        self._read(model.graph)
        reached = self._reach(self._data)
        self.data = self.dims.keys() & reached
        self.weights = (self.dims.keys() & self._reach(self._weights)) - reached
        # The first dimensions of data: symbols, and sizes.
        batches = [dims[0] for name, dims in self.dims.items() if name in self.data and dims]
        self.open_batches = [batch for batch in batches if isinstance(batch, str)]
        self.fixed_batches = [batch for batch in batches if isinstance(batch, int)]

    def symbols(self) -> set[str]:
        return {dim for dims in self.dims.values() for dim in dims if isinstance(dim, str)}

    def _read(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            one = node.op_type in _OF_ONE_DATA_INPUT
            sources = list(node.input[:1] if one else node.input)
            if node.op_type in CONVOLUTIONS:
                self._data += node.input[:1]
                self._weights += node.input[1:]
            for body in bodies(node):
                self._read(body)
                for value in body.input:  # of a Loop or Scan
                    self._sources.setdefault(value.name, []).extend(node.input)
                sources += [value.name for value in body.output]
            for name in node.output:
                self._sources.setdefault(name, []).extend(sources)

    def _reach(self, names: Iterable[str]) -> set[str]:
        """The names, and all that they are computed of."""
        reached: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += self._sources.get(name, ())
        return reached


Pairs = list[tuple[int, int]]  # pads before and behind, for each dimension


def _halves(total: int, more_at_end: bool) -> tuple[int, int]:
    less = total // 2
    return (less, total - less) if more_at_end else (total - less, less)


def _given(attributes: Mapping[str, Any], spatial: int, where: str) -> Pairs:
    pads = attributes.get("pads", [0] * 2 * spatial)
    if len(pads) != 2 * spatial:
        raise ModelError(f"{where}: pads must have {2 * spatial} entries, has {len(pads)}")
    return list(zip(pads[:spatial], pads[spatial:]))


def conv_pads(
    attributes: Mapping[str, Any], x: Sequence[int], spans: Sequence[int], stride: Sequence[int], where: str
) -> Pairs:
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    if auto_pad in ("NOTSET", ""):
        return _given(attributes, len(x), where)
    if auto_pad == "VALID":
        return [(0, 0)] * len(x)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{where}: auto_pad: must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, is {auto_pad}")
    # The output has ceil(size / stride) elements.
    totals = [max((-(-size // s) - 1) * s + span - size, 0) for size, span, s in zip(x, spans, stride)]
    return [_halves(total, auto_pad == "SAME_UPPER") for total in totals]


def transposed_pads(
    attributes: Mapping[str, Any], x: Sequence[int], spans: Sequence[int], stride: Sequence[int], where: str
) -> tuple[Pairs, list[int]]:
    """The pads, and the output's size."""
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    extra = attributes.get("output_padding", [0] * len(x))
    whole = [s * (size - 1) + e + span for size, s, e, span in zip(x, stride, extra, spans)]
    out = attributes.get("output_shape")
    if out is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = [size * s for size, s in zip(x, stride)]
    if out is not None:
        # Some exporters write all dimensions.
        out = list(out)[-len(x) :]
        return [_halves(total - o, auto_pad == "SAME_UPPER") for total, o in zip(whole, out)], out
    pads = _given(attributes, len(x), where)
    return pads, [total - low - high for total, (low, high) in zip(whole, pads)]


def _names_within(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of all values that a body reads, its own and the outer graph's, and that it gives."""
    for node in graph.node:
        yield from node.input
        for body in bodies(node):
            yield from _names_within(body)
    yield from (value.name for value in graph.output)


class Tails:
    """Finds the tails in one graph, or one body.

    `constant` gives the shape of a value that is written into the model, `shape`
    that of any value; both give None where the shape is not known."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        constant: Callable[[str], Sequence[int] | None],
        shape: Callable[[str], Sequence[int] | None],
    ) -> None:
        self._constant = constant
        self._shape = shape
        # None: a reader that nothing can be fused with.
        self._readers: dict[str, list[onnx.NodeProto | None]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
            for body in bodies(node):
                for name in _names_within(body):
                    self._readers.setdefault(name, []).append(None)
        for value in graph.output:
            self._readers.setdefault(value.name, []).append(None)

    def of(self, conv: onnx.NodeProto, y: Sequence[int]) -> Tail:
        """The tail of a Conv that writes the shape y."""
        bias = len(conv.input) > 2 and bool(conv.input[2])
        return tail_of(conv.output[0], bias, lambda value: [self._step(n, value, y) for n in self._readers.get(value, ())])

    def _step(self, node: onnx.NodeProto | None, value: str, y: Sequence[int]) -> tuple[Does, str]:
        if node is None or node.domain not in ("", "ai.onnx"):
            return "other", ""
        others = [name for name in node.input if name != value]
        does: Does = "other"
        if node.op_type == "Relu":
            does = "relu"
        elif node.op_type == "BatchNormalization" and node.input[0] == value and len(node.output) == 1:
            does = "bias"
        elif node.op_type in ("Add", "Mul") and others and self._is_per_channel(others[0], y):
            does = "bias" if node.op_type == "Add" else "scale"
        elif node.op_type == "Add" and others and self._constant(others[0]) is None:
            does = "add" if list(self._shape(others[0]) or ()) == list(y) else "other"
        return does, node.output[0]

    def _is_per_channel(self, name: str, y: Sequence[int]) -> bool:
        """True for a constant that is folded into weights and bias."""
        shape = self._constant(name)
        if shape is None:
            return False
        return math.prod(shape) == 1 or [1] * (len(y) - len(shape)) + list(shape) == [1, y[1], *[1] * (len(y) - 2)]
