"""The operations behind the convolutions of an ONNX graph, which may run with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import onnx

from convtune.fusion import Does, Tail, tail_of
from convtune.onnx_inputs import bodies


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
