"""The binary key of a problem, as the snapshot has it (db/snapshot/README.md).

Canonical: equal problems have equal bytes, however their texts are written (proto/model/README.md)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

_OPERATIONS = {"fwd": 1, "bwd_data": 2, "bwd_filter": 3}
_TYPES = {"f64": 1, "f32": 2, "f16": 3, "bf16": 4, "i8": 5, "i32": 6, "e4m3": 7, "e5m2": 8}
# Other spellings of types, in any case.
_SPELLINGS = {
    **{"double": "f64", "fp64": "f64", "float64": "f64", "float": "f32", "fp32": "f32", "float32": "f32"},
    **{"half": "f16", "fp16": "f16", "float16": "f16", "bfloat16": "bf16", "int8": "i8"},
    **{"fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"},
}
_EPILOGUE = {"add": 1, "bias": 2, "relu": 3}
_MODES = {"xcorr": 1, "conv": 2}
_MAX_DIM = 2**31 - 1
_MAX_ELEMENTS = 2**48
_ALIGNMENT_AT = 12

KEY = struct.Struct("<8B4B2Hq5q5q5q5q5q3q3q3q3q")
assert KEY.size == 320


def _packed(dims: list[int], channels_last: bool) -> list[int]:
    order = [1, *range(len(dims) - 1, 1, -1), 0] if channels_last else range(len(dims) - 1, -1, -1)
    strides, step = [0] * len(dims), 1
    for i in order:
        strides[i] = step
        step *= dims[i]
    return strides


def _fits(dims: list[int], strides: list[int], packed: list[int]) -> bool:
    return all(d == 1 or s == p for d, s, p in zip(dims, strides, packed))


def _normalized(dims: list[int], strides: list[int]) -> list[int]:
    last = any(d > 1 for d in dims[2:]) and dims[1] > 1 and strides[1] == 1
    return [p if d == 1 else s for d, s, p in zip(dims, strides, _packed(dims, last))]


def _canonical_strides(tensors: list[list[int]], strides: list[list[int]]) -> list[list[int]]:
    for channels_last in (False, True):  # nchw if both fit
        packed = [_packed(dims, channels_last) for dims in tensors]
        if all(_fits(*of) for of in zip(tensors, strides, packed)):
            return packed
    return [_normalized(*of) for of in zip(tensors, strides)]


def _require(holds: bool, field: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{field}: {rule}")


def _number(field: str, text: str) -> int:
    digits = text.removeprefix("-")
    _require(digits.isascii() and digits.isdigit(), field, f"{text!r} is not a whole number")
    return int(text)


def _name(field: str, names: dict[str, int], text: str) -> int:
    _require(text in names, field, f"must be one of {', '.join(names)}, is {text!r}")
    return names[text]


def data_type(text: str) -> str:
    """The text form's word for a data type; the text itself if it is not a data type."""
    name = text.lower() if text.isascii() else text
    name = _SPELLINGS.get(name, name)
    return name if name in _TYPES else text


def _tokens(text: str) -> tuple[str, dict[str, str]]:
    """The operation, and the other tokens by kind; types and layouts are "type" and "layout"."""
    operation, *rest = (token.strip() for token in text.split(","))
    found: dict[str, str] = {}
    for token in rest:
        name, equals, value = (part.strip() for part in token.partition("="))
        if not equals:
            value = data_type(token)
            name = "type" if value in _TYPES else "layout"
        elif name in ("out", "acc", "mid"):
            value = data_type(value)
        _require(name not in found, name, "given twice")
        found[name] = value
    return operation, found


def _spread(field: str, values: list[int], rank: int, absent: int) -> list[int]:
    """A value for each spatial dimension, of which there are at least two. None is `absent` throughout, which is also the
    least one; a single value is that of every dimension."""
    _require(len(values) in (0, 1, rank), field, f"must have 1 entry or {rank}, has {len(values)}")
    values = (values or [absent]) * (rank if len(values) < 2 else 1)
    _require(all(absent <= v <= _MAX_DIM for v in values), field, f"must be from {absent} to 2^31-1")
    return [absent, *values] if rank == 1 else values


def outputs(x: Sequence[int], w: Sequence[int], *by_dimension: Sequence[int]) -> list[int]:
    """The forward output's spatial sizes; `by_dimension` are pads before and behind, strides and dilations."""
    sizes = zip(x[2:], w[2:], *by_dimension)
    return [(size + l + h - (d * (k - 1) + 1)) // s + 1 for size, k, l, h, s, d in sizes]


def parse(text: str) -> bytes:
    """The key of a problem in the text form. ValueError names the token and the
    rule; what only the daemon judges (which types go together) is not looked at."""
    operation, tokens = _tokens(text)
    take = tokens.pop

    def numbers(field: str) -> list[int]:
        value = take(field, "")
        return [_number(field, part) for part in value.split("x")] if value else []

    x, w = numbers("x"), numbers("w")
    _require(3 <= len(x) <= 5 and len(w) == len(x), "x, w", "must both have 3 to 5 entries")
    rank = len(x) - 2
    pads = [part.partition(":") for part in take("pad", "").split("x") if part]
    low = _spread("pad", [_number("pad", p[0]) for p in pads], rank, 0)
    high = _spread("pad", [_number("pad", p[2] or p[0]) for p in pads], rank, 0)
    stride = _spread("stride", numbers("stride"), rank, 1)
    dilation = _spread("dilation", numbers("dilation"), rank, 1)
    typed = [numbers(name) for name in ("xstrides", "wstrides", "ystrides")]
    if rank == 1:
        x.insert(2, 1)
        w.insert(2, 1)
        for given in typed:
            if given:
                given.insert(2, 1)
    _require(all(1 <= d <= _MAX_DIM for d in x + w), "x, w", "must be from 1 to 2^31-1")
    y = [x[0], w[0], *outputs(x, w, low, high, stride, dilation)]
    _require(all(d >= 1 for d in y), "x, w", "must leave an output")
    tensors = [x, w, y]
    layout = take("layout", "")
    if any(typed):
        _require(all(len(s) == len(x) for s in typed) and not layout, "xstrides", "all three lists, or a layout")
        _require(all(1 <= s <= _MAX_ELEMENTS for of in typed for s in of), "xstrides", "must be from 1 to 2^48")
        strides = typed
    else:
        _require(layout in ("", "nchw", "nhwc"), layout, "unknown token")
        strides = [_packed(dims, layout == "nhwc") for dims in tensors]
    strides = _canonical_strides(tensors, strides)
    epilogue = [_name("epilogue", _EPILOGUE, op) for op in take("epilogue", "").split("+") if op]
    _require(len(epilogue) <= 4, "epilogue", "must have at most 4 operations")
    dtype = take("type", "f32")
    data = _name("type", _TYPES, dtype)
    output = _name("out", _TYPES, take("out", ("i8" if epilogue else "i32") if dtype == "i8" else dtype))
    compute = _name("acc", _TYPES, take("acc", {"f64": "f64", "i8": "i32"}.get(dtype, "f32")))
    middle = _name("mid", _TYPES, take("mid", "f64" if dtype == "f64" else "f32")) if epilogue else 0
    mode = _name("mode", _MODES, take("mode", "xcorr"))
    groups = _number("groups", take("groups", "1"))
    alignment, sms = _number("align", take("align", "16")), _number("sms", take("sms", "0"))
    _require(1 <= alignment <= 256 and alignment & (alignment - 1) == 0, "align", "must be a power of two to 256")
    _require(0 <= sms <= 1024, "sms", "must be from 0 to 1024")
    _require(1 <= groups and w[1] * groups == x[1] and w[0] % groups == 0, "groups", "must divide C and K")
    _require(not tokens, next(iter(tokens), ""), "unknown token")

    def padded(values: list[int], size: int) -> list[int]:
        return values + [0] * (size - len(values))

    return KEY.pack(
        _name("operation", _OPERATIONS, operation), data, output, compute, middle, mode, len(x) - 2, len(epilogue),
        *padded(epilogue, 4), alignment, sms, groups, *padded(x, 5), *padded(w, 5),
        *(v for of in strides for v in padded(of, 5)),
        *(v for of in (low, high, stride, dilation) for v in padded(of, 3)),
    )  # fmt: skip


def text(key: bytes) -> str:
    """The canonical text form."""
    fields: tuple[int, ...] = KEY.unpack(key)
    operation, data, output, compute, middle, mode, rank, fused = fields[:8]
    alignment, sms, groups = fields[12:15]
    x, w, *strides = (list(fields[at : at + rank + 2]) for at in range(15, 40, 5))
    low, high, stride, dilation = (fields[at : at + rank] for at in range(40, 52, 3))

    def times(values: Iterable[int]) -> str:
        return "x".join(map(str, values))

    pads = times(low) if low == high else "x".join(f"{l}:{h}" for l, h in zip(low, high))
    y = [x[0], w[0], *outputs(x, w, low, high, stride, dilation)]
    for name in ("nchw", "nhwc"):  # nchw if both fit
        if strides == [_packed(dims, name == "nhwc") for dims in (x, w, y)]:
            layout = name
            break
    else:
        layout = ",".join(f"{name}strides={times(of)}" for name, of in zip("xwy", strides))
    tokens = [
        _word(_OPERATIONS, operation), f"x={times(x)}", f"w={times(w)}", f"pad={pads}", f"stride={times(stride)}",
        f"dilation={times(dilation)}", f"groups={groups}", layout, _word(_TYPES, data),
    ]  # fmt: skip
    if output != (_TYPES["i8" if fused else "i32"] if data == _TYPES["i8"] else data):
        tokens.append(f"out={_word(_TYPES, output)}")
    tokens.append(f"acc={_word(_TYPES, compute)}")
    if fused:
        tokens.append(f"mid={_word(_TYPES, middle)}")
    if mode == _MODES["conv"]:
        tokens.append("mode=conv")
    if fused:
        tokens.append("epilogue=" + "+".join(_word(_EPILOGUE, op) for op in fields[8 : 8 + fused]))
    if alignment != 16:
        tokens.append(f"align={alignment}")
    if sms:
        tokens.append(f"sms={sms}")
    return ",".join(tokens)


def canonical(problem: str) -> str:
    """The canonical form of a text; as it is if it is no problem."""
    try:
        return text(parse(problem))
    except ValueError:
        return problem


def _word(names: dict[str, int], number: int) -> str:
    return next(name for name, own in names.items() if own == number)


def alignment_of(key: bytes) -> int:
    """In bytes."""
    return int.from_bytes(key[_ALIGNMENT_AT : _ALIGNMENT_AT + 2], "little")


def without_alignment(key: bytes) -> bytes:
    """The bytes that are hashed and compared: one tuning serves every equal or stricter alignment."""
    return key[:_ALIGNMENT_AT] + b"\0\0" + key[_ALIGNMENT_AT + 2 :]


def flops(key: bytes) -> float:
    """Operations of the direct method, padding included."""
    fields: tuple[int, ...] = KEY.unpack(key)[6:]
    rank, x, w = fields[0], fields[9:14], fields[14:19]
    low, high, stride, dilation = (fields[at : at + rank] for at in (34, 37, 40, 43))
    return 2.0 * math.prod((x[0], *w[: rank + 2], *outputs(x, w, low, high, stride, dilation)))
