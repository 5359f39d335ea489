#!/usr/bin/env python3
"""Says how the tunings of a database were timed and checked.

usage: summary.py TUNINGS.DB

One line of tab-separated fields for each tuning, under a heading; then one for
each candidate that is quarantined.
"""

import sqlite3
import sys

TIMED, QUARANTINED = 1, 7
LAUNCHES = {1: "eager", 2: "graph"}
CACHE_STATES = {1: "cold", 2: "input_hot", 3: "hot"}
FIELDS = ["problem", "raced", "timed", "compared", "captured", "not_captured", "quarantined", "largest_error",
          "lowest_mhz", "highest_mhz", "largest_host_us", "other_ways"]

SUMMARY = """
SELECT t.tuning_id, t.problem_text, coalesce(tc.cache_state, 0),
       sum(c.status = ?1), sum(m.error IS NOT NULL), sum(coalesce(m.capture, 0) = 1),
       sum(coalesce(m.capture, 0) = 2), sum(c.status = ?2), max(m.error),
       min(nullif(m.sm_clock_mhz, 0)), max(nullif(m.sm_clock_mhz, 0)), max(m.host_us)
FROM tunings t JOIN candidates c USING (tuning_id)
LEFT JOIN measurements m ON m.tuning_id = c.tuning_id AND m.position = c.position
LEFT JOIN tuning_conditions tc ON tc.tuning_id = t.tuning_id
GROUP BY t.tuning_id ORDER BY t.problem_text
"""
WAYS = """
SELECT launch, cache_state, count(*) FROM other_times WHERE tuning_id = ? GROUP BY launch, cache_state
ORDER BY launch, cache_state
"""


def number(value, form):
    return "-" if value is None else format(value, form)


def lines(database):
    yield "\t".join(FIELDS)
    for row in database.execute(SUMMARY, (TIMED, QUARANTINED)):
        tuning, problem, raced, timed, compared, captured, refused, quarantined, error, low, high, host = row
        ways = [
            f"{LAUNCHES.get(launch, launch)}/{CACHE_STATES.get(state, state)}:{count}"
            for launch, state, count in database.execute(WAYS, (tuning,))
        ]
        yield "\t".join([
            problem, CACHE_STATES.get(raced, "-"), str(timed), str(compared), str(captured), str(refused),
            str(quarantined), number(error, ".3g"), number(low, ".0f"), number(high, ".0f"),
            number(host, ".1f"), ",".join(ways) or "-",
        ])
    for problem, candidate, reason in database.execute(
            "SELECT problem_text, candidate, reason FROM quarantine ORDER BY problem_text, candidate"):
        yield f"quarantined\t{problem}\t{candidate}\t{reason}"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as database:
        for line in lines(database):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
