#!/usr/bin/env python3
"""Says how the tunings of a database were timed and checked.

usage: summary.py TUNINGS.DB [TRACE]

One line of tab-separated fields for each tuning, under a heading; then one for
each candidate that is quarantined. Of a trace (server/worker/TRACE.md): samples
of the problem that were taken without a blocking kernel, and without a clock, of how many;
then one line for each reason why candidates could not be captured.
"""

import collections
import json
import sqlite3
import struct
import sys

TIMED, QUARANTINED = 1, 7
CAPTURED, NOT_CAPTURED = 1, 2
LAUNCHES = {1: "eager", 2: "graph"}
CACHE_STATES = {1: "cold", 2: "input_hot", 3: "hot"}
FIELDS = ["problem", "raced", "timed", "compared", "captured", "not_captured", "quarantined", "largest_error",
          "lowest_mhz", "highest_mhz", "largest_host_us", "other_ways", "unblocked", "without_clock", "samples"]
TRACE_VERSION = 1


def fields(message):
    """(number, value) of each field of a protobuf message; reals and messages as bytes"""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        at += size
        yield number, message[at - size : at]


def candidate(message):
    """What this program needs of a convtune.v1.Candidate (proto/convtune/v1/record.proto)."""
    out = {"status": 0, "error": None, "clock": None, "host": 0, "capture": 0, "ways": []}
    names = {8: "status", 20: "host", 21: "clock", 22: "error", 23: "capture"}
    for number, value in fields(message):
        if number == 24:
            way = dict(fields(value))
            out["ways"].append((way.get(1, 0), way.get(2, 0)))
        elif number in names:
            out[names[number]] = value if isinstance(value, int) else struct.unpack("<f", value)[0]
    return out


def unpack(record):
    """(cache state of the race, 0 without one; the candidates) of a convtune.v1.Tuning"""
    all_of_it = list(fields(record))
    race = dict(all_of_it)
    cache_state = race.get(16, 2) if race.get(13) else 0
    return cache_state, [candidate(value) for number, value in all_of_it if number == 5]


def number(values, largest, form):
    known = [value for value in values if value is not None]
    return format(largest(known), form) if known else "-"


class Trace:
    """What summary.py says of a trace: `samples`, a Counter for each problem, and `refusals`, how often each was given."""

    def __init__(self, text):
        self.samples, self.refusals = collections.defaultdict(collections.Counter), collections.Counter()
        problems = {}
        for row in text:
            try:
                line = json.loads(row)
            except ValueError:
                continue  # cut off, as a trace may be
            if line["kind"] == "worker" and line["trace"] != TRACE_VERSION:
                raise SystemExit("summary.py: the trace is of another version")
            if line["kind"] == "problem":
                problems[line["pid"]] = line["problem"]
            if line["kind"] == "sample" and "blocked" in line:
                counts = self.samples[problems.get(line["pid"])]
                counts["samples"] += 1
                counts["unblocked"] += not line["blocked"]
                counts["without_clock"] += not line["sm_clock_mhz"]
            if line["kind"] == "check" and line.get("capture") == "no":
                self.refusals[line["capture_refusal"]] += 1

    def fields(self, problem):
        counts = self.samples.get(problem)
        return [str(counts[name]) if counts else "-" for name in ("unblocked", "without_clock", "samples")]


def lines(database, trace):
    yield "\t".join(FIELDS)
    for problem, data in database.execute(
            "SELECT problem_text, record FROM tunings ORDER BY problem_text"):
        raced, all_of_it = unpack(data)
        timed, quarantined = (sum(c["status"] == status for c in all_of_it) for status in (TIMED, QUARANTINED))
        captured, refused = (sum(c["capture"] == kind for c in all_of_it) for kind in (CAPTURED, NOT_CAPTURED))
        errors, clocks = [c["error"] for c in all_of_it], [c["clock"] for c in all_of_it]
        # What was timed or compared has a time of the host, which may be 0.
        hosts = [c["host"] for c in all_of_it
                 if c["status"] == TIMED or c["error"] is not None or c["capture"] or c["ways"]]
        ways = collections.Counter(way for c in all_of_it for way in c["ways"])
        yield "\t".join([
            problem, CACHE_STATES.get(raced, "-"), str(timed), str(sum(e is not None for e in errors)), str(captured),
            str(refused), str(quarantined), number(errors, max, ".3g"), number(clocks, min, ".0f"),
            number(clocks, max, ".0f"), number(hosts, max, ".1f"),
            ",".join(f"{LAUNCHES.get(launch, launch)}/{CACHE_STATES.get(state, state)}:{count}"
                     for (launch, state), count in sorted(ways.items())) or "-",
            *trace.fields(problem),
        ])
    for problem, candidate, reason in database.execute(
            "SELECT problem_text, candidate, message FROM quarantine ORDER BY problem_text, candidate"):
        yield f"quarantined\t{problem}\t{candidate}\t{reason}"
    for reason, count in trace.refusals.most_common():
        yield f"not captured\t{count}\t{reason}"


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    trace = Trace([])
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding="utf-8", errors="replace") as text:
            trace = Trace(text)
    with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as database:
        for line in lines(database, trace):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
