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
PACKED_VERSIONS = (1, 2)
TRACE_VERSION = 1


class Packed:
    """Reads what db/README.md calls packed candidates."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def unsigned(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def real(self):
        (value,) = struct.unpack_from("<d", self.data, self.at)
        self.at += 8
        return value

    def skip_text(self):
        size = self.unsigned()
        self.at += size

    def skip_id(self):
        if self.unsigned() == 1:
            self.signed(), self.signed()
            return
        self.signed()
        for _ in range(self.unsigned()):
            self.signed(), self.signed()

    def candidate(self):
        self.skip_id()
        out = {"status": self.unsigned(), "error": None, "clock": None, "host": 0, "capture": 0, "ways": []}
        for read in (self.unsigned, self.unsigned, self.signed, self.signed):
            read()
        has = self.unsigned()
        if has & 2:
            self.skip_text()
        if has & 4:
            self.real(), self.real(), self.real(), self.signed()
        if has & 8:
            self.real(), self.real()
        if has & 16:
            self.real()
        if has & 32:
            out["host"] = self.real()
        if has & 64:
            out["clock"] = self.real()
        if has & 128:
            out["error"] = self.real()
        if has & 256:
            out["capture"] = self.unsigned()
        if has & 512:
            for _ in range(self.unsigned()):
                out["ways"].append((self.unsigned(), self.unsigned()))
                self.real(), self.real(), self.real(), self.signed()
        return out


def unpack(data):
    """(cache state of the race, 0 without one; the candidates)"""
    packed = Packed(data)
    version = packed.unsigned()
    if version not in PACKED_VERSIONS:
        raise SystemExit("summary.py: the database is of another version")
    stop_reason = packed.unsigned()
    packed.signed()
    cache_state = packed.unsigned()
    if packed.unsigned():
        packed.unsigned(), packed.signed(), packed.unsigned(), packed.real(), packed.signed(), packed.signed()
        packed.unsigned(), packed.unsigned(), packed.unsigned()
        if version >= 2:
            packed.unsigned()
    return cache_state if stop_reason else 0, [packed.candidate() for _ in range(packed.unsigned())]


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
            "SELECT problem_text, candidates FROM tunings JOIN tuning_candidates USING (tuning_id) "
            "ORDER BY problem_text"):
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
