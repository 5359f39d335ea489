"""A convolution and a candidate in their text forms, read for the oracle.

Only packed 2-D problems without epilogue: that is all that the networks have.
The grammar is proto/model/README.md's.
"""

import dataclasses

TYPES = ("f64", "f32", "f16", "bf16")


@dataclasses.dataclass(frozen=True)
class Problem:
    """x_dims is N, C, H, W; w_dims is K, C/groups, R, S: the forward shapes."""

    operation: str
    x_dims: tuple
    w_dims: tuple
    pad: tuple
    stride: tuple
    dilation: tuple
    nhwc: bool
    dtype: str

    @property
    def y_dims(self):
        spatial = [
            (size + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
            for size, kernel, pad, stride, dilation in zip(self.x_dims[2:], self.w_dims[2:], self.pad, self.stride, self.dilation)
        ]
        return (self.x_dims[0], self.w_dims[0], *spatial)


def packed_strides(dims, nhwc):
    """Strides in elements of a packed tensor, in the order of its dimensions."""
    order = [0, *range(2, len(dims)), 1] if nhwc else range(len(dims))
    strides, step = [0] * len(dims), 1
    for axis in reversed(list(order)):
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


def parse(text):
    """Raises ValueError for what the oracle cannot run."""
    operation, *tokens = (token.strip() for token in text.split(","))
    values = dict(token.split("=") for token in tokens if "=" in token)
    flags = {token for token in tokens if "=" not in token}
    unknown = (flags - {"nchw", "nhwc", *TYPES}) | (set(values) - {"x", "w", "pad", "stride", "dilation", "groups", "acc", "align"})
    if operation not in ("fwd", "bwd_data", "bwd_filter") or unknown or values.get("x", "").count("x") != 3:
        raise ValueError(f"{text}: not a problem that the oracle runs")
    numbers = lambda name, default: tuple(int(part) for part in values.get(name, default).split("x"))
    two = lambda name, default: (numbers(name, default) * 2)[:2]
    return Problem(
        operation, numbers("x", ""), numbers("w", ""), two("pad", "0"), two("stride", "1"), two("dilation", "1"),
        "nhwc" in flags, next(iter(flags & set(TYPES)), "f32"),
    )  # fmt: skip


def parse_candidate(text):
    """(engine, {knob: value}) of a graph candidate."""
    api, _, rest = text.partition(":")
    engine, *knobs = rest.split(",")
    if api != "graph" or not engine.startswith("eng"):
        raise ValueError(f"{text!r} is no candidate of the graph API")
    pairs = (knob[1:].split("=") for knob in knobs)
    return int(engine[3:]), {int(name): int(value) for name, value in pairs}


def candidate_text(engine, knobs):
    """As the rest of the project writes it: knobs ordered by type."""
    return ",".join([f"graph:eng{engine}", *(f"k{k}={v}" for k, v in sorted(knobs.items()))])
