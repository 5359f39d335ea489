#!/usr/bin/env python3
"""Writes cases.txt: whole outputs of small convolutions, computed with NumPy by
adding up shifted copies of padded tensors. Each line is a problem, a tab, and
the output's values in the order of its coordinates.

The inputs are integers, so that every sum is exact: of each tensor, the element
at place i of its memory is (i * A + B) % 17 - 8, with A and B by tensor.
"""
import itertools
import pathlib
import re

import numpy as np

SEEDS = {"x": (7, 3), "w": (5, 1), "y": (11, 6), "residual": (3, 2), "bias": (13, 4)}

PROBLEMS = [
    "fwd,x=2x4x5x6,w=3x4x3x3",
    "fwd,x=1x3x7x6,w=2x3x3x2,pad=1x1,stride=2x1",
    "fwd,x=2x4x6x6,w=4x2x3x3,pad=1,groups=2,nhwc",
    "fwd,x=1x4x8x9,w=4x1x3x3,pad=2,dilation=2,groups=4,nhwc",
    "fwd,x=1x2x6x5,w=3x2x3x2,pad=1:0x0:2,stride=1x2",
    "fwd,x=1x2x5x5,w=2x2x3x2,pad=1,mode=conv",
    "fwd,x=1x2x11,w=3x2x4,pad=2,stride=3",
    "fwd,x=1x2x4x5x4,w=2x2x2x3x2,pad=1,stride=1x2x1,nhwc",
    "fwd,x=1x3x4x4,w=5x3x3x3,pad=1,nhwc,epilogue=add+bias+relu",
    "fwd,x=1x3x4x4,w=5x3x1x1,epilogue=bias",
    "bwd_data,x=2x3x6x5,w=4x3x3x3,pad=1,stride=2",
    "bwd_data,x=1x4x7x7,w=6x2x3x2,pad=1:2x0:1,dilation=2x1,groups=2,nhwc",
    "bwd_data,x=1x2x5x6,w=3x2x2x3,stride=1x2,mode=conv",
    "bwd_data,x=1x2x4x4x4,w=2x2x3x2x2,pad=1,stride=2x1x2",
    "bwd_filter,x=2x3x6x5,w=4x3x3x3,pad=1,stride=2",
    "bwd_filter,x=2x4x7x7,w=6x2x3x2,pad=1:2x0:1,dilation=2x1,groups=2,nhwc",
    "bwd_filter,x=1x2x5x6,w=3x2x2x3,stride=1x2,mode=conv",
    "bwd_filter,x=2x2x4x4x4,w=2x2x3x2x2,pad=1,stride=2x1x2",
    "bwd_filter,x=1x2x3x3,w=2x2x5x5,pad=3",
]


def ints(text):
    return [int(part) for part in text.split("x")]


def values(name, dims, channels_last):
    """The tensor in logical order, filled in memory order."""
    a, b = SEEDS[name]
    order = [0, *range(2, len(dims)), 1] if channels_last else list(range(len(dims)))
    shape = [dims[i] for i in order]
    flat = (np.arange(np.prod(dims), dtype=np.int64) * a + b) % 17 - 8
    return flat.reshape(shape).transpose(np.argsort(order))


def solve(text):
    tokens = text.split(",")
    fields = dict(token.split("=", 1) for token in tokens if "=" in token)
    operation = tokens[0]
    last = "nhwc" in tokens
    x_dims, w_dims = ints(fields["x"]), ints(fields["w"])
    if len(x_dims) == 3:
        x_dims.insert(2, 1)
        w_dims.insert(2, 1)
        fields["pad"] = "0x" + fields.get("pad", "0")
        fields["stride"] = "1x" + fields.get("stride", "1")
    rank = len(x_dims) - 2

    def spread(name, default):
        parts = fields.get(name, default).split("x")
        return parts * rank if len(parts) == 1 else parts

    pads = [re.fullmatch(r"(\d+)(?::(\d+))?", part).groups() for part in spread("pad", "0")]
    pads = [(int(low), int(high if high is not None else low)) for low, high in pads]
    strides = [int(part) for part in spread("stride", "1")]
    dilations = [int(part) for part in spread("dilation", "1")]
    groups = int(fields.get("groups", "1"))
    spatial = [
        (x + low + high - dilation * (w - 1) - 1) // stride + 1
        for x, w, (low, high), stride, dilation
        in zip(x_dims[2:], w_dims[2:], pads, strides, dilations)
    ]
    y_dims = [x_dims[0], w_dims[0], *spatial]
    padding = [(0, 0), (0, 0), *pads]
    x = np.pad(values("x", x_dims, last), padding)
    w = values("w", w_dims, last)
    if fields.get("mode") == "conv":
        w = np.flip(w, axis=tuple(range(2, rank + 2)))
    y = values("y", y_dims, last)
    out_y = np.zeros(y_dims, np.int64)
    out_x = np.zeros(x.shape, np.int64)
    out_w = np.zeros(w_dims, np.int64)
    c_size, k_size = w_dims[1], w_dims[0] // groups
    for group in range(groups):
        c = slice(group * c_size, (group + 1) * c_size)
        k = slice(group * k_size, (group + 1) * k_size)
        for tap in itertools.product(*(range(size) for size in w_dims[2:])):
            window = tuple(
                slice(t * d, t * d + (size - 1) * s + 1, s)
                for t, d, size, s in zip(tap, dilations, spatial, strides))
            here = (slice(None), c, *window)
            w_tap = w[(k, slice(None), *tap)]
            out_y[:, k] += np.einsum("nc...,kc->nk...", x[here], w_tap)
            out_x[here] += np.einsum("nk...,kc->nc...", y[:, k], w_tap)
            flat = (x_dims[0], -1, int(np.prod(spatial)))
            out_w[(k, slice(None), *tap)] = np.einsum(
                "ncp,nkp->kc", x[here].reshape(flat), y[:, k].reshape(flat))
    if operation == "bwd_data":
        return out_x[tuple(slice(low, low + size) for (low, _), size in zip(padding, x_dims))]
    if operation == "bwd_filter":
        if fields.get("mode") == "conv":
            out_w = np.flip(out_w, axis=tuple(range(2, rank + 2)))
        return out_w
    for step in filter(None, fields.get("epilogue", "").split("+")):
        if step == "add":
            out_y += values("residual", y_dims, last)
        elif step == "bias":
            out_y += values("bias", [w_dims[0]], False).reshape([1, -1] + [1] * rank)
        else:
            out_y = np.maximum(out_y, 0)
    return out_y


def main():
    lines = []
    for problem in PROBLEMS:
        numbers = " ".join(str(value) for value in solve(problem).flatten())
        lines.append(f"{problem}\t{numbers}\n")
    (pathlib.Path(__file__).parent / "cases.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
