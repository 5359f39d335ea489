"""A convolution in its text form, read for programs that run it.

Only packed 1-D to 3-D problems without epilogue: that is all that the study's
lists hold. The grammar is proto/model/README.md's.
"""

import dataclasses
import functools
import math

TYPE_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}


@dataclasses.dataclass(frozen=True)
class Problem:
    """x_dims is N, C, spatial; w_dims is K, C/groups, spatial: the forward shapes."""

    text: str
    operation: str
    x_dims: tuple
    w_dims: tuple
    pad_low: tuple
    pad_high: tuple
    stride: tuple
    dilation: tuple
    groups: int
    nhwc: bool
    dtype: str

    @property
    def y_dims(self):
        spatial = [
            (size + low + high - (dilation * (kernel - 1) + 1)) // stride + 1
            for size, kernel, low, high, stride, dilation in zip(
                self.x_dims[2:], self.w_dims[2:], self.pad_low, self.pad_high, self.stride, self.dilation
            )
        ]
        return (self.x_dims[0], self.w_dims[0], *spatial)

    @property
    def flops(self):
        """Of the direct method, padding included."""
        return 2.0 * math.prod(self.y_dims) * math.prod(self.w_dims[1:])

    @property
    def bytes(self):
        """Of x, w and y together."""
        return TYPE_BYTES[self.dtype] * (math.prod(self.x_dims) + math.prod(self.w_dims) + math.prod(self.y_dims))


def packed_strides(dims, nhwc):
    """Strides in elements of a packed tensor, in the order of its dimensions."""
    order = [0, *range(2, len(dims)), 1] if nhwc else range(len(dims))
    strides, step = [0] * len(dims), 1
    for axis in reversed(list(order)):
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


def _list(text):
    return tuple(int(part) for part in text.split("x"))


@functools.lru_cache(maxsize=None)
def parse(text):
    """Raises ValueError for what this study cannot run."""
    operation, *tokens = (token.strip() for token in text.split(","))
    if operation not in ("fwd", "bwd_data", "bwd_filter"):
        raise ValueError(f"{text}: no operation {operation!r}")
    values, flags = {}, set()
    for token in tokens:
        name, equals, value = token.partition("=")
        if equals:
            values[name] = value
        else:
            flags.add(name)
    unknown = (flags - {"nchw", "nhwc", *TYPE_BYTES}) | (set(values) - {"x", "w", "pad", "stride", "dilation", "groups", "acc", "align"})
    if unknown:
        raise ValueError(f"{text}: the study runs no problem with {', '.join(sorted(unknown))}")
    x, w = _list(values["x"]), _list(values["w"])
    line, rank = len(x) == 3, max(len(x) - 2, 2)
    spread = lambda entries, fill: (fill, *entries) if line else entries * rank if len(entries) == 1 else entries
    lows, highs = [], []
    for pad in values.get("pad", "0").split("x"):
        low, _, high = pad.partition(":")
        lows.append(int(low))
        highs.append(int(high or low))
    if line:  # 1-D is read as N, C, 1, W
        x, w = (x[0], x[1], 1, x[2]), (w[0], w[1], 1, w[2])
    types = flags & set(TYPE_BYTES)
    return Problem(
        text, operation, x, w, spread(tuple(lows), 0), spread(tuple(highs), 0),
        spread(_list(values.get("stride", "1")), 1), spread(_list(values.get("dilation", "1")), 1),
        int(values.get("groups", "1")), "nhwc" in flags, types.pop() if types else "f32",
    )  # fmt: skip


def parse_candidate(text):
    """("graph", engine, {knob: value}) or ("legacy", algorithm, math type)."""
    api, _, rest = text.partition(":")
    parts = rest.split(",")
    if api == "graph" and parts[0].startswith("eng"):
        knobs = dict(part[1:].split("=") for part in parts[1:])
        return "graph", int(parts[0][3:]), {int(k): int(v) for k, v in knobs.items()}
    if api == "legacy" and parts[0].startswith("algo"):
        return "legacy", int(parts[0][4:]), int(parts[1][4:])
    raise ValueError(f"{text!r} is no candidate")


def candidate_text(engine, knobs):
    """Of a graph candidate, as the rest of the project writes it: knobs ordered by type."""
    return ",".join([f"graph:eng{engine}", *(f"k{k}={v}" for k, v in sorted(knobs.items()))])
