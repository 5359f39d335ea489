"""python -m convtune problems|warm MODEL.onnx [--batch 1,8,32]"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from convtune.problem import DATA_TYPES, LAYOUTS, ModelError, Problem, Workload

# As the command line's.
DONE, FAILED, USAGE, MISS, UNREACHABLE = 0, 1, 2, 3, 4
_CODES = {"INVALID_ARGUMENT": USAGE, "NOT_FOUND": MISS}


def _batches(text: str) -> list[int]:
    try:
        batches = [int(part) for part in text.split(",")]
    except ValueError:
        batches = []
    if not batches or min(batches) < 1:
        raise argparse.ArgumentTypeError(f"must be numbers from 1 with commas between, is {text!r}")
    return batches


def _dimension(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise argparse.ArgumentTypeError(f"must be NAME=SIZE, is {text!r}")
    return name, int(size)


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
        sub.add_argument("--batch", type=_batches, metavar="N[,N]", help="batch sizes")
        sub.add_argument("--dim", type=_dimension, action="append", default=[], metavar="NAME=SIZE",
                         help="size of another symbolic dimension; repeatable")  # fmt: skip
        sub.add_argument("--dtype", choices=DATA_TYPES, help="in place of the model's own")
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


def _read(args: argparse.Namespace) -> tuple[list[Problem | str], list[str]]:
    """What runs, in the order of the files, and notices."""
    found: list[Problem | str] = []
    notices: list[str] = []
    for path in args.models:
        if _is_list(path):
            from convtune.warming import read_list

            found += read_list(path)
            continue
        from convtune import onnx

        model: Workload = onnx.problems(
            path, batch_sizes=args.batch, dims=dict(args.dim), dtype=args.dtype, layout=args.layout
        )
        notices += model.notices
        found += [problem for problem, count in model.items() for _ in range(count)]
    return found, notices


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        found, notices = _read(args)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except ImportError as error:
        print(f"error: {error}; install it with: pip install 'onnx>=1.15'", file=sys.stderr)
        return USAGE
    for notice in notices:
        print(notice, file=sys.stderr)
    if args.verb == "problems":
        sys.stdout.writelines(f"{problem}\n" for problem in found)
        return DONE
    from convtune.client import Client
    from convtune.errors import ConvtuneError, Unavailable
    from convtune.warming import warm

    try:
        with Client(args.address, environment=args.environment, timeout=args.timeout) as client:
            summary = warm(found, client, budget_s=args.budget, on_progress=_progress)
    except Unavailable as error:
        print(f"error: no answer from the daemon: {error}", file=sys.stderr)
        return UNREACHABLE
    except ConvtuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return _CODES.get(error.code, FAILED)
    except ValueError as error:  # an argument
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    print(summary)
    return DONE if summary.is_warm else FAILED


if __name__ == "__main__":
    sys.exit(main())
