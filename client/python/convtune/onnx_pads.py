"""The pads of ONNX's Conv and ConvTranspose, where the model leaves them to the reader, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convtune.problem import ModelError


Pairs = list[tuple[int, int]]  # before and behind, for each dimension


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
