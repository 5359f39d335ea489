"""Measures the parts, prints one table, writes build/bench.json.

Each part is a process. One that fails costs its own rows: the others are printed and written, and the exit code is 1.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "tests" / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "bench" / "bundles"))

import bundles  # noqa: E402
import grpc  # noqa: E402
from harness.daemon import Daemon, wait_until  # noqa: E402
from harness.fakes import script  # noqa: E402
from harness.many_agents import cpu_seconds  # noqa: E402

import plans  # noqa: E402
import preload_overhead  # noqa: E402
import tuning_cost  # noqa: E402

BATCHES = (1, 64, 1477)
BATCHES_BESIDE_TUNING = (1, 64)
TUNED_BESIDE = 100
INDEX_SIZES = (1_000, 10_000, 200_000, 1_000_000)
INDEX_CANDIDATES = (4, 40, 400, 4_000)
IDLE_SECONDS = 20
LOAD_OPTIONS = ()  # of convtune-bench-lookups
COMMIT_OPTIONS = ()
TUNED_PROBLEMS = None  # all
BUNDLE_TUNINGS = bundles.TUNINGS
PRELOAD_ROUNDS = 1000
FLEET = {"rounds": 6, "jobs": 12, "per_node": 100, "runs": 3}
START_SIZES = (1_000, 10_000, 100_000, 1_000_000)
START_ROUNDS = 3
ONE_START_FROM = 1_000_000  # publishing takes longer than starting
BAN_SIZES = (100_000,)
SNAPSHOT_SIZES = (1_000, 10_000, 100_000, 1_000_000)
# --small: whether the parts run, and nothing about speed.
SMALL = {
    "BATCHES": (1, 4), "BATCHES_BESIDE_TUNING": (1,), "TUNED_BESIDE": 4, "INDEX_SIZES": (1_000,), "INDEX_CANDIDATES": (4,),
    "IDLE_SECONDS": 1, "LOAD_OPTIONS": ("--rounds", 1, "--slice", 0.1), "COMMIT_OPTIONS": ("--tunings", 100, "--rounds", 1),
    "TUNED_PROBLEMS": 1, "BUNDLE_TUNINGS": 500, "PRELOAD_ROUNDS": 20, "START_SIZES": (200,), "START_ROUNDS": 1, "BAN_SIZES": (500,),
    "SNAPSHOT_SIZES": (1_000,), "FLEET": {"rounds": 1, "jobs": 2, "per_node": 2, "runs": 1},
}  # fmt: skip
# (figure, batch) -> what to reach, as a bound of the ratio.
TARGETS = {
    ("calls_per_second", 1): (">=", 0.95),
    ("calls_per_second", 64): (">=", 0.90),
    ("calls_per_second", 1477): (">=", 0.80),
    ("p50_us", None): ("<=", 1.10),
    ("p99_us", None): ("<=", 1.25),
    ("problem_ns", None): ("<=", 3.0),
    ("index_bytes_per_tuning", None): ("<=", 1.5),
    ("ban_commit_p50_ms", None): ("<=", 2.0),
    ("start_s", None): ("<=", 3.0),
    ("ready_plans_s", None): ("<=", 1.1),
    ("tune_s", None): ("<=", 1.1),
    ("fleet_p50_us", None): ("<=", 1.10),
    ("fleet_drain_s", None): ("<=", 0.60),
    ("bundle_import_cpu_s", None): ("<=", 5.0),
    ("bundle_export_cpu_s", None): ("<=", 5.0),
    ("snapshot_hit_ns", None): ("<=", 2.0),
    ("snapshot_miss_ns", None): ("<=", 2.0),
    ("commits_per_second", 1): (">=", 0.8),
    ("commits_per_second", 32): (">=", 5.0),
}
# A value that is as good as its ratio. A start reads the index for 100 ms at most before it is ready, whatever the size.
FLOORS = {"start_s": 0.15}
# Figures without a baseline: bounds of the value.
LIMITS = {"fleet_report_s": 5, "idle_wake_ups_per_second": 2, "idle_cpu_share": 0.005, "idle_resident_mib": 40}


def distinct_problems(count):
    return [
        f"fwd,x={1 + i // 100}x{64 + i % 10}x{7 + i // 10 % 10}x56,w=64x{64 + i % 10}x3x3,pad=1,nhwc,f16"
        for i in range(count)
    ]


def json_lines(command):
    text = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def daemon_in(folder, *args, env=None):
    daemon = Daemon(BIN / "convtuned", folder, args)
    daemon.start(env=env)
    try:
        yield daemon
    finally:
        daemon.close()


@contextlib.contextmanager
def ready_reply_server(folder, reply):
    address = f"unix:{folder}/baseline"
    process = subprocess.Popen(
        [BIN / "convtune-bench-lookups", "--serve", address, "--reply", reply], stdin=subprocess.PIPE
    )
    try:
        wait_until(lambda: (folder / "baseline").exists(), 10, "the baseline's socket")
        yield address
    finally:
        process.stdin.close()
        process.wait(10)


@contextlib.contextmanager
def tuning_beside(daemon, problems):
    """Other problems are tuned over and over meanwhile: results are committed, and the log is checkpointed."""
    ended = threading.Event()
    command = [BIN / "convtune", "tune", "--address", daemon.address, "--file", problems, "--force"]

    def tune():
        while not ended.is_set():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    thread = threading.Thread(target=tune)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure_lookups(folder):
    """The daemon beside a server that only sends a ready reply; both in processes of their own. The baseline is under
    the same load where the daemon tunes meanwhile."""
    problems = folder / "problems.txt"
    lines = distinct_problems(max(BATCHES) + TUNED_BESIDE)
    problems.write_text("\n".join(lines[: max(BATCHES)]) + "\n")
    others = folder / "others.txt"
    others.write_text("\n".join(lines[max(BATCHES) :]) + "\n")
    rows = []
    args = ("--devices", "0", "--worker", BIN / "convtune-fake-worker", "--log-level", "warn")
    with daemon_in(folder, *args, env=script(candidates=40)) as daemon:
        subprocess.run(
            [BIN / "convtune", "tune", "--address", daemon.address, "--file", problems],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for batch in BATCHES:
            reply = folder / f"reply{batch}"
            common = [BIN / "convtune-bench-lookups", "--daemon", daemon.address, "--problems", problems]
            common += ["--batch", batch]
            subprocess.run([str(c) for c in [*common, "--fetch", "--reply", reply]], check=True)
            with ready_reply_server(folder, reply) as address:
                rows += json_lines([*common, "--baseline", address, *LOAD_OPTIONS])
                if batch in BATCHES_BESIDE_TUNING:
                    with tuning_beside(daemon, others):
                        busy = json_lines([*common, "--baseline", address, "--clients", 4, *LOAD_OPTIONS])
                    rows += [{**row, "state": "busy"} for row in busy if row["figure"] != "calls_per_second"]
    return rows


def measure_index(_folder):
    """A problem's cost, from request bytes to reply bytes, beside a look-up in a bare hash table, at several sizes."""
    rows = []
    for tunings in INDEX_SIZES:
        rows += json_lines([BIN / "convtune-bench-index", "--tunings", tunings, "--batch", min(1477, tunings)])
    for candidates in INDEX_CANDIDATES:
        command = [BIN / "convtune-bench-index", "--tunings", 1_000, "--batch", 1_000, "--candidates", candidates]
        rows += [row for row in json_lines(command) if candidates != 40]
    return rows


def switches(pid):
    """Voluntary context switches of all threads: how often something woke up."""
    total = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def measure_idle(folder):
    """A daemon with an empty store and nothing to do."""
    with daemon_in(folder, "--devices", "none") as daemon:
        time.sleep(2)
        before = switches(daemon.pid), cpu_seconds([daemon.pid])
        time.sleep(IDLE_SECONDS)
        return [
            {"figure": "idle_wake_ups_per_second", "value": (switches(daemon.pid) - before[0]) / IDLE_SECONDS},
            {"figure": "idle_cpu_share", "value": (cpu_seconds([daemon.pid]) - before[1]) / IDLE_SECONDS},
            {"figure": "idle_resident_mib", "value": daemon.rss_kib() / 1024},
        ]


def measure_commits(folder):
    """Acknowledged results per second beside a bare SQLite loop; the folder is on the disk that TMPDIR names."""
    return json_lines([BIN / "convtune-bench-commits", "--folder", folder, *COMMIT_OPTIONS])


def measure_bans(folder):
    """How long a ban takes over many tunings, beside reading them once; commits and look-ups meanwhile, beside those
    with nothing else going on."""
    rows = []
    for tunings in BAN_SIZES:
        command = [BIN / "convtune-bench-commits", "--bans", "--tunings", tunings, "--folder", folder / str(tunings)]
        rows += json_lines(command)
    return rows


def read_once(path):
    start = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return time.monotonic() - start


def await_whole_index(daemon):
    """Lists wait for it, ten seconds at a time."""
    with daemon.client() as client:
        while True:
            try:
                return client.tuning.ListTunings(page_size=1, timeout=30)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise


def measure_start(folder):
    """From exec to READY, and until the index is whole, beside reading the bytes of the database once; with a warm
    page cache."""
    rows = []
    for tunings in START_SIZES:
        here = folder / str(tunings)
        (here / "state").mkdir(parents=True)
        subprocess.run([BIN / "convtune-make-bundle", str(tunings), here / "state"], check=True)
        database = here / "state" / "convtune.db"
        size = database.stat().st_size
        times, whole, bare = [], [], []
        for _ in range(START_ROUNDS if tunings < ONE_START_FROM else 1):
            daemon = Daemon(BIN / "convtuned", here, ("--devices", "none"))
            bare.append(read_once(database))
            start = time.monotonic()
            daemon.start()
            times.append(time.monotonic() - start)
            try:
                await_whole_index(daemon)
                whole.append(time.monotonic() - start)
                resident = daemon.rss_kib() * 1024
                if tunings < ONE_START_FROM:
                    daemon.stop(60)
            finally:
                daemon.close()
        for figure, values in (("start_s", times), ("start_whole_s", whole)):
            value, baseline = statistics.median(values), statistics.median(bare)
            rows.append({"figure": figure, "tunings": tunings, "value": value, "baseline": baseline,
                         "ratio": value / baseline})  # fmt: skip
        rows.append({"figure": "start_bytes_per_tuning", "tunings": tunings, "value": resident / tunings,
                     "baseline": size / tunings})  # fmt: skip
    return rows


def measure_fleet(_folder):
    """Look-ups while the fleet's database is there, dead, and stopped; the queue with one node and with two, where
    measuring is a sleep; a report of 110,000 tunings."""
    import fleet_drain
    import fleet_lookups
    import fleet_report
    from harness.postgres import Server, why_not

    if why_not() or not (BIN / "convtune-fleet").exists():
        print(f"left out: {why_not() or 'convtune-fleet was not built (no libpq)'}", file=sys.stderr)
        return []
    rows = []
    times = fleet_lookups.run(BIN, rounds=FLEET["rounds"])
    for figure, of in (("fleet_p50_us", statistics.median), ("fleet_p99_us", fleet_lookups.p99)):
        base = of(times["no agent"]) * 1e3
        for state, values in times.items():
            value = of(values) * 1e3
            if state != "no agent":
                rows.append({"figure": figure, "state": state, "value": value, "baseline": base, "ratio": value / base})
    server = Server()
    try:
        one, two = (fleet_drain.drain(BIN, server, nodes, FLEET["jobs"])[0] for nodes in (1, 2))
    finally:
        server.close()
    rows.append({"figure": "fleet_drain_s", "nodes": 2, "value": two, "baseline": one, "ratio": two / one})
    for kind, seconds in fleet_report.measure(BIN, per_node=FLEET["per_node"], runs=FLEET["runs"])["times"].items():
        rows.append({"figure": "fleet_report_s", "state": kind, "value": statistics.median(seconds)})
    return rows


def measure_snapshot(folder):
    """Look-ups in a program's process beside a raw table over the same keys, and what publishing costs."""
    rows = []
    for choices in SNAPSHOT_SIZES:
        rows += json_lines([BIN / "convtune-bench-snapshot", "--choices", choices, "--folder", folder])
    return rows


def measure_preload(_folder):
    """What the interposer adds to a query, which it serves or misses, beside bare calls in the same process."""
    if not (BIN / "convtune-bench-preload").exists():
        print("left out: built without cuDNN", file=sys.stderr)
        return []
    return preload_overhead.figures(BIN.parent, PRELOAD_ROUNDS)


PARTS = {
    "lookups": measure_lookups,
    "index": measure_index,
    "commits": measure_commits,
    "bans": measure_bans,
    "start": measure_start,
    "plans": lambda folder: plans.measure(folder, BIN, daemon_in),
    "tuning": lambda folder: tuning_cost.measure(folder, BIN, daemon_in, most=TUNED_PROBLEMS),
    "bundles": lambda folder: bundles.figures(BIN.parent, folder, BUNDLE_TUNINGS),
    "snapshot": measure_snapshot,
    "preload": measure_preload,
    "idle": measure_idle,
    "fleet": measure_fleet,
}

# What a part measures: its figures are older than a change of these.
MEASURES = {
    "lookups": ["server/rpc", "server/lookup", "proto/convert"],
    "index": ["server/lookup"],
    "commits": ["server/commit", "db/store", "db/sqlite"],
    "bans": ["server/commit", "server/lookup", "db/store", "db/sqlite"],
    "start": ["server/convtuned", "server/lookup", "db/store", "db/sqlite"],
    "plans": ["client/cpp", "server/lookup", "server/rpc"],
    "tuning": ["server/tuning", "server/decision", "server/worker"],
    "bundles": ["db/bundle", "db/store", "server/commit", "server/release"],
    "snapshot": ["db/snapshot", "server/release"],
    "preload": ["client/preload", "db/snapshot"],
    "idle": ["server"],
    "fleet": ["client/fleet", "db/fleet", "client/report"],
}


def older_parts(results):
    """The parts whose sources changed after the commit of `results`; None where this checkout does not have that commit."""
    def changed(paths):
        command = ["git", "diff", "--quiet", results["commit"], "HEAD", "--", *paths]
        return subprocess.run(command, cwd=ROOT, stderr=subprocess.DEVNULL).returncode

    if changed([]) not in (0, 1):
        return None
    return [part for part, paths in MEASURES.items() if changed(paths)]


def judged(row):
    if row["figure"] in LIMITS:
        bound = LIMITS[row["figure"]]
        return f"<= {bound:g}", "yes" if row["value"] <= bound else "no"
    for at in (row.get("batch", row.get("writers")), None):
        if (row["figure"], at) in TARGETS and "ratio" in row:
            sign, bound = TARGETS[(row["figure"], at)]
            floor = FLOORS.get(row["figure"], 0)
            reached = row["ratio"] >= bound if sign == ">=" else row["ratio"] <= bound or row["value"] <= floor
            return f"{sign} {bound:g}" + (f" or {floor:g} s" if floor else ""), "yes" if reached else "no"
    return "", ""


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def table(rows):
    head = ["FIGURE", "AT", "VALUE", "BASELINE", "RATIO", "TO REACH", "REACHED"]
    lines = [head]
    for row in rows:
        names = ("model", "problems", "batch", "clients", "tunings", "candidates", "choices", "writers", "nodes", "state", "step")
        at = " ".join(f"{row[k]} {k}" for k in names if k in row)
        number = [f"{row[k]:.4g}" if k in row else "" for k in ("value", "baseline", "ratio")]
        lines.append([row["figure"], at, *number, *judged(row)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part only; repeatable")
    parser.add_argument("--small", action="store_true", help="a minute for all parts: whether they run, and no figures of worth")
    parser.add_argument("--part", choices=PARTS, help="this part in this process; prints its rows as JSON")
    args = parser.parse_args()
    if args.small:
        globals().update(SMALL)
        plans.ROUNDS, plans.MODELS = 1, plans.MODELS[:1]
    if args.part:
        with tempfile.TemporaryDirectory(prefix="convtune-bench-") as folder:
            print(json.dumps(PARTS[args.part](pathlib.Path(folder))))
        return
    rows, failed = [], []
    for part in args.only or PARTS:
        print(f"measuring: {part}", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--part", part, *(["--small"] if args.small else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            rows += [{"part": part, **row} for row in json.loads(done.stdout.splitlines()[-1])]
        else:
            failed.append(part)
    print(table(rows))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()
    record = {
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "cpu": cpu_model(),
        "failed": failed,
        "figures": rows,
    }
    if not args.small:
        path = ROOT / "build" / "bench.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {path}", file=sys.stderr)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
