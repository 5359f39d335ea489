#!/usr/bin/env python3
"""What a report of the whole fleet takes, from PostgreSQL.

    tests/bench/fleet_report.py [--full | --per-node N] [--runs N]     ($CONVTUNE_BUILD_DIR, default build)
    tests/bench/fleet_report.py --of CONNINFO --facts FILE [--runs N]

A simulated fleet of 1,000 nodes, 6 environments and 10,000 problems is put into a server of its own: 100 problems a node
(110,000 tunings), or with --full all of them (11,000,000). Then `convtune-fleet report` runs, and what it says is held
against what was planted. --of takes a database that was filled before, with its facts.json: filling it takes minutes, a
report seconds. Seconds are those of the wall, and the CPU's in the report's own process: on a machine that others use the
second says more.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from harness.postgres import Server, psql, why_not  # noqa: E402

COLUMNS = {
    "environments": "environment_id, text, name, gpu_model",
    "problems": "problem_id, text",
    "nodes": "node_id, name, daemon_start_time, lookups, hits",
    "provenances": "provenance_id, node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, memory_bytes",
    "pooled": "environment_id, problem_id, candidates, lows_us, node_count, evidence, digest, report_rows",
}


def copy(conninfo, table, path):
    # The rows refer to each other as they should; asking for each of them would take most of the time, and so would a log
    # of what the same transaction has begun with an empty table.
    commands = [
        "SET session_replication_role = replica; SET search_path = convtune; SET client_min_messages = warning",
        "BEGIN",
        f"TRUNCATE {table} CASCADE",
        f"COPY {table} ({COLUMNS[table]}) FROM STDIN WITH (FREEZE)",
        "COMMIT",
    ]
    with open(path, "rb") as rows:
        subprocess.run(
            ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", *(word for c in commands for word in ("-c", c)), conninfo],
            stdin=rows,
            check=True,
        )


def fill(build, conninfo, per_node, nodes=1000, problems=10_000):
    """The fleet's rows; returns what was planted."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for table in COLUMNS:
            os.mkfifo(folder / table)
        maker = subprocess.Popen([build / "convtune-bench-fleet-rows", folder, str(nodes), str(problems), str(per_node)])
        for table in COLUMNS:
            copy(conninfo, table, folder / table)
        assert maker.wait() == 0
        return json.loads((folder / "facts.json").read_text())


def findings(report):
    """What a report says of what was planted."""
    name = lambda e, p: (report["environments"][e]["text"], report["problems"][p]["text"])  # noqa: E731
    found = {
        "slow_nodes": {g["node"] for g in report["gpus"] if g["slow"]},
        "disagreements": {name(d["environment"], d["problem"]) for d in report["disagreements"]},
        "cudnn_regressions": set(),
        "driver_regressions": set(),
    }
    for upgrade in report["upgrades"]:
        for values in upgrade["values"]:
            point = dict(zip(upgrade["columns"], values))
            if point["beyond_noise"] and point["to_us"] > point["from_us"]:
                found[upgrade["kind"] + "_regressions"].add(name(point["environment"], point["problem"]))
    return found


def measure(build, per_node, runs, say=lambda words: None):
    """What was planted, what a report finds of it, and the seconds of each kind of report."""
    server = Server(["shared_buffers=2GB", "max_wal_size=16GB", "wal_level=minimal", "max_wal_senders=0", "jit=off"])
    try:
        conninfo = server.database()
        env = {**os.environ, "CONVTUNE_POSTGRES": conninfo}
        subprocess.run([build / "convtune-fleet", "migrate"], env=env, check=True, stdout=subprocess.DEVNULL)
        start = time.monotonic()
        facts = fill(build, conninfo, per_node)
        psql(conninfo, "ANALYZE")
        say(f"{facts['rows']:,} tunings put into PostgreSQL in {time.monotonic() - start:.0f} s")
        return measure_filled(build, conninfo, facts, runs)
    finally:
        server.close()


def measure_filled(build, conninfo, facts, runs):
    env = {**os.environ, "CONVTUNE_POSTGRES": conninfo}
    times, cpu = {}, {}
    for kind, args in {"tables": [], "document": ["--json"]}.items():
        for _ in range(runs):
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = subprocess.run([build / "convtune-fleet", "report", *args], env=env, check=True, stdout=subprocess.PIPE)
            times.setdefault(kind, []).append(time.monotonic() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu.setdefault(kind, []).append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    report = json.loads(done.stdout)
    assert report["headline"]["rows"] == facts["rows"], report["headline"]
    (size,), = psql(conninfo, "SELECT pg_size_pretty(pg_total_relation_size('pooled'))")
    return {"facts": facts, "found": findings(report), "times": times, "cpu": cpu, "size": size}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="11,000,000 tunings: many minutes, and 10 GiB of disk")
    parser.add_argument("--per-node", type=int, help="problems of each node in each of its environments; default 100")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--of", metavar="CONNINFO", help="a database that was filled before")
    parser.add_argument("--facts", type=pathlib.Path, help="of --of: what was planted")
    options = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    build = pathlib.Path(os.environ.get("CONVTUNE_BUILD_DIR", HERE.parents[1] / "build")).resolve() / "bin"
    if options.of:
        facts = json.loads(options.facts.read_text())
        result = measure_filled(build, options.of, facts, options.runs)
    else:
        result = measure(build, options.per_node or (10_000 if options.full else 100), options.runs, print)
    print(f"{'':24} {'median s':>9} {'least':>6} {'most':>6} {'CPU s':>6}   {options.runs} runs, load {os.getloadavg()[0]:.1f}")
    for kind, times in result["times"].items():
        cpu = statistics.median(result["cpu"][kind])
        print(f"{'report, ' + kind:24} {statistics.median(times):9.2f} {min(times):6.2f} {max(times):6.2f} {cpu:6.2f}")
    for fact, found in result["found"].items():
        planted = {tuple(f) if isinstance(f, list) else f for f in result["facts"][fact]}
        print(f"{fact:20} planted {len(planted)}, found {len(found & planted)}, not there {len(found - planted)}")
    print(f"pooled {result['size']}")


if __name__ == "__main__":
    main()
