"""What the shape records say. Pure: of records alone."""

import stats
from part_shapes import SELECT_STATE, STATES
from tables import Table, number, percent, ratio

OURS = ("W", *(f"W_{state}" for state in STATES))
PEERS = ("H", "A", "B", "B10", "B0", "V7", "Get_v7")
FLIP = 0.01
NOT_BEST = 0.005  # slower than the oracle by more than this


def set_of(record):
    """The set of a block: its name without the number."""
    return record["block"].rsplit("/", 1)[0]


def chosen_text(record, who):
    """Which candidate a participant chose in a judge record; None. B10 and B0 are their first process's choice."""
    names = (who, f"{who}_0")
    return next((text for text, choosers in record["chosen_by"].items() if any(n in choosers for n in names)), None)


def judged(records):
    return records.of("referee", role="judge")


def regrets(records, who, state):
    """[(record, regret)] against the held-out oracle."""
    found = []
    for record in judged(records):
        choice, oracle = chosen_text(record, who), chosen_text(record, "oracle")
        samples = record["samples"].get(state, {})
        if choice and oracle and samples.get(choice) and samples.get(oracle):
            try:
                found.append((record, 0.0 if choice == oracle else stats.regret(samples[choice], samples[oracle])))
            except ValueError:
                continue
    return found


def regret_table(records, state):
    rows = []
    for who in (*OURS, *PEERS):
        values = [r for _, r in regrets(records, who, state)]
        if not values:
            continue
        mean = sum(values) / len(values)
        worse = sum(v > NOT_BEST for v in values)
        rows.append([who, len(values), percent(mean), percent(stats.quantile(values, 0.95)), percent(max(values)), percent(worse / len(values), 1)])
    return Table(
        f"Regret against the held-out oracle, caches {state.replace('_', '-')}",
        "The oracle is the fastest of all listed plans over 30 interleaved rounds of one process; regret is judged on 30 rounds of "
        "another: the median over rounds of a choice's time over the oracle's, less 1. It may be below 0, since the oracle was chosen "
        "on other rounds. Not the best: slower than the oracle by more than 0.5%.",
        ["choice of", "shapes", "mean", "95th percentile", "worst", "not the best"], rows,
    )  # fmt: skip


def first_choices(records):
    """How often what cuDNN itself names first is not the best, and what it costs."""
    rows = []
    sets = sorted({set_of(r) for r in judged(records)})
    for who, label in (("Get_v7", "cudnnGet*_v7's first"), ("A", "mode A's first"), ("B", "mode B's first")):
        for name in [*sets, "all"]:
            values = [v for r, v in regrets(records, who, SELECT_STATE) if name in ("all", set_of(r))]
            wrong = [v for v in values if v > NOT_BEST]
            if values:
                cost = stats.geometric_mean(1 + max(v, 0.0) for v in values) - 1
                rows.append([label, name, len(values), percent(len(wrong) / len(values), 1), percent(stats.median(wrong)) if wrong else "", percent(max(values)), percent(cost)])
    return Table(
        "How often cuDNN's own first choice is not the best",
        f"Caches {SELECT_STATE.replace('_', '-')}. Not the best: slower than the held-out oracle by more than 0.5%. Cost: the geometric mean of the slowdown over all shapes of the set.",
        ["choice", "set", "shapes", "not the best", "median loss of those", "worst loss", "cost"], rows,
    )  # fmt: skip


def speed_ups(records):
    """Geometric means of a peer's time over ours, by set."""
    rows = []
    sets = sorted({set_of(r) for r in judged(records)})
    for name in [*sets, "all"]:
        for peer in PEERS:
            items = []
            for record in judged(records):
                ours, theirs = chosen_text(record, "W"), chosen_text(record, peer)
                samples = record["samples"].get(SELECT_STATE, {})
                if name in ("all", set_of(record)) and ours and theirs and samples.get(ours) and samples.get(theirs):
                    clean = lambda text: [v for v in samples[text] if v]
                    if clean(ours) and clean(theirs):
                        items.append((clean(theirs), clean(ours)))
            if items:
                rows.append([name, peer, len(items), ratio(stats.geometric_mean_ratio(items, resamples=500))])
    return Table(
        "Speed-up over each peer, shape by shape",
        f"Geometric mean over shapes of the peer's median over ours by the referee's times, caches {SELECT_STATE.replace('_', '-')}; above 1 ours is "
        "faster. Rounds are what is drawn anew for the intervals.",
        ["set", "peer", "shapes", "speed-up"], rows,
    )  # fmt: skip


def non_inferiority(records):
    """Shapes on which ours cannot be shown to be within 1% of H."""
    rows = []
    for record in judged(records):
        ours, theirs = chosen_text(record, "W"), chosen_text(record, "H")
        samples = record["samples"].get(SELECT_STATE, {})
        if not ours or not theirs or ours == theirs or not samples.get(ours) or not samples.get(theirs):
            continue
        pairs = [(a, b) for a, b in zip(samples[ours], samples[theirs]) if a and b]
        if not pairs:
            continue
        estimate = stats.paired_ratio(pairs, level=0.90, resamples=500)
        if estimate.high >= 1.01:
            rows.append([record["problem"], number(estimate.value, 4), number(estimate.high, 4)])
    return Table("Shapes that are not shown to be non-inferior to H at 1%", "One-sided 95% bound of the paired ratio at or above 1.01.",
                 ["problem", "W / H", "bound"], rows)  # fmt: skip


def flip_rows(records):
    """(problem, tunings, distinct winners, pairs that differ, beyond 1%, pairs)."""
    rows = []
    for record in records.of("referee", role="fresh"):
        winners = [t["winners"].get(record["problem"]) for t in records.of("fresh", part=record["part"])]
        winners = [w for w in winners if w]
        samples = record["samples"].get(SELECT_STATE, {})
        times = {text: stats.median([v for v in s if v]) for text, s in samples.items() if any(s)}
        winners = [w for w in winners if w in times]
        if len(winners) > 1:
            rows.append((record["problem"], len(winners), len(set(winners)), *stats.flips(winners, times, FLIP)))
    return rows


def torch_flips(records):
    """PyTorch's own flips with its default limit: (problems, those whose processes chose differently)."""
    by = {}
    for record in records.of("torch", peer="B10"):
        for problem, text in record["choices"].items():
            by.setdefault(problem, []).append(text)
    several = {p: texts for p, texts in by.items() if len(texts) > 1}
    return len(several), sum(len(set(texts)) > 1 for texts in several.values())


def flip_table(records):
    rows = [[p, n, d, differ, beyond, pairs] for p, n, d, differ, beyond, pairs in flip_rows(records)]
    if rows:
        rows.append(["all", "", "", *(sum(r[i] for r in rows) for i in (3, 4, 5))])
    shapes, flipped = torch_flips(records)
    theirs = f" PyTorch with its default limit chose differently in 3 processes for {flipped} of {shapes} shapes." if shapes else ""
    return Table("Flips between fresh, independent tunings",
                 "Pairs of tunings (a new database, daemon and worker each) that chose different candidates, and those whose candidates differ by more than 1% by the referee's medians." + theirs,
                 ["problem", "tunings", "winners", "pairs that differ", "beyond 1%", "pairs"], rows)  # fmt: skip


def memory(records):
    rows = [
        [r["block"], number(r["peak_bytes"] / 2**30), number(r["memory_budget"] / 2**30), "yes" if r["peak_bytes"] <= r["memory_budget"] else "no"]
        for r in records.of("tuned") if r.get("block") and r["peak_bytes"] is not None
    ]  # fmt: skip
    return Table("Peak memory of tuning", "GiB of the device over all processes, the context included, looked at every 20 ms.", ["block", "peak", "cap", "within"], rows)


def tables(records):
    return [*(regret_table(records, state) for state in STATES), first_choices(records), speed_ups(records), flip_table(records),
            non_inferiority(records), memory(records)]  # fmt: skip


def plots(records):
    points = []
    for who in (*OURS, *PEERS):
        values = [1 + r for _, r in regrets(records, who, SELECT_STATE)]
        if values:
            points.append((who, stats.Estimate(sum(values) / len(values), min(values), stats.quantile(values, 0.95), len(values))))
    return {"regret": ("Time over the held-out oracle's: mean, least, 95th percentile", "time / oracle", points)}
