"""The inputs of an ONNX model: which of them bring data, and so the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "FusedConv", "NhwcConv")
# Of these the first input is data; the others are weights, scales and the like, and have no batch.
_OF_ONE_DATA_INPUT = (
    *CONVOLUTIONS,
    *("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
    *("DequantizeLinear", "QuantizeLinear", "PRelu", "Gemm", "LSTM", "GRU", "RNN"),
)


def of_model(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The tensors that a caller gives: not those that have a value in the model."""
    initialized = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initialized and i.type.HasField("tensor_type")]


def name_dimensions(model: onnx.ModelProto) -> None:
    """Names the inputs' dimensions that have neither a size nor a name after their place: "image:2"."""
    for value in of_model(model):
        for position, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_param and dim.WhichOneof("value") != "dim_value":
                dim.dim_param = f"{value.name}:{position}"


def is_symbolic(value: onnx.ValueInfoProto) -> bool:
    """True if the first dimension has no size."""
    shape = value.type.tensor_type.shape.dim
    return bool(shape) and shape[0].WhichOneof("value") != "dim_value"


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs within a node: those of If, Loop and Scan."""
    for attribute in node.attribute:
        yield from (attribute.g,) if attribute.HasField("g") else attribute.graphs


class Roles:
    """Says which inputs convolutions read as data, and which ones as weights only.

    An input that reaches no convolution has neither role."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._sources: dict[str, list[str]] = {}
        self._data: list[str] = []
        self._weights: list[str] = []
        self._read(model.graph)
        reached = self._reach(self._data)
        names = {i.name for i in of_model(model)}
        self.data = names & reached
        self.weights = (names & self._reach(self._weights)) - reached

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
