"""The verdict on the records: pure functions of them, and the rule that was fixed before the first GPU was seen.

The rule, with its numbers, is the constants below; STUDY.md says it in words.
"""

import dataclasses
import enum

import stats
from peers import base, names_for
from steps import LEAST_SERVED, networks, published, unpublished

MOST_ERROR = 0.02
# Or so many times what the output of an unmodified peer differs by: deep networks in f16 differ by more.
MOST_ERROR_OF_OTHERS = 2.0
MOST_A_A = 0.01
LEAST_BOUND = 0.02
LEAST_GAIN = 1.02  # H's time over W's: with less there is nothing to sell, whatever else is said
FASTER = 1.05
SOONER_RATIO, SOONER_MS = 1.01, 50.0
LEAST_COUNTED = 4  # networks, for an answer
NO_PRODUCT = 3  # so many networks below LEAST_GAIN are a no
NEEDED = ("H", "H2", "B10", "W")
BEST_OF = ("H", "B", "B10", "B0")


class Status(enum.Enum):
    """Whether a network on a GPU counts, or why not."""

    COUNTED = "counted"
    TOO_FEW = "fewer than 6 rounds"
    PEER_MISSING = "H, H2, B10 or W has not run"
    NOT_SERVED = "less than 95% served"
    SILENT = "W did not say how much it was served"
    OUTPUTS_DIFFER = "outputs differ"
    NOISY = "A/A beyond 1%"


# Another generation of processes may complete it.
NOT_YET = (Status.TOO_FEW, Status.PEER_MISSING)


class Answer(enum.Enum):
    YES = "yes"
    NO = "no"
    OPEN = "open"
    CONTRADICTION = "contradiction"


@dataclasses.dataclass(frozen=True)
class Bound:
    """The most that choices can save in a network: times in microseconds of one iteration."""

    network: str
    saved_us: float
    stock_us: float  # of the convolutions
    iteration_us: float | None  # H's, where it has run
    measured: float  # share of the convolutions for which stock and winner were timed
    published: float  # share of the convolutions whose tuning may be published
    timed: int
    listed: int
    cut: float  # share of the races that the budget ended
    quarantined: int

    @property
    def share(self):
        """Of an iteration; until H has run, of the convolutions' own time, which is more."""
        return self.saved_us / (self.iteration_us or self.stock_us) if self.stock_us else None


@dataclasses.dataclass(frozen=True)
class Result:
    """One network on one GPU. Ratios are of times: over_h of a peer over H, gains of a peer, H too, over W (above 1: W is faster)."""

    network: str
    card: str
    status: Status
    generations: int
    h_us: float
    over_h: dict
    gains: dict
    best: str | None
    served: float | None
    errors: dict
    without: tuple = ()  # peers that belong to it and have not run often enough
    because: str = ""  # why W was not served, as far as the records know
    modes: tuple | None = None  # (share of convolutions for which mode B lists what H's mode lists, those of the same first choice)

    @property
    def b_is_h(self):
        """True if peer B could choose nothing else than H."""
        return self.modes is not None and self.modes[0] == 1.0

    @property
    def gain(self):
        return self.gains.get(self.best)


@dataclasses.dataclass(frozen=True)
class Start:
    """Start-up of one peer on one GPU: medians of fresh processes; milliseconds and bytes."""

    peer: str
    card: str
    count: int
    first_ms: float
    least_ms: float
    most_ms: float
    from_exec_ms: float
    peak_bytes: float | None
    card_bytes: float | None
    served: float


@dataclasses.dataclass(frozen=True)
class Verdict:
    faster: Answer
    sooner: Answer
    over_w: stats.Estimate | None  # H's time over W's
    gain: stats.Estimate | None  # of each network's best peer
    over_b10: stats.Estimate | None
    later_ms: float | None  # W's first iteration after H's
    counted: tuple  # Results
    missing: tuple  # names of networks that have not run to an end
    left_out: tuple  # Results that do not count
    below: tuple  # names of those that count and in which H / W is below 1.02
    bounds_low: bool  # every network's bound is known and below 2%


def bounds(records):
    """Of each network the latest tuning, with H's iterations on the GPU that it is of."""
    found = []
    for record in {r["network"]: r for r in records.of("tuned")}.values():
        name, problems = record["network"], record["problems"]
        known = [p for p in problems if p["winner_us"] and p["stock_us"]]
        total = sum(p["count"] for p in problems)
        h_us = [r["us"]["H"] for r in records.of("round", network=name, card=record["card"]) if "H" in r["us"]]
        found.append(Bound(
            name, sum(p["count"] * (p["stock_us"] - p["winner_us"]) for p in known), sum(p["count"] * p["stock_us"] for p in known),
            stats.median(h_us) if h_us else None, sum(p["count"] for p in known) / total, published(problems), sum(p["timed"] for p in problems),
            sum(p["candidates"] for p in problems), sum(p["cut"] for p in problems) / len(problems), sum(p["quarantined"] for p in problems),
        ))  # fmt: skip
    return found


def _generations(records, kind, network, card):
    """{generation: its rounds, as {peer: microseconds}}, in order."""
    found = {}
    for r in records.of(kind, network=network, card=card):
        found.setdefault(r["generation"], []).append(r["us"])
    return found


def ratios(rounds, over, under):
    """Of one peer's time to another's, in each round that has both."""
    return [us[over] / us[under] for us in rounds if over in us and under in us]


def searches(generations, over, under):
    """The ratios of each process of the peer `over`: another search may choose otherwise, so each counts as a generation."""
    processes = [(rounds, name) for rounds in generations for name in dict.fromkeys(n for us in rounds for n in us) if base(name) == over]
    return [found for rounds, name in processes if (found := ratios(rounds, name, under))]


def _estimate(generations, over, under):
    pairs = searches(generations, over, under)
    return stats.pooled([pairs]) if pairs else None


def served_share(record):
    """Of a network's convolutions, those that W's graph got from the snapshot. Convolutions that the interposer did not see count as not served."""
    return record["captured_served"] / max(record["captured"], record["convolutions"])


def right_output(errors):
    """Whether W's output is H's, within what is allowed for all or what unmodified peers differ by; errors: of each peer, None if no number."""
    others = [error for peer, error in errors.items() if base(peer) in BEST_OF and error is not None]
    return errors.get("W") is not None and errors["W"] <= max([MOST_ERROR, *(MOST_ERROR_OF_OTHERS * error for error in others)])


def _because(records, network, card, told):
    """Why W was not served; told: the records `served`."""
    tunings = records.of("tuned", network=network)
    reasons = [unpublished(tunings[-1]["problems"], tunings[-1].get("self_check_failed", []))] if tunings else []
    reasons += [f"W failed: {r['reason'][:140]}" for r in records.of("peer_failed", network=network, card=card, peer="W")[-1:]]
    missed = told[-1].get("counters", {}).get("missed", {}) if told else {}
    if any(missed.values()):
        reasons.append("the interposer missed " + ", ".join(f"{name} {count}" for name, count in missed.items() if count))
    return "; ".join(filter(None, reasons))


def modes(records, network, card):
    """(share of convolutions for which mode B lists what H's mode lists, share of the same first choice); None if not asked."""
    found = records.of("modes", network=network, card=card)
    return (found[-1]["same_list"] / found[-1]["convolutions"], found[-1]["same_first"] / found[-1]["convolutions"]) if found else None


def _usable(records, network, card):
    """(all generations, those in which W was served, those of them in which its output was right)."""
    rounds = _generations(records, "round", network, card)
    shares = {r["generation"]: served_share(r) for r in records.of("served", network=network, card=card)}
    wrong = {r["generation"]: not right_output(r["errors"]) for r in records.of("peers", network=network, card=card)}
    served = {g: found for g, found in rounds.items() if shares.get(g, 0.0) >= LEAST_SERVED}
    right = {g: found for g, found in served.items() if not wrong.get(g, True)}
    return [list(part.values()) for part in (rounds, served, right)]


def result(records, network, card):
    """The Result of a network on a GPU; None if no round has run."""
    everyone, served, right = _usable(records, network, card)
    if not everyone:
        return None
    peers = dict.fromkeys(base(name) for found in everyone for us in found for name in us)
    # Where W was not served it is no W: it counts in the generations that are right alone.
    over_h = {p: e for p in peers if p != "H" and (e := _estimate(right if p == "W" else everyone, p, "H"))}
    gains = {p: e for p in peers if p != "W" and (e := _estimate(right, p, "W"))}
    known = {p for p, e in gains.items() if e.known}
    best = min(known.intersection(BEST_OF), key=lambda p: gains[p].value, default=None)
    noise = over_h.get("H2")
    told = records.of("served", network=network, card=card)
    if not served:
        status = Status.SILENT if all(r.get("counters") == {} for r in told) else Status.NOT_SERVED
    elif not right:
        status = Status.OUTPUTS_DIFFER
    elif not peers.keys() >= set(NEEDED):
        status = Status.PEER_MISSING
    elif not {"H", "B10"} <= known or not noise.known:
        status = Status.TOO_FEW
    elif abs(noise.value - 1) > MOST_A_A:
        status = Status.NOISY
    else:
        status = Status.COUNTED
    errors = {}
    for record in records.of("peers", network=network, card=card):
        for peer, error in record["errors"].items():
            errors[peer] = None if error is None or errors.get(peer, 0.0) is None else max(error, errors.get(peer, 0.0))
    return Result(
        network, card, status, len(right), stats.median([us["H"] for found in everyone for us in found if "H" in us]), over_h, gains, best,
        min(map(served_share, told), default=None), errors,
        tuple(p for p in dict.fromkeys(map(base, names_for(network))) if p != "W" and p not in known), "" if served else _because(records, network, card, told), modes(records, network, card),
    )  # fmt: skip


def cards(records):
    return list(dict.fromkeys(r["card"] for r in records.all if r.get("card")))


def results(records):
    """One for each network and GPU that has run: GPUs are never pooled as one."""
    found = [result(records, name, card) for name in networks() for card in cards(records)]
    return [r for r in found if r is not None]


def first_ms(records):
    """{(network, GPU): {peer: median of the first iterations of its generations' processes}}."""
    found = {}
    for r in records.of("peers"):
        for peer, ms in r["first_ms"].items():
            found.setdefault((r["network"], r["card"]), {}).setdefault(peer, []).append(ms)
    return {key: {peer: stats.median(times) for peer, times in by.items()} for key, by in found.items()}


def starts(records):
    found = []
    for card in cards(records):
        for peer in ("H", "B10", "W"):
            runs = records.of("startup", card=card, peer=peer)
            if not runs:
                continue
            middle = lambda name: stats.median([r[name] for r in runs]) if all(r.get(name) is not None for r in runs) else None
            times = [r["first_ms"] for r in runs]
            found.append(Start(
                peer, card, len(runs), middle("first_ms"), min(times), max(times), middle("from_exec_ms"), middle("peak_bytes"),
                middle("card_bytes"), min(r["served"] / r["convolutions"] for r in runs),
            ))  # fmt: skip
    return found


def _later_ms(started):
    """W's first iteration less H's, on the GPU with most starts; None unless both started often enough and W was served."""
    by = {(s.card, s.peer): s for s in started}
    for card in sorted({s.card for s in started}, key=lambda c: -by.get((c, "W"), started[0]).count):
        w, h = by.get((card, "W")), by.get((card, "H"))
        if w and h and min(w.count, h.count) >= stats.LEAST_PAIRS and w.served >= LEAST_SERVED:
            return w.first_ms - h.first_ms
    return None


def rule(counted, below, bounds_low, over_w, gain, over_b10, later_ms):
    """(faster, sooner): the rule, of numbers alone; None: not known. STUDY.md has it in words."""
    if bounds_low and over_w is not None and over_w >= LEAST_GAIN:
        return Answer.CONTRADICTION, Answer.CONTRADICTION
    if bounds_low or below >= NO_PRODUCT:
        return Answer.NO, Answer.NO
    if counted < LEAST_COUNTED:
        return Answer.OPEN, Answer.OPEN
    faster = Answer.YES if gain >= FASTER else Answer.NO
    if over_w < LEAST_GAIN or over_b10 > SOONER_RATIO:
        return faster, Answer.NO
    return faster, Answer.OPEN if later_ms is None else Answer.YES if later_ms <= SOONER_MS else Answer.NO


def verdict(records):
    """The rule, applied to what there is. `missing` says which networks it still waits for."""
    every = results(records)
    counted, left_out, missing = [], [], []
    for name in networks():
        mine = [r for r in every if r.network == name]
        good = [r for r in mine if r.status is Status.COUNTED]
        if good:
            counted.append(max(good, key=lambda r: r.gain.pairs))
        elif not mine or all(r.status in NOT_YET for r in mine):
            missing.append(name)
        else:
            left_out.append(mine[-1])
    known = bounds(records)
    low = len(known) == len(networks()) and all(
        b.share is not None and b.iteration_us and b.measured >= LEAST_SERVED and b.share < LEAST_BOUND for b in known
    )
    mean = lambda over: stats.pooled([searches(_usable(records, r.network, r.card)[2], over(r), "W") for r in counted]) if counted else None
    over_w, gain, by_b10 = mean(lambda r: "H"), mean(lambda r: r.best), mean(lambda r: "B10")
    below = tuple(r.network for r in counted if r.gains["H"].value < LEAST_GAIN)
    later, value = _later_ms(starts(records)), lambda estimate: estimate and estimate.value
    b10 = by_b10 and by_b10.inverse()
    faster, sooner = rule(len(counted), len(below), low, value(over_w), value(gain), value(b10), later)
    return Verdict(faster, sooner, over_w, gain, b10, later, tuple(counted), tuple(missing), tuple(left_out), below, low)


def flip_counts(records):
    """(pairs of tunings that chose differently, those that cost more than a race calls equal, pairs), over all shapes."""
    totals = (0, 0, 0)
    for card in cards(records):
        rounds = [r["tunings"] for r in records.of("flips", card=card)]
        for problem in dict.fromkeys(p for tunings in rounds for p in tunings):
            chosen = [(t[problem]["winner"], t[problem]["times"]) for t in rounds if problem in t]
            totals = tuple(a + b for a, b in zip(totals, stats.flips(chosen)))
    return totals


def soak(records, card):
    """H's time over W's in the turns of the soak; None if there was none on this GPU."""
    return _estimate([[r["us"] for r in records.of("soak", card=card)]], "H", "W")
