"""python -m convtune problems|warm MODEL.onnx [--batch 1,8,32]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from convtune.problem import DATA_TYPES, LAYOUTS, ModelError, Workload

# As the command line's.
DONE, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 4


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m convtune", description="The convolutions of ONNX models.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, words in (("problems", "print them, a line for each run"), ("warm", "tune what is missing of them")):
        sub = verbs.add_parser(verb, help=words)
        sub.add_argument("models", nargs="+", metavar="MODEL.onnx")
        sub.add_argument("--batch", type=_batches, metavar="N[,N]", help="batch sizes")
        sub.add_argument("--dim", type=_dimension, action="append", default=[], metavar="NAME=SIZE",
                         help="size of another symbolic dimension; repeatable")  # fmt: skip
        sub.add_argument("--dtype", choices=DATA_TYPES, help="in place of the model's own")
        sub.add_argument("--layout", choices=LAYOUTS, default="nchw")
    sub.add_argument("--address", help="unix:PATH of the daemon")
    sub.add_argument("--environment", default="", help="where the daemon has several")
    sub.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS",
                     help="how long to wait for a daemon that does not answer (default: 5)")  # fmt: skip
    sub.add_argument("--budget", type=float, metavar="SECONDS", help="time for one problem")
    return parser


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        from convtune import onnx as convtune_onnx

        workload = Workload()
        for model in args.models:
            workload += convtune_onnx.problems(
                model, batch_sizes=args.batch, dims=dict(args.dim), dtype=args.dtype, layout=args.layout
            )
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except ImportError as error:
        print(f"error: {error}; install it with: pip install 'convtune[onnx]'", file=sys.stderr)
        return USAGE
    for notice in workload.notices:
        print(notice, file=sys.stderr)
    if args.verb == "problems":
        print(workload.to_text(), end="")
        return DONE
    from convtune.client import Client, ConvtuneError, Unavailable
    from convtune.warming import warm

    try:
        with Client(args.address, environment=args.environment, timeout=args.timeout) as client:
            summary = warm(workload, client, budget_s=args.budget, on_progress=_progress)
    except Unavailable as error:
        print(f"error: no answer from the daemon: {error}", file=sys.stderr)
        return UNREACHABLE
    except (ConvtuneError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    print(summary)
    return DONE if summary.is_warm else FAILED


if __name__ == "__main__":
    sys.exit(main())
