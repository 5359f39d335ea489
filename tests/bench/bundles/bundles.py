#!/usr/bin/env python3
"""CPU time, memory and size of bundles, and how the time compares to sha256sum of the same file.

usage: bundles.py [BUILD_DIR] [--tunings N | --large] [--folder DIR]

BUILD_DIR (default build) has bin/convtune, bin/convtuned and bin/convtune-make-bundle; --large is 1,000,000 tunings, the
default 10,000. --folder is on the disk to be measured. The ratios of CPU time are the result: wall time also depends on what
else the machine does. Also checks that a second import of the same bundle changes nothing, and fails where it does.
"""

import argparse
import atexit
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integration"))

from harness.daemon import Daemon  # noqa: E402
from harness.many_agents import cpu_seconds  # noqa: E402

TUNINGS, LARGE = 10_000, 1_000_000


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def started(build, folder, name, *flags):
    """A daemon without devices; its start_seconds say what its start took."""
    (folder / name).mkdir(exist_ok=True)
    daemon = Daemon(build / "bin" / "convtuned", folder / name, ("--devices", "none", "--log-level", "error", *flags))
    atexit.register(daemon.close)  # where a step failed
    start = time.monotonic()
    daemon.start()
    daemon.start_seconds = time.monotonic() - start
    return daemon


def peak_mib(daemon):
    return daemon.status("VmHWM") / 1024


def stop(daemon):
    require(daemon.stop(60) == 0, "convtuned failed")


class Steps:
    """One row for each step: wall and CPU seconds, of the daemon that it calls as well, and peak memory."""

    def __init__(self):
        self.rows = []

    def add(self, name, wall, cpu, mib, daemon_cpu=0.0, daemon_mib=0.0):
        row = {"step": name, "wall_s": wall, "cpu_s": cpu + daemon_cpu, "daemon_cpu_s": daemon_cpu,
               "peak_mib": mib, "daemon_peak_mib": daemon_mib}  # fmt: skip
        self.rows.append(row)
        print(f"{name}: {wall:.1f} s, CPU {row['cpu_s']:.2f} s", file=sys.stderr, flush=True)

    def run(self, name, command, daemon=None, keep=True):
        """Runs it, and returns what it printed, if that is to be kept."""
        env = {**os.environ, "CONVTUNE_ADDRESS": daemon.address} if daemon else None
        before, start = cpu_seconds([daemon.pid]) if daemon else 0, time.monotonic()
        process = subprocess.Popen([str(c) for c in command], env=env,
                                   stdout=subprocess.PIPE if keep else subprocess.DEVNULL, stderr=subprocess.STDOUT)
        output = process.stdout.read().decode(errors="replace") if keep else ""
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
        if status != 0:
            raise SystemExit(f"{name} failed: {output}")
        more = (cpu_seconds([daemon.pid]) - before, peak_mib(daemon)) if daemon else ()
        self.add(name, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, *more)
        return output


def await_quiet(steps, name, daemon):
    """A step for what the daemon does by itself until it has nothing to do for a second."""
    before, start = cpu_seconds([daemon.pid]), time.monotonic()
    busy, quiet_since = before, start
    while time.monotonic() - quiet_since < 1:
        time.sleep(0.1)
        if (now := cpu_seconds([daemon.pid])) > busy + 0.015:
            busy, quiet_since = now, time.monotonic()
    steps.add(name, quiet_since - start, 0, 0, busy - before, peak_mib(daemon))


def require(holds, what):
    if not holds:
        raise SystemExit(what)


def measure(build, folder, tunings):
    """The rows of all steps, the bundle's size and the database's."""
    steps, convtune = Steps(), build / "bin" / "convtune"
    a, b, merged = folder / "a.bundle", folder / "b.bundle", folder / "merged.bundle"
    steps.run("write", [build / "bin" / "convtune-make-bundle", tunings, a])
    size = a.stat().st_size
    steps.run("sha256sum", ["sha256sum", a])
    steps.run("verify", [convtune, "verify", a])
    os.link(a, b)
    steps.run("merge", [convtune, "merge", merged, a, b])
    require(digest(merged) == digest(a), "a bundle merged with itself must be itself")
    merged.unlink()
    daemon = started(build, folder, "first")
    took = steps.run("import", [convtune, "import", a], daemon)
    require(f"took {tunings} of {tunings} tunings" in took, f"the first import must take everything: {took}")
    await_quiet(steps, "publish", daemon)
    steps.run("export", [convtune, "export", folder / "first.bundle"], daemon)
    once = digest(folder / "first.bundle")
    (folder / "first.bundle").unlink()
    took = steps.run("import again", [convtune, "import", a], daemon)
    require(f"took 0 of {tunings} tunings" in took, f"a second import must take nothing: {took}")
    steps.run("export again", [convtune, "export", folder / "second.bundle"], daemon)
    require(digest(folder / "second.bundle") == once, "a second import must change nothing")
    (folder / "second.bundle").unlink()
    stop(daemon)
    database = sum(f.stat().st_size for f in daemon.state_dir.glob("convtune.db*"))
    steps.run("read the database", ["cat", daemon.state_dir / "convtune.db"], keep=False)
    daemon = started(build, folder, "first")
    steps.add("start", daemon.start_seconds, 0, 0, cpu_seconds([daemon.pid]), peak_mib(daemon))
    stop(daemon)
    shutil.rmtree(daemon.state_dir)
    daemon = started(build, folder, "base", "--base", a)
    steps.add("start with it as --base", daemon.start_seconds, 0, 0, cpu_seconds([daemon.pid]), peak_mib(daemon))
    stop(daemon)
    return steps.rows, size, database


def figures(build, folder, tunings=TUNINGS):
    """As tests/bench/figures.py wants them: CPU and wall time beside sha256sum's of the same file."""
    rows, size, database = measure(build, folder, tunings)
    bare = next(row for row in rows if row["step"] == "sha256sum")
    out = []
    for row in rows:
        name = "bundle_" + row["step"].replace(" ", "_").replace("--", "")
        if row["step"] in ("write", "sha256sum", "read the database", "start"):
            continue
        for what in ("cpu_s", "wall_s"):
            value, baseline = row[what], max(bare[what], 1e-3)
            out.append({"figure": f"{name}_{what}", "tunings": tunings, "value": value, "baseline": baseline,
                        "ratio": value / baseline})  # fmt: skip
        mib = max(row["peak_mib"], row["daemon_peak_mib"])
        out.append({"figure": f"{name}_peak_mib", "tunings": tunings, "value": mib})
    out.append({"figure": "bundle_bytes_per_tuning", "tunings": tunings, "value": size / tunings})
    out.append({"figure": "bundle_database_bytes_per_tuning", "tunings": tunings, "value": database / tunings})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?", default="build")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--tunings", type=int, default=TUNINGS)
    size.add_argument("--large", action="store_const", const=LARGE, dest="tunings")
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ct-bench-", dir=args.folder) as folder:
        rows, size, database = measure(args.build.resolve(), pathlib.Path(folder), args.tunings)
    sha = next(row for row in rows if row["step"] == "sha256sum")
    print(
        f"{args.tunings} tunings, {size / 2**20:.1f} MiB ({size / args.tunings:.0f} B each); database "
        f"{database / 2**20:.1f} MiB ({database / args.tunings:.0f} B each)\n\n"
        "| step | wall s | times sha256sum | CPU s | times sha256sum | CPU us a tuning | peak MiB | daemon's |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row['step']} | {row['wall_s']:.1f} | {row['wall_s'] / sha['wall_s']:.1f} | {row['cpu_s']:.2f}"
            f" | {row['cpu_s'] / sha['cpu_s']:.1f} | {1e6 * row['cpu_s'] / args.tunings:.0f} | {row['peak_mib']:.0f}"
            f" | {row['daemon_peak_mib']:.0f} |"
        )


if __name__ == "__main__":
    main()
