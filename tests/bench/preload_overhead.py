#!/usr/bin/env python3
"""What the interposer adds to a query that it serves and to one that it misses.

usage: preload_overhead.py [ROUNDS]     ($CONVTUNE_BUILD_DIR, default build)

Bare and hooked calls are interleaved in one process, so only their difference
says something: `over` that of all eight calls of a query, `finalise` that of
finalising the heuristics alone. The hit is compared with a program that makes the winner's
engine config by hand.
"""

import json
import os
import pathlib
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "integration"))

from harness.preload import ALL, FORMS, Machine, candidates, stock_field  # noqa: E402


def measure(build, rounds):
    """(problem, "hit" or "miss", medians in microseconds), one after the other."""
    with tempfile.TemporaryDirectory() as temporary:
        machine = Machine(build, pathlib.Path(temporary))
        snapshot = pathlib.Path(temporary) / "snapshot"
        for form in ("fwd_f16", "fwd_f32", "bwd_filter_f16", "pytorch_fused"):
            problem = FORMS[form]
            known = candidates(machine.stock(problem, ALL)["modes"][0])
            winner = next(c for c in known[1:] if c.workspace <= known[0].workspace and c.notes == known[0].notes)
            for hit in (True, False):
                lines = [machine.choice(problem, winner.field(), stock_field(known[0]))] if hit else []
                machine.write_snapshot(snapshot, f"environment\t{machine.environment}", *lines)
                command = [
                    str(build / "bin" / "convtune-bench-preload"), str(rounds), winner.id if hit else "-",
                    *machine.raw_args(problem, "modes=a"),
                ]  # fmt: skip
                r = json.loads(machine.run(command, machine.env(snapshot)).stdout)
                assert r["hooked_first"] == (winner.id.split(",")[0] if hit else r["bare_first"])
                yield form, "hit" if hit else "miss", r


def figures(build, rounds):
    rows = []
    for form, kind, r in measure(build, rounds):
        value, baseline = r["hooked_query_us"], r["bare_query_us"] + r["bare_config_us"]
        rows.append({"figure": f"preload_{kind}_us", "model": form, "value": value, "baseline": baseline, "ratio": value / baseline})
    return rows


def main():
    rounds = sys.argv[1] if len(sys.argv) > 1 else "1000"
    build = pathlib.Path(os.environ.get("CONVTUNE_BUILD_DIR", REPO / "build")).resolve()
    print(f"{'problem':<16} {'query':<6} {'bare':>9} {'+config':>9} {'hooked':>9} {'over':>8} {'finalise':>9}   graph: bare, hooked (us)")
    for form, kind, r in measure(build, rounds):
        print(
            f"{form:<16} {kind:<6} {r['bare_query_us']:9.1f} {r['bare_config_us']:9.1f}"
            f" {r['hooked_query_us']:9.1f} {r['over_us']:+8.2f} {r['finalize_over_us']:+9.2f}   {r['bare_graph_us']:6.1f} {r['hooked_graph_us']:6.1f}"
        )


if __name__ == "__main__":
    main()
