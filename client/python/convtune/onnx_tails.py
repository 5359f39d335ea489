"""The operations behind the convolutions of an ONNX graph, which may run with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import onnx

from convtune.fusion import Tail
from convtune.onnx_inputs import bodies


def _names_within(graph: onnx.GraphProto) -> Iterator[str]:
    """All that a body reads or gives, from outside of it too."""
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
        tail = Tail(bias=len(conv.input) > 2 and bool(conv.input[2]))
        value = conv.output[0]
        added = False
        while (node := self._only_reader(value)) is not None:
            if node.op_type == "Relu":
                tail.relu, tail.add = True, added
                break
            others = [name for name in node.input if name != value]
            if added or not others:
                break
            if node.op_type == "BatchNormalization" and node.input[0] == value and len(node.output) == 1:
                tail.bias = True
            elif node.op_type in ("Add", "Mul") and self._is_per_channel(others[0], y):
                tail.bias |= node.op_type == "Add"
            elif node.op_type == "Add" and self._constant(others[0]) is None and self._is(others[0], y):
                added = True
            else:
                break
            value = node.output[0]
        return tail

    def _only_reader(self, value: str) -> onnx.NodeProto | None:
        readers = self._readers.get(value, [])
        node = readers[0] if len(readers) == 1 else None
        return node if node is not None and node.domain in ("", "ai.onnx") else None

    def _is(self, name: str, y: Sequence[int]) -> bool:
        shape = self._shape(name)
        return shape is not None and list(shape) == list(y)

    def _is_per_channel(self, name: str, y: Sequence[int]) -> bool:
        """True for a constant that is folded into weights and bias."""
        shape = self._constant(name)
        if shape is None:
            return False
        return math.prod(shape) == 1 or [1] * (len(y) - len(shape)) + list(shape) == [1, y[1], *[1] * (len(y) - 2)]
