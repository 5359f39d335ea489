#!/usr/bin/env python3
"""Says how the tunings of an export were timed and checked.

usage: summary.py TUNINGS.JSONL [TRACE]

The tunings are the JSON lines of `convtune export --jsonl`. One line of
tab-separated fields for each tuning, under a heading; then one for
each candidate that is quarantined. Of a trace (server/worker/TRACE.md): samples
of the problem that were taken without a blocking kernel, and without a clock, of how many;
then one line for each reason why candidates could not be captured.
"""

import collections
import json
import sys

TIMED, QUARANTINED = "CANDIDATE_STATUS_TIMED", "CANDIDATE_STATUS_QUARANTINED"
CAPTURED, NOT_CAPTURED = "CAPTURE_SUPPORT_YES", "CAPTURE_SUPPORT_NO"
FIELDS = ["problem", "raced", "timed", "compared", "captured", "not_captured", "quarantined", "largest_error",
          "lowest_mhz", "highest_mhz", "largest_host_us", "other_times", "unblocked", "without_clock", "samples"]
TRACE_VERSION = 1


def word(name, enum):
    """An enum's value as FIELDS has it: "input_hot" of CACHE_STATE_INPUT_HOT."""
    return name.removeprefix(enum).lower()


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


def lines(tunings, trace):
    yield "\t".join(FIELDS)
    for tuning in tunings:
        candidates = tuning.get("candidates", [])
        timed, quarantined = (sum(c.get("status") == status for c in candidates) for status in (TIMED, QUARANTINED))
        captured, refused = (sum(c.get("capture") == kind for c in candidates) for kind in (CAPTURED, NOT_CAPTURED))
        errors, clocks = [c.get("error") for c in candidates], [c.get("smClockMhz") for c in candidates]
        # What was timed or compared has a time of the host, which may be 0.
        hosts = [c.get("hostUs", 0) for c in candidates
                 if c.get("status") == TIMED or "error" in c or "capture" in c or "otherTimes" in c]
        others = collections.Counter(
            f"{word(time['launch'], 'LAUNCH_MODE_')}/{word(time['cacheState'], 'CACHE_STATE_')}"
            for c in candidates for time in c.get("otherTimes", []))
        yield "\t".join([
            tuning["problemText"], word(tuning.get("cacheState", "-"), "CACHE_STATE_"), str(timed),
            str(sum(e is not None for e in errors)), str(captured), str(refused), str(quarantined),
            number(errors, max, ".3g"), number(clocks, min, ".0f"), number(clocks, max, ".0f"), number(hosts, max, ".1f"),
            ",".join(f"{name}:{count}" for name, count in sorted(others.items())) or "-",
            *trace.fields(tuning["problemText"]),
        ])
    for tuning in tunings:
        for candidate in tuning.get("candidates", []):
            if candidate.get("status") == QUARANTINED:
                yield f"quarantined\t{tuning['problemText']}\t{candidate['text']}\t{candidate.get('errorMessage', '')}"
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
    with open(sys.argv[1], encoding="utf-8") as text:
        tunings = [line["tuning"] for line in map(json.loads, text) if "tuning" in line]
    for line in lines(tunings, trace):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
