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
