"""Is it worth it? Whole networks with our winners against the best of what users have, within half an hour of a GPU.

    python3 tests/gpu/study --steps                    the steps that are left, a JSON object a line
    python3 tests/gpu/study --work WORK --step NAME     runs one
    python3 tests/gpu/study --work WORK --table         prints the tables of what there is
    python3 tests/gpu/study --report FILE... --out DIR  tables and plots of packed results

What it does, and the rule that decides: STUDY.md beside it.
"""

import argparse
import json
import pathlib
import signal
import sys
import tarfile
import time
import traceback

import report
import steps
from lab import Lab, MadeUpCard, NoGpu, NotHere, NotReady, StepFailed, TimeIsUp, find_card
from records import Records, read

FAILED, USAGE, CUT_SHORT, NO_GPU = 1, 2, 75, 77


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--steps", action="store_true", help="print the steps that are left, in order, with their limits")
    what.add_argument("--step", choices=[s.name for s in steps.all_steps()], metavar="NAME", help="run this step")
    what.add_argument("--table", action="store_true", help="print the tables of what WORK holds")
    what.add_argument("--report", nargs="+", type=pathlib.Path, metavar="FILE", help="packed results, or records.jsonl: draw them into --out")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("study-work"), help="folder of the records (default: ./study-work)")
    parser.add_argument("--kit", type=pathlib.Path, help="folder with bin and lib (default: build-portable, else build)")
    parser.add_argument("--deadline", type=float, help="end by this time, in seconds since 1970 (default: the step's limit from now)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("study-report"), help="folder of --report (default: ./study-report)")
    parser.add_argument("--simulate", type=pathlib.Path, metavar="WORKER", help="no GPU: this program in the worker's place, and made-up peers")
    return parser.parse_args(arguments)


def run_step(parsed):
    """The exit code: 0 done, 1 failed, 75 not done yet with what there was kept, 77 no GPU."""
    step = next(s for s in steps.all_steps() if s.name == parsed.step)
    until = parsed.deadline if parsed.deadline is not None else time.time() + step.limit_s
    # A polite end of the step's process is an end of its children and of nothing half-written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(CUT_SHORT))
    try:
        lab = Lab(parsed.work, parsed.kit, parsed.simulate)
    except NotHere as error:
        print(f"study: {error}", file=sys.stderr)
        return NO_GPU if isinstance(error, NoGpu) else FAILED
    records = Records(parsed.work)
    if {c["simulated"] for c in records.of("conditions")} - {lab.simulated}:
        print(f"study: --work: {parsed.work} holds {'real' if lab.simulated else 'simulated'} records", file=sys.stderr)
        return USAGE
    records.begin(lab.conditions())
    started = time.time()
    try:
        step.run(lab, records, step.name, until)
    except TimeIsUp:
        print(f"study: {step.name}: its time is up; what there is is kept", file=sys.stderr)
        return CUT_SHORT
    except NotReady as error:
        print(f"study: {step.name}: {error}", file=sys.stderr)
        return CUT_SHORT
    except Exception as error:  # whatever it is, the table names it
        reason = str(error) if isinstance(error, StepFailed) else f"{type(error).__name__}: {error}"
        records.add({"kind": "failed", "step": step.name, "reason": reason})
        if not isinstance(error, StepFailed):
            traceback.print_exc()
        print(f"study: {step.name}: {reason}", file=sys.stderr)
        return FAILED
    finally:
        lab.close()
    records.add({"kind": "done", "step": step.name, "seconds": round(time.time() - started, 1)})
    print(f"study: {step.name}: done in {time.time() - started:.0f} s", file=sys.stderr)
    return 0


def model(simulate):
    """Of the GPU; None where there is none."""
    try:
        return (MadeUpCard() if simulate else find_card()).name
    except NoGpu:
        return None


def packed_records(paths):
    """The Records of archives, folders and records.jsonl files together; a line that several hold counts once."""
    data = []
    for path in paths:
        if path.is_dir():
            data += [found.read_bytes() for found in sorted(path.rglob("records.jsonl"))]
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as archive:
                data += [archive.extractfile(m).read() for m in archive if m.isfile() and pathlib.PurePath(m.name).name == "records.jsonl"]
        else:
            data.append(path.read_bytes())
    records = Records(pathlib.Path("/nonexistent"))
    records.all = read(b"\n".join(data))
    return records


def main(arguments=None):
    parsed = parse_arguments(arguments)
    if parsed.step:
        return run_step(parsed)
    if parsed.report:
        missing = [str(path) for path in parsed.report if not path.exists()]
        if missing:
            print(f"study: --report: {', '.join(missing)}: not there", file=sys.stderr)
            return USAGE
        records = packed_records(parsed.report)
        if not records.all:
            print("study: --report: no records in these files", file=sys.stderr)
            return FAILED
        report.write(records, parsed.out)
        print(parsed.out / "report.md")
        return 0
    records = Records(parsed.work)
    if parsed.table:
        print(report.markdown(records))
    else:
        done = records.done(model(parsed.simulate))
        for step in steps.all_steps():
            if step.name not in done:
                print(json.dumps({"step": step.name, "limit_s": step.limit_s, "about": step.about, "extra": step.extra}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
