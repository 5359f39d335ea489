"""python -m convtune problems|warm MODEL.onnx [--batch 1,8,32]"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import sys
from collections.abc import Iterable, Sequence

from convtune import sizes
from convtune.fusion import RUNTIMES
from convtune.problem import DATA_TYPES, LAYOUTS, ModelError, Problem, Workload
from convtune.problem_key import data_type

# As the command line's.
DONE, FAILED, USAGE, MISS, UNREACHABLE = 0, 1, 2, 3, 4
_CODES = {"INVALID_ARGUMENT": USAGE, "NOT_FOUND": MISS, "UNAVAILABLE": UNREACHABLE, "DEADLINE_EXCEEDED": UNREACHABLE}


def _sizes(text: str) -> list[int]:
    try:
        found = sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; sizes are such as 8 or 1,8,32 or 224..512/32") from None
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"must be from 1, is {text!r}")
    return found


def _dimension(text: str) -> tuple[list[str], list[int]]:
    """Names that have the same size, and its sizes."""
    names, equals, found = text.partition("=")
    if not equals or not all(names.split(",")):
        raise argparse.ArgumentTypeError(f"must be NAME=SIZE, is {text!r}")
    return names.split(","), _sizes(found)


def _choices(dimensions: list[tuple[list[str], list[int]]]) -> list[dict[str, int]]:
    """Every combination of the sizes; the last dimension's change first."""
    names = [names for names, _ in dimensions]
    return [
        {name: size for same, size in zip(names, chosen) for name in same}
        for chosen in itertools.product(*(found for _, found in dimensions))
    ]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"must be a number above 0, is {text!r}")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m convtune", description="The convolutions of ONNX models.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, words in (("problems", "print them, a line for each run"), ("warm", "tune what is missing of them")):
        sub = verbs.add_parser(verb, help=words)
        sub.add_argument("models", nargs="+", metavar="MODEL.onnx",
                         help="a model; what ends otherwise may be a list of problems in the text form")  # fmt: skip
        sub.add_argument("--batch", type=_sizes, metavar="N", help="batch sizes, such as 8 or 1,8,32 or 8..64/8")
        sub.add_argument("--dim", type=_dimension, action="append", default=[], metavar="NAME=N",
                         help="sizes of another symbolic dimension, such as height=224..512/32; NAME,NAME=N: of two "
                              "that have the same size; INPUT:2=N: of one without a name; repeatable, and every "
                              "combination is read")  # fmt: skip
        sub.add_argument("--runtime", choices=RUNTIMES, default="onnxruntime",
                         help="who runs the model, and so what is fused with a convolution (default: onnxruntime)")  # fmt: skip
        sub.add_argument("--dtype", type=data_type, choices=DATA_TYPES, help="in place of the model's own")
        sub.add_argument("--layout", choices=LAYOUTS, default="nchw")
    sub.add_argument("--address", help="unix:PATH of the daemon")
    sub.add_argument("--environment", default="", help="where the daemon has several")
    sub.add_argument("--timeout", type=_seconds, default=5.0, metavar="SECONDS",
                     help="how long to wait for a daemon that does not answer (default: 5)")  # fmt: skip
    sub.add_argument("--budget", type=_seconds, metavar="SECONDS", help="time for one problem")
    return parser


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def _is_list(path: str) -> bool:
    """True for a file of text that does not say that it is a model."""
    if path.endswith(".onnx"):
        return False
    try:
        with open(path, "rb") as file:
            return b"\0" not in (start := file.read(4096)) and start.isascii()
    except OSError:
        return True  # the reader says why


def _read(args: argparse.Namespace) -> tuple[list[Problem | str], list[str], bool]:
    """The problems that run, in the order of the files; notices; and whether every model has something to tune."""
    found: list[Problem | str] = []
    notices: list[str] = []
    whole = True
    for path in args.models:
        if _is_list(path):
            from convtune.warming import read_list

            found += read_list(path)
            continue
        from convtune.warming import onnx_reader

        model: Workload = onnx_reader().problems(
            path,
            batch_sizes=args.batch,
            dims=_choices(args.dim),
            dtype=args.dtype,
            layout=args.layout,
            runtime=args.runtime,
        )
        notices += model.notices
        whole &= len(model) > 0
        found += [problem for problem, count in model.items() for _ in range(count)]
    return found, notices, whole


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        code, lines = _run(arguments)
    except ModuleNotFoundError as error:  # such as convtune.v1, which the package's build makes
        print(f"error: {error}; convtune is not installed: pip install ./client/python", file=sys.stderr)
        return FAILED
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        pass  # the reader has seen enough
    except OSError as error:
        print(f"error: standard output: {error.strerror}", file=sys.stderr)
        code = FAILED
    # The rest of the buffer would be an error again when Python ends.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(arguments: Sequence[str] | None) -> tuple[int, Iterable[object]]:
    """The exit code, and the lines of the output."""
    args = _parser().parse_args(arguments)
    try:
        found, notices, whole = _read(args)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE, ()
    for notice in notices:
        print(notice, file=sys.stderr)
    if args.verb == "problems":
        return DONE, found
    from convtune.client import Client
    from convtune.errors import ConvtuneError
    from convtune.warming import warm

    try:
        with Client(args.address, environment=args.environment, timeout=args.timeout) as client:
            summary = warm(found, client, budget_s=args.budget, on_progress=_progress)
    except ConvtuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return _CODES.get(error.code, FAILED), ()
    except ValueError as error:  # an argument
        print(f"error: {error}", file=sys.stderr)
        return USAGE, ()
    return DONE if whole and summary.is_warm else FAILED, [summary]


if __name__ == "__main__":
    sys.exit(main())
