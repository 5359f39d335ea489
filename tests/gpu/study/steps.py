"""Steps: what the study does, in order, each resumable, none longer than a run."""

import dataclasses
import time
from collections.abc import Callable

# A step that failed this often is not tried again.
MOST_FAILURES = 2


@dataclasses.dataclass(frozen=True)
class Step:
    """One piece of work. run(lab, records, until) gives (records, finished): an unfinished
    step keeps nothing but what the daemon stored, and is run again."""

    name: str
    estimate_s: float  # a guess, until steps of its kind have run
    run: Callable
    needs: tuple = ()

    @property
    def kind(self):
        """Steps of a kind take about as long: the name without its numbers."""
        return "/".join(part for part in self.name.split("/") if not part.isdigit())


def estimate(step, records):
    """Seconds that a step will take: the longest of its kind so far, else its own guess."""
    seconds = [d["seconds"] for name, d in records.done.items() if Step(name, 0, None).kind == step.kind]
    return max(seconds) if seconds else step.estimate_s


def pending(steps, records):
    """Steps that are to be run now: not done, not given up, and what they need is done."""
    given_up = {name for name, failures in records.failures.items() if len(failures) >= MOST_FAILURES}
    return [
        s for s in steps
        if s.name not in records.done and s.name not in given_up and all(n in records.done for n in s.needs)
    ]  # fmt: skip


def run_all(steps, lab, records, seconds, say):
    """Runs what is pending, in order, as long as the next step is expected to end in time.

    Returns the number of steps that were done. A step's failure is recorded and
    does not end the run."""
    until = time.monotonic() + seconds
    count, tried = 0, set()
    while True:
        now = time.monotonic()
        ready = [s for s in pending(steps, records) if s.name not in tried]
        fitting = [s for s in ready if now + estimate(s, records) <= until]
        if not fitting:
            if ready:
                say(f"{len(ready)} steps left; the next, {ready[0].name}, is expected to take {estimate(ready[0], records):.0f} s")
            return count
        step = fitting[0]
        tried.add(step.name)
        started = time.monotonic()
        try:
            found, finished = step.run(lab, records, until)
        except Exception as error:  # recorded: the other steps do not depend on it
            records.fail(step.name, f"{type(error).__name__}: {error}"[:1000], time.monotonic() - started)
            say(f"{step.name}: FAILED: {error}")
            continue
        took = time.monotonic() - started
        if not finished:
            say(f"{step.name}: goes on in the next run, after {took:.0f} s")
            continue
        records.finish(step.name, found, took)
        count += 1
        say(f"{step.name}: {took:.0f} s, {len(found)} records")
