#!/usr/bin/env python3
"""Time, memory and size of bundles, and how the time compares to sha256sum of the same file.

usage: bundles.py BUILD_DIR [--tunings 1000000] [--folder DIR]

BUILD_DIR has bin/convtune, bin/convtuned and bin/convtune-make-bundle. The ratios are the result: seconds depend on the
machine and on what else it does.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


def measure(name, command, rows, env=None):
    """Runs it; appends (name, seconds, peak MiB)."""
    start = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        raise SystemExit(f"{name} failed: {output.decode(errors='replace')}")
    rows.append((name, seconds, usage.ru_maxrss / 1024))
    print(f"{name}: {seconds:.1f} s, {usage.ru_maxrss / 1024:.0f} MiB", flush=True)


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
    measure("import", [convtune, "import", a], rows, env)
    rows.append(("  (daemon)", rows[-1][1], peak_mib(daemon.pid)))
    measure("import again", [convtune, "import", a], rows, env)
    measure("export", [convtune, "export", folder / "exported.bundle"], rows, env)
    daemon.send_signal(signal.SIGTERM)
    daemon.wait()
    database = sum(f.stat().st_size for f in (folder / "first").glob("convtune.db*"))
    daemon, env, seconds = start_daemon(build, folder, "second", "--base", a)
    rows.append(("start on it as --base", seconds, peak_mib(daemon.pid)))
    daemon.send_signal(signal.SIGTERM)
    daemon.wait()
    sha = next(seconds for name, seconds, _ in rows if name == "sha256sum")
    size = a.stat().st_size
    print(f"\n{args.tunings} tunings, {size / 2**20:.0f} MiB ({size / args.tunings:.0f} B each); "
          f"database {database / 2**20:.0f} MiB\n\n| step | s | times sha256sum | peak MiB |\n|---|---|---|---|")  # fmt: skip
    for name, seconds, mib in rows:
        print(f"| {name.strip()} | {seconds:.1f} | {seconds / sha:.1f} | {mib:.0f} |")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
