"""Sizes that are left open: "1,8,32" or "224..512/32", and problems with some.

The command line's own (proto/convert/README.md); the same cases test both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MAX_SIZE = 2**31 - 1
_MAX_EXPANSIONS = 10_000
_MAX_BRACKETS = 32
_MAX_TEXT_BYTES = 4096


def _one(text: str) -> int:
    text = text.strip()
    if not re.fullmatch("-?[0-9]+", text):
        raise ValueError(f"{text!r} is not a whole number")
    if not 0 <= int(text) <= _MAX_SIZE:
        raise ValueError(f"must be from 0 to 2^31-1, is {text}")
    return int(text)


def parse(text: str) -> list[int]:
    """The sizes of "8", "1,8,32", "224..512/32" and mixtures. A range goes from its
    first size in steps (1 if none is named) to the last one that is not above its
    end. ValueError with the rule that is broken."""
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, end = part.partition("..")
        last, slash, step = end.partition("/")
        begin = _one(first)
        end_size = _one(last) if dots else begin
        step_size = _one(step) if slash else 1
        if step_size < 1 or end_size < begin:
            raise ValueError(f"must go up in steps from 1, is {part.strip()!r}")
        run = range(begin, end_size + 1, step_size)
        if len(sizes) + len(run) > _MAX_EXPANSIONS:
            raise ValueError(f"must be at most {_MAX_EXPANSIONS} sizes")
        sizes += run
    return sizes


def expand(text: str) -> list[str]:
    """The problems that a text with sizes in brackets stands for, such as
    "fwd,x=1x3x[224..512/32]x[=],w=64x3x7x7": one for each size, the last bracket's
    changing first. "[=]" is the size of the bracket before it. A text without
    brackets stands for itself. ValueError names the token and the rule."""
    if "[" not in text and "]" not in text:
        return [text]
    if len(text.encode(errors="replace")) > _MAX_TEXT_BYTES:
        raise ValueError(f"text: must be at most {_MAX_TEXT_BYTES} bytes")
    pieces, brackets = _take_apart(text)
    return list(_fill(pieces, brackets, 0))


def _take_apart(text: str) -> tuple[list[str], list[list[int]]]:
    """The pieces around the brackets, and the sizes of each; none for [=]."""
    parts = re.split(r"([\[\]])", text)
    pieces = [parts[0]]
    brackets: list[list[int]] = []
    count = 1
    for at in range(1, len(parts), 4):
        token = "".join(pieces).rpartition(",")[2].partition("=")
        field = token[0].strip() if token[1] else "text"
        if parts[at] != "[" or len(parts) <= at + 2 or parts[at + 2] != "]":
            raise ValueError(f"{field}: brackets must come in pairs, one behind the other")
        if len(brackets) == _MAX_BRACKETS:
            raise ValueError(f"{field}: must be one of at most {_MAX_BRACKETS} brackets")
        inside = parts[at + 1].strip()
        pieces.append(parts[at + 3])
        if inside == "=":
            if not brackets:
                raise ValueError(f"{field}: [=] must have a bracket with sizes before it")
            brackets.append([])
            continue
        try:
            brackets.append(parse(inside))
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
        count *= len(brackets[-1])
        if count > _MAX_EXPANSIONS:
            raise ValueError(f"{field}: must stand for at most {_MAX_EXPANSIONS} problems")
    return pieces, brackets


def _fill(pieces: Sequence[str], brackets: Sequence[list[int]], before: int) -> Iterator[str]:
    if not brackets:
        yield pieces[0]
        return
    for size in brackets[0] or [before]:
        for rest in _fill(pieces[1:], brackets[1:], size):
            yield f"{pieces[0]}{size}{rest}"
