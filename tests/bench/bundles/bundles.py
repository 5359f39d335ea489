#!/usr/bin/env python3
"""CPU time, memory and size of bundles, and how the time compares to sha256sum of the same file.

usage: bundles.py BUILD_DIR [--tunings 1000000] [--folder DIR]

BUILD_DIR has bin/convtune, bin/convtuned and bin/convtune-make-bundle. The ratios of CPU time are the result: wall time also
depends on what else the machine does.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name, command, rows, env=None, daemon=None):
    """Runs it; appends (name, wall seconds, CPU seconds, peak MiB), and the same of the daemon that it calls."""
    start = time.monotonic()
    before = cpu_seconds(daemon.pid) if daemon else 0
    process = subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        raise SystemExit(f"{name} failed: {output.decode(errors='replace')}")
    cpu = usage.ru_utime + usage.ru_stime
    rows.append((name, seconds, cpu, usage.ru_maxrss / 1024))
    if daemon:
        rows.append((f"{name}, daemon", seconds, cpu_seconds(daemon.pid) - before, peak_mib(daemon.pid)))
    print(f"{name}: {seconds:.1f} s, CPU {rows[-1][2]:.2f} s, {rows[-1][3]:.0f} MiB", flush=True)


def peak_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def start_daemon(build, folder, state, *flags):
    socket = folder / f"{state}.sock"
    process = subprocess.Popen(
        [build / "bin" / "convtuned", "--devices", "none", "--state-dir", folder / state, "--listen", f"unix:{socket}",
         "--log-level", "warn", *flags]
    )  # fmt: skip
    env = {**os.environ, "CONVTUNE_ADDRESS": f"unix:{socket}"}
    start = time.monotonic()
    while not socket.exists():
        if process.poll() is not None:
            raise SystemExit("convtuned ended")
        time.sleep(0.05)
    return process, env, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--tunings", type=int, default=1_000_000)
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ct-bench-", dir=args.folder))
    build, rows = args.build.resolve(), []
    convtune = build / "bin" / "convtune"
    a, b = folder / "a.bundle", folder / "b.bundle"
    measure("write", [build / "bin" / "convtune-make-bundle", args.tunings, a], rows)
    measure("sha256sum", ["sha256sum", a], rows)
    measure("verify", [convtune, "verify", a], rows)
    shutil.copy(a, b)
    measure("merge with itself", [convtune, "merge", folder / "merged.bundle", a, b], rows)
    if (folder / "merged.bundle").read_bytes() != a.read_bytes():
        raise SystemExit("a bundle merged with itself must be itself")
    daemon, env, _ = start_daemon(build, folder, "first")
    measure("import", [convtune, "import", a], rows, env, daemon)
    measure("import again", [convtune, "import", a], rows, env, daemon)
    measure("export", [convtune, "export", folder / "exported.bundle"], rows, env, daemon)
    daemon.send_signal(signal.SIGTERM)
    daemon.wait()
    database = sum(f.stat().st_size for f in (folder / "first").glob("convtune.db*"))
    daemon, env, seconds = start_daemon(build, folder, "second", "--base", a)
    rows.append(("start on it as --base", seconds, cpu_seconds(daemon.pid), peak_mib(daemon.pid)))
    daemon.send_signal(signal.SIGTERM)
    daemon.wait()
    sha = next(cpu for name, _, cpu, _ in rows if name == "sha256sum")
    size = a.stat().st_size
    print(
        f"\n{args.tunings} tunings, {size / 2**20:.1f} MiB ({size / args.tunings:.0f} B each); "
        f"database {database / 2**20:.1f} MiB\n\n"
        "| step | wall s | CPU s | CPU, times sha256sum | CPU us a tuning | peak MiB |\n|---|---|---|---|---|---|"
    )
    for name, seconds, cpu, mib in rows:
        each = 1e6 * cpu / args.tunings
        print(f"| {name} | {seconds:.1f} | {cpu:.2f} | {cpu / sha:.1f} | {each:.0f} | {mib:.0f} |")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
