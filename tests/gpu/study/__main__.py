"""The study, one command: whole networks, shape by shape, and unmodified programs, against every peer.

    python3 tests/gpu/study --plan
    python3 tests/gpu/study --out DIR [--minutes 9] [--part networks,shapes,serving]
    python3 tests/gpu/study --out DIR --report

It goes on where it stopped: the same --out, again. What it does and how: STUDY.md beside it.
"""

import argparse
import fnmatch
import pathlib
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import part_networks  # noqa: E402
import part_serving  # noqa: E402
import part_shapes  # noqa: E402
from lab import Lab, NotHere, find_build  # noqa: E402
from records import Records  # noqa: E402
from steps import estimate, pending, run_all  # noqa: E402

PARTS = {"networks": part_networks, "shapes": part_shapes, "serving": part_serving}
NO_GPU = 77
# Not packed: what only this machine needs to go on.
UNPACKED = {"state", "fresh"}


def say(text):
    print(f"study: {text}", file=sys.stderr, flush=True)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="tests/gpu/study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="list the steps that are left and how long they are expected to take")
    parser.add_argument("--report", action="store_true", help="write the tables and plots from what there is, and run nothing")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("study-out"), help="folder of records, state and report (default: ./study-out)")
    parser.add_argument("--resume", type=pathlib.Path, metavar="FILE", help="unpack an earlier run's tar.gz into --out first")
    parser.add_argument("--part", default="networks,shapes,serving", help="parts, in this order (default: all)")
    parser.add_argument("--only", metavar="GLOB", help="only steps whose name matches, such as 'networks/resnet50-b32*'")
    parser.add_argument("--minutes", type=float, default=9.0, help="end within so many minutes (default 9)")
    parser.add_argument("--budget", default="2s", help="time to tune one problem (default 2s)")
    parser.add_argument("--data", type=pathlib.Path, help="folder with deepbench_train.csv and deepbench_infer.csv; without it ResNet-50's shapes alone")
    parser.add_argument("--build", help="build folder (default: build-portable, else build)")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch (default: this one)")
    parser.add_argument("--no-fork", action="store_true", help="start each network process anew instead of forking it")
    parser.add_argument("--simulate", action="store_true", help="no card: fake worker, made-up times; tries everything else")
    parsed = parser.parse_args(arguments)
    unknown = [p for p in parsed.part.split(",") if p not in PARTS]
    if unknown:
        parser.error(f"--part: must be a list of {', '.join(PARTS)}, has {', '.join(unknown)}")
    if parsed.data is not None and not (parsed.data / "deepbench_train.csv").exists():
        parser.error(f"--data: no deepbench_train.csv in {parsed.data}")
    return parsed


def all_steps(parsed):
    options = {"budget": parsed.budget, "data": parsed.data}
    steps = [step for part in parsed.part.split(",") for step in PARTS[part].steps(options)]
    return [s for s in steps if parsed.only is None or fnmatch.fnmatch(s.name, parsed.only)]


def print_plan(steps, records):
    kinds = {}
    for step in steps:
        if step.name not in records.done:
            count, seconds = kinds.get(step.kind, (0, 0.0))
            kinds[step.kind] = (count + 1, seconds + estimate(step, records))
    for kind, (count, seconds) in kinds.items():
        print(f"{kind:60} {count:4} steps {seconds / 60:8.1f} min")
    total = sum(seconds for _, seconds in kinds.values())
    left = sum(count for count, _ in kinds.values())
    measured = "as measured where steps of the kind have run, else guessed" if records.done else "guessed: none has run"
    print(f"{len(steps)} steps, {len(steps) - left} done, {left} left: about {total / 60:.0f} minutes ({measured})")
    given_up = [name for name, failures in records.failures.items() if name not in records.done]
    for name in given_up:
        print(f"failed: {name}: {records.failures[name][-1]['reason'][:160]}")


def pack(out):
    """All that is worth carrying away, as one file beside --out."""
    path = out.with_name(f"{out.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.tar.gz")
    part = path.with_suffix(".part")
    with tarfile.open(part, "w:gz") as archive:
        for entry in sorted(out.iterdir()):
            if entry.name not in UNPACKED:
                archive.add(entry, arcname=f"{out.name}/{entry.name}", filter=lambda info: info if info.isfile() or info.isdir() else None)
    part.rename(path)
    return path


def unpack(file, out):
    """Refuses what would be written outside of --out."""
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            inside = pathlib.PurePosixPath(*pathlib.PurePosixPath(member.name).parts[1:])
            if inside.is_absolute() or ".." in inside.parts or not (member.isfile() or member.isdir()):
                raise NotHere(f"--resume: {file} holds {member.name}")
            target = out / inside
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.extractfile(member).read())


def run(parsed, records, steps):
    if parsed.simulate:
        from simulate import SimulatedLab as chosen
    else:
        chosen = Lab
    lab = chosen(parsed.out, find_build(parsed.build), parsed.python, not parsed.no_fork)
    try:
        lab.check()
        about = lab.about()
        mixed = {r["simulated"] for r in records.of("run")} - {about["simulated"]}
        if mixed:
            raise NotHere(f"{parsed.out} holds {'simulated' if True in mixed else 'real'} records: give another --out")
        records.begin(about)
        started = time.monotonic()
        count = run_all(steps, lab, records, parsed.minutes * 60, say)
        left = len([s for s in steps if s.name not in records.done])
        say(f"{count} steps in {time.monotonic() - started:.0f} s, {left} of {len(steps)} left")
    finally:
        lab.close()


def main(arguments=None):
    parsed = parse_arguments(arguments)
    try:
        if parsed.resume is not None:
            unpack(parsed.resume, parsed.out)
        records = Records(parsed.out)
        steps = all_steps(parsed)
        if parsed.plan:
            print_plan(steps, records)
            return 0
        if not parsed.report:
            run(parsed, records, steps)
    except NotHere as error:
        say(str(error))
        return NO_GPU if "no GPU" in str(error) else 1
    import report

    report.write(records, parsed.out / "report")
    print(pack(parsed.out))
    return 1 if any(name not in records.done for name in records.failures) else 0


if __name__ == "__main__":
    sys.exit(main())
