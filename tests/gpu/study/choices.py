"""Who would have chosen what: pure functions of tunings and of what peers said."""

# How PyTorch is set for each peer that is PyTorch itself.
PYTORCH = {
    "H": {"benchmark": False},
    "B10": {"benchmark": True},
    "B0": {"benchmark": True, "limit": 0},
    "V7": {"benchmark": True},
}
V7_ENV = {"TORCH_CUDNN_V8_API_DISABLED": "1"}


def candidates(tuning):
    """{text: candidate} of a tuning record."""
    return {c["text"]: c for c in tuning["candidates"]}


def timed(tuning, api="graph"):
    return [c for c in tuning["candidates"] if c["timed"] and c["text"].startswith(api + ":")]


def stock(tuning):
    """What heuristic mode A would have run; None if the tuning does not say."""
    return next((c for c in tuning["candidates"] if c["stock"]), None)


def find_choice(tuning):
    """The legacy algorithm that cudnnFind* itself timed fastest; None if it was not asked."""
    found = [c for c in tuning["candidates"] if c["find_us"] > 0]
    return min(found, key=lambda c: c["find_us"], default=None)


def time_in(candidate, state, launch="eager"):
    """Median in a cache state; None if it was not taken. state None: what the tuning ranks by."""
    if state is None:
        return candidate["median_us"] or None
    return candidate["replays" if launch == "graph" else "times"].get(state)


def named(tuning, text, workspace=0):
    """A candidate for a snapshot, by name, also where the tuning did not list it."""
    known = candidates(tuning).get(text)
    return known or {"text": text, "notes": 0, "workspace": workspace}


def peer_choices(tunings, said, mode):
    """{problem: candidate} of a heuristic mode ("a", "b"), from the referee's `choices` records.

    Problems for which the mode named nothing are left out."""
    chosen = {}
    for record in said:
        first = record.get(mode)
        tuning = tunings.get(record["problem"])
        if first and tuning:
            chosen[record["problem"]] = named(tuning, first["candidate"], first.get("workspace", 0))
    return chosen


def predicted_us(counts, chosen, tunings, state):
    """Time of a network's convolutions from single timings in a cache state.

    (microseconds, share of the convolutions that they cover); None where none is known."""
    total, known, runs = 0.0, 0, 0
    for problem, count in counts.items():
        runs += count
        choice = chosen.get(problem)
        listed = candidates(tunings[problem]).get(choice["text"]) if choice and problem in tunings else None
        time = time_in(listed, state) if listed else None
        if time:
            total += count * time
            known += count
    return (total, known / runs) if known else None


def same(first, second):
    """Whether two sets of choices name the same candidates."""
    return {p: c["text"] for p, c in first.items()} == {p: c["text"] for p, c in second.items()}


def summarise(times):
    """Median and quartiles of the iterations of one process."""
    from stats import median, quantile

    return {"median": round(median(times), 3), "q1": round(quantile(times, 0.25), 3), "q3": round(quantile(times, 0.75), 3), "count": len(times)}
