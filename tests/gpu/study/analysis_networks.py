"""What the whole-network records say. Pure: of records alone."""

import choices
import part_networks
import stats
import workloads
from tables import Table, number, ratio

LAUNCHES = {"eager": "eager_us", "graph": "graph_us"}
# The issue that the study decides: ours against the best of these.
AGAINST = ("A", "B", "B0")
MINE = {"W_all": "everything allowed", "W": "neutral"}


def times(records, case, config, launch):
    """One median for each process, in microseconds."""
    field = LAUNCHES[launch]
    return [r[field]["median"] for r in records.of("network", case=case, config=config) if field in r]


def measured_cases(records):
    return [c for c in workloads.NETWORK_CASES if records.of("network", case=c.name)]


def best_peer(by_config, peers=AGAINST):
    """The peer of the lowest median; None if none ran."""
    there = {p: stats.median(by_config[p]) for p in peers if by_config.get(p)}
    return min(there, key=there.get) if there else None


def _by_config(records, case, launch):
    return {config: times(records, case.name, config, launch) for config in part_networks.CONFIGS}


def headline(records, launch, mine):
    """Whole networks: ours against the best of the peers, and against each. mine: W or W_all."""
    rows = []
    for case in measured_cases(records):
        by = _by_config(records, case, launch)
        ours, best = by[mine], best_peer(by)
        if not ours or best is None:
            continue
        cells = [ratio(stats.ratio_of_medians(ours, by[p])) if by[p] else "" for p in ("H", "B10", "B0", "V7")]
        holds, bound = stats.non_inferior(ours, by["H"]) if by["H"] else (None, None)
        rows.append([
            case.name, number(stats.median(ours), 4), f"{best} {number(stats.median(by[best]), 4)}",
            ratio(stats.ratio_of_medians(ours, by[best])), *cells, "" if holds is None else f"{'yes' if holds else 'no'} ({bound:.3f})",
        ])  # fmt: skip
    return Table(
        f"Whole networks, {'eager' if launch == 'eager' else 'in a CUDA graph'}, {MINE[mine]}",
        "Time of an iteration with our winners (the published snapshot, truncate) over that of each peer, medians of processes with "
        "95% bootstrap intervals; below 1 ours is faster. Non-inferior to H: the one-sided 95% bound is below 1.01.",
        ["network", f"{mine}, us", "best of A, B, B0, us", f"{mine} / best", *(f"{mine} / {p}" for p in ("H", "B10", "B0", "V7")), "non-inferior to H"],
        rows,
    )  # fmt: skip


def overall(records):
    """Geometric means over networks."""
    rows = []
    for launch, mine in ((launch, mine) for mine in MINE for launch in LAUNCHES):
        for peer in ("best of A, B, B0", "H", "A", "B", "B10", "B0", "V7"):
            items = []
            for case in measured_cases(records):
                by = _by_config(records, case, launch)
                name = best_peer(by) if peer.startswith("best") else peer
                if name and by[mine] and by[name]:
                    items.append((by[name], by[mine]))
            if items:
                rows.append([mine, launch, peer, len(items), ratio(stats.geometric_mean_ratio(items))])
    return Table(
        "Whole networks, geometric means",
        "Speed-up of our winners over each peer: the geometric mean over networks of the ratio of medians. Above 1 ours is faster. The "
        "interval is of these networks' mean; it says nothing of other networks.",
        ["ours", "launch", "peer", "networks", "speed-up"], rows,
    )  # fmt: skip


def every_configuration(records):
    rows = []
    for case in measured_cases(records):
        for launch in LAUNCHES:
            by = _by_config(records, case, launch)
            rows.append([case.name, launch, *(f"{number(stats.median(by[c]), 4)} (n={len(by[c])})" if by[c] else "" for c in part_networks.CONFIGS)])
    return Table("Whole networks, every configuration", "Median over processes of the median iteration, in us; n processes.",
                 ["network", "launch", *part_networks.CONFIGS], rows)  # fmt: skip


def predictions(records, case, state):
    """[(config, predicted us, measured us)] of the convolutions of a network, by CUPTI's record of convolution operators."""
    tunings = {r["problem"]: r for r in records.of("tuning", case=case.name)}
    counts = next((r["counts"] for r in records.of("tuned", case=case.name)), {})
    found = []
    for config in part_networks.CONFIGS:
        chosen = part_networks.chosen_by(config, case, records)
        measured = [r["conv_us"] for r in records.of("network", case=case.name, config=config) if r.get("conv_us")]
        if not chosen or not measured or config == "W":  # W is filtered for neutrality: its choices are not all used
            continue
        predicted = choices.predicted_us(counts, chosen, tunings, state)
        if predicted is not None:
            found.append((config, predicted[0] / predicted[1], stats.median(measured)))
    return found


def cache_states(records):
    """Which cache state's times predict the network's own convolution times, and whose winners are fastest."""
    rows = []
    for case in measured_cases(records):
        by = _by_config(records, case, "graph")
        for state in part_networks.STATES:
            pairs = predictions(records, case, state)
            ours = by[f"W_{state}"]
            if not pairs and not ours:
                continue
            off = stats.median([p / m for _, p, m in pairs]) if pairs else None
            order = stats.spearman([p for _, p, _ in pairs], [m for *_, m in pairs]) if len(pairs) > 2 else None
            against = ratio(stats.ratio_of_medians(ours, by["A"])) if ours and by["A"] else ""
            rows.append([case.name, state, len(pairs), number(off), number(order, 2), number(stats.median(ours), 4) if ours else "", against])
    return Table(
        "Which cache state predicts a network",
        "Predicted: the sum over a network's convolutions of the tuner's time in that state. Predicted / measured is the median over "
        "configurations, the measured being CUPTI's time of convolution operators; the rank correlation is over configurations. W is "
        "the network's time in a CUDA graph with the winners of that state, everything allowed.",
        ["network", "state", "configurations", "predicted / measured", "rank correlation", "W, us", "W / A"], rows,
    )  # fmt: skip


def tuning_cost(records):
    """Wall time to tune a model against B0's first iteration of it; memory."""
    rows = []
    for tuned in [r for r in records.of("tuned") if "case" in r and r["step"].startswith("networks/")]:
        first = [r["first_iteration_ms"] / 1000 for r in records.of("network", case=tuned["case"], config="B0")]
        b0 = stats.median(first) if first else None
        peak = tuned["peak_bytes"]
        rows.append([
            tuned["case"], tuned["problems"], number(tuned["seconds"]), number(b0), number(tuned["seconds"] / b0) if b0 else "",
            "" if peak is None else number(peak / 2**20, 4),
        ])  # fmt: skip
    return Table(
        "What tuning a model costs",
        "Wall time of `convtune tune` over the model's problems (a new database, budget as given) against the first iteration of "
        "PyTorch with benchmark=True and no limit (B0). Peak: device memory of all processes, looked at every 20 ms.",
        ["network", "problems", "tune, s", "B0's first iteration, s", "ratio", "peak, MiB"], rows,
    )  # fmt: skip


def failures(records):
    rows = [[r["case"], r["config"], r["round"], r["error"][:120]] for r in records.of("network_error")]
    return Table("Processes that failed", "They are in none of the numbers above.", ["network", "configuration", "round", "error"], rows)


def tables(records):
    headlines = [headline(records, launch, mine) for mine in MINE for launch in LAUNCHES]
    return [*headlines, overall(records), cache_states(records), tuning_cost(records), every_configuration(records), failures(records)]


def plots(records):
    """{name: (title, axis, [(label, Estimate)])}: ours over the best peer, by network."""
    made = {}
    for launch in LAUNCHES:
        points = []
        for case in measured_cases(records):
            by = _by_config(records, case, launch)
            best = best_peer(by)
            for mine in MINE:
                if best and by[mine]:
                    points.append((f"{case.name}: {mine} / {best}", stats.ratio_of_medians(by[mine], by[best])))
        made[f"networks-{launch}"] = (f"Our winners over the best of A, B, B0 ({launch})", "time / time of the best peer", points)
    return made
