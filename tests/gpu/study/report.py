"""Tables and plots of what the records say: Markdown that also reads well on a terminal, and SVG."""

import pathlib

import stats
import svg
import verdict as rule
from steps import networks
from verdict import Answer, Status

CONDITIONS = ("commit", "gpu", "card", "driver", "python", "machine", "cores")
SIMULATED = "SIMULATED: no GPU was there. These numbers say nothing of any GPU."


def table(header, rows):
    """An aligned Markdown table."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    line = lambda row: "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
    return "\n".join([line(cells[0]), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, cells[1:])])


def number(value, places=3):
    return "-" if value is None else f"{value:.{places}f}"


def percent(value, places=1):
    return "-" if value is None else f"{100 * value:.{places}f}%"


def short(card):
    return card.removeprefix("GPU-")[:8]


def mib(value):
    return "-" if value is None else f"{value / 2**20:.0f}"


def ratio(estimate):
    """With its interval, or with the number of pairs where they are too few for one."""
    if estimate is None:
        return "-"
    if not estimate.known:
        return f"{estimate.value:.3f} ({estimate.pairs} pairs)"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def headline(records):
    """What there is to know first, of the first network: three lines."""
    name = next(iter(networks()))
    found = next((r for r in reversed(rule.results(records)) if r.network == name), None)
    gains, over_h, count = (found.gains, found.over_h, found.generations) if found else ({}, {}, 0)
    told = [r for r in records.of("served", network=name, card=found and found.card) if r["counters"]]
    started = {s.peer: s.first_ms for s in rule.starts(records)}
    times = started or rule.first_ms(records).get((name, found and found.card), {})
    return [
        f"{name} in captured graphs: H / W {ratio(gains.get('H'))}, A/A {ratio(over_h.get('H2'))}, "
        f"served {told[-1]['captured_served'] if told else '-'} of {networks()[name].convolutions}, {count} generation{'' if count == 1 else 's'}",
        f"{name}: W / B10 {ratio(gains['B10'].inverse() if 'B10' in gains else None)}",
        f"{name}, first iterations{' of fresh processes' if started else ''}: " + (", ".join(f"{p} {times[p]:.0f} ms" for p in ("H", "W", "B10") if p in times) or "-"),
    ]  # fmt: skip


def conclusion(found):
    """The rule's answers, each a line."""
    so_far = f" so far ({len(networks()) - len(found.missing)} of {len(networks())} networks have run)" if found.missing else ""
    count = f"{len(found.counted)} networks count" + ("" if len(found.counted) >= rule.LEAST_COUNTED else f", and {rule.LEAST_COUNTED} are needed")
    later = "not measured six times with W served" if found.later_ms is None else f"{found.later_ms:+.0f} ms"
    lines = [
        f"FASTER{so_far}: {found.faster.value}: {count}; best peer / W {ratio(found.gain)} (the rule: at least {rule.FASTER})",
        f"SOONER{so_far}: {found.sooner.value}: {count}; H / W {ratio(found.over_w)} (at least {rule.LEAST_GAIN}), W / B10 {ratio(found.over_b10)} (at most "
        f"{rule.SOONER_RATIO}), W's first iteration beside H's {later} (at most {rule.SOONER_MS:+.0f} ms)",
    ]  # fmt: skip
    if found.faster is Answer.CONTRADICTION:
        lines.append("CONTRADICTION: the upper bound is below 2% in every network, and W is measured faster than that: one of the two is wrong.")
    elif found.bounds_low:
        lines.append("No product: the upper bound is below 2% in every network.")
    elif len(found.below) >= rule.NO_PRODUCT:
        lines.append(f"No product: H / W is below {rule.LEAST_GAIN} in {', '.join(found.below)}.")
    elif found.faster is found.sooner is Answer.NO and not found.missing:
        lines.append("Neither: by this rule it is not worth it for these networks.")
    lines += [f"Without {', '.join(r.without)}: {r.network}" for r in found.counted if r.without]
    lines += [f"Not counted: {r.network}: {r.status.value}" + (f": W was not served: {r.because}" if r.because else "") for r in found.left_out]
    every = (*found.counted, *found.left_out)
    if same := [r.network for r in every if r.b_is_h and "B" in r.over_h]:
        lines.append(f"Mode B is H again in {', '.join(same)}: cuDNN lists the same for both there, for every convolution.")
    if other := [r.network for r in every if r.modes and not r.b_is_h and "B" not in r.over_h]:
        lines.append(f"Mode B was left out in {', '.join(other)}, where on this GPU it is not H.")
    return lines


def bound_table(records):
    rows = [
        [b.network, f"{b.saved_us:.0f}", f"{b.stock_us:.0f}", number(b.iteration_us, 0), percent(b.share) + ("" if b.iteration_us else " of convolutions"),
         percent(b.measured, 0), percent(b.published, 0), f"{b.timed}/{b.listed}", percent(b.cut, 0), b.quarantined]
        for b in rule.bounds(records)
    ]  # fmt: skip
    note = "The most that choices can save: sum of count x (stock - winner), as a share of H's iteration. Under 2% everywhere means no."
    return note, table(["network", "saved, us", "stock, us", "iteration, us", "upper bound", "known", "published", "timed/listed", "races cut", "quarantined"], rows)


def network_table(found):
    rows = [
        [r.network, short(r.card), ratio(r.gains.get("H")), ratio(r.over_h.get("H2")), percent(r.served),
         "B (= H)" if r.best == "B" and r.b_is_h else r.best or "-", ratio(r.gain), number(r.errors.get("W"), 4), r.generations, r.status.value]
        for r in found
    ]  # fmt: skip
    note = (
        "H / W and gain: H's and the best peer's time over W's in captured graphs, paired by round; above 1 W is faster. Intervals of 95%. A/A: "
        "two processes of H. Served: the smallest share of W's convolutions. Error: W's output against H's, relative."
    )
    return note, table(["network", "card", "H / W", "A/A", "served", "best peer", "gain", "error", "generations", "status"], rows)


def peer_table(found, first):
    peers = ("B", "B10", "B0", "W")
    rows = [
        [r.network, short(r.card), f"{r.h_us:.0f}", *(ratio(r.over_h.get(p)) for p in peers),
         *(number(first.get((r.network, r.card), {}).get(p), 0) for p in ("H", *peers)),
         "-" if r.modes is None else f"{percent(r.modes[0], 0)}, {percent(r.modes[1], 0)}"]
        for r in found
    ]  # fmt: skip
    note = (
        "A peer's time over H's, paired by round; then the first iteration of these processes, searches included, in ms. B is H: the share of "
        "convolutions for which cuDNN lists the same for mode B as for H's mode, and of those whose first is the same. At 100% B is H again."
    )
    return note, table(["network", "card", "H, us", *(f"{p} / H" for p in peers), *(f"first {p}" for p in ("H", *peers)), "B is H"], rows)


def start_table(started):
    rows = [
        [s.peer, short(s.card), s.count, f"{s.first_ms:.0f}", f"{s.least_ms:.0f} to {s.most_ms:.0f}", f"{s.from_exec_ms:.0f}", mib(s.peak_bytes), mib(s.card_bytes),
         percent(s.served) if s.peer == "W" else "-"]
        for s in started
    ]  # fmt: skip
    note = "Fresh processes, medians. First: from the first convolution to the end of the first iteration. Peak: PyTorch's; GPU: NVML's, context included."
    return note, table(["peer", "card", "processes", "first, ms", "range", "from exec, ms", "peak, MiB", "GPU, MiB", "served"], rows)


def oracle_table(found):
    rows = [[short(r["card"]), r["problem"].replace(",dilation=1x1,groups=1", ""), r["ran"], f"{r['oracle_us']:.1f}", percent(r["regret"], 2), percent(r["stock_regret"], 2),
             "the winner" if r["oracle"] == r["winner"] else r["oracle"]] for r in found]  # fmt: skip
    note = "Regret: how much longer than the fastest of all plans, on rounds of their own. The plans are listed without convtune."
    return note, table(["card", "problem", "plans", "fastest, us", "W's regret", "stock's regret", "fastest"], rows)


def clock_table(records):
    rows = []
    for kind in ("round", "soak"):
        for card in rule.cards(records):
            states = [state for r in records.of(kind, card=card) for state in r["state"].values()]
            for name, unit in (("mhz", "SM clock, MHz"), ("watts", "power, W"), ("celsius", "temperature, C")):
                values = [s[name] for s in states if s.get(name) is not None]
                if values:
                    rows.append([kind, short(card), unit, len(values), *(f"{stats.quantile(values, q):.0f}" for q in (0, 0.5, 1))])
    return "Read behind every turn.", table(["of", "card", "what", "readings", "least", "median", "most"], rows)


def tables(records):
    """[(title, note, table)] of what there is, what decides first."""
    found, started = rule.results(records), rule.starts(records)
    failed = [[r.get("step"), r.get("peer") or r.get("problem") or "", r["reason"][:140]] for k in ("failed", "peer_failed", "oracle_failed") for r in records.of(k)]
    made = [("Networks", *network_table(found))] if found else []
    made += [("Upper bound", *bound_table(records))] if records.of("tuned") else []
    made += [("Failures", "", table(["step", "of it", "reason"], failed))] if failed else []
    made += [("Every peer", *peer_table(found, rule.first_ms(records)))] if found else []
    made += [("Start-up", *start_table(started))] if started else []
    made += [("Twelve shapes against an oracle", *oracle_table(records.of("oracle")))] if records.of("oracle") else []
    differ, beyond, pairs = rule.flip_counts(records)
    if pairs:
        made.append(("Flips", "Independent tunings of the same shapes, pairwise.", table(["pairs", "chose differently", f"by more than {percent(stats.EQUIVALENCE)}"], [[pairs, differ, beyond]])))
    soaks = [[short(card), len(records.of("soak", card=card)), ratio(e)] for card in rule.cards(records) if (e := rule.soak(records, card))]
    made += [("Soak", "Turns of a second each: H's time over W's.", table(["card", "turns", "H / W"], soaks))] if soaks else []
    made += [("Clocks and power", *clock_table(records))] if found else []
    return made


def markdown(records, plots=()):
    lines = ["# Is it worth it?", ""]
    conditions = records.of("conditions")
    if any(c["simulated"] for c in conditions):
        lines += [f"**{SIMULATED}**", ""]
    if any(c.get("clock_ignored") for c in conditions):
        lines += ["**The GPU's clock does not agree with delays of known length, and was sampled in spite of it.**", ""]
    lines += [*headline(records), "", *conclusion(rule.verdict(records)), ""]
    for title, note, body in tables(records):
        lines += [f"## {title}", "", *([note, ""] if note else []), body, ""]
        lines += [f"![{name}]({name}.svg)\n" for at, name in plots if at == title]
    rows = list(dict.fromkeys(tuple(str(c.get(name)) for name in CONDITIONS) for c in conditions))
    libraries = dict.fromkeys(f"PyTorch {r['torch']}, cuDNN {r['cudnn']}" for r in records.of("peers"))
    return "\n".join([*lines, "## Conditions", "", table(CONDITIONS, rows), "", *libraries, ""])


def plots(records):
    """{name: (title of its table, plot's title, axis, points, line)}."""
    found, many = rule.results(records), len(rule.cards(records)) > 1
    label = lambda r: f"{r.network} {short(r.card)}" if many else r.network
    interval = lambda e: (e.low, e.high) if e.known else None
    made = {}
    gains = [(f"{label(r)}: {r.best}", r.gain.value, interval(r.gain)) for r in found if r.gain and r.status in (Status.COUNTED, Status.NOISY)]
    total = rule.verdict(records).gain
    if total:
        gains.append(("geometric mean", total.value, interval(total)))
    made["gains"] = ("Networks", "The best peer over W", "time / W's time; right of 1 W is faster", gains, 1.0)
    made["peers"] = ("Every peer", "Every peer over H", "time / H's time", [
        (f"{label(r)}: {'A/A' if p == 'H2' else p}", r.over_h[p].value, interval(r.over_h[p])) for r in found for p in ("H2", "B", "B10", "B0", "W") if p in r.over_h
    ], 1.0)  # fmt: skip
    made["startup"] = ("Start-up", "First iteration of a fresh process", "milliseconds, median and range", [
        (f"{s.peer} {short(s.card)}" if many else s.peer, s.first_ms, (s.least_ms, s.most_ms)) for s in rule.starts(records)
    ], None)  # fmt: skip
    made["regret"] = ("Twelve shapes against an oracle", "The winner over the fastest of all plans", "time / the oracle's", [
        (r["problem"].split(",pad")[0].removeprefix("fwd,"), 1 + r["regret"], None) for r in records.of("oracle")
    ], 1.0)  # fmt: skip
    return {name: plot for name, plot in made.items() if plot[3]}


def write(records, folder):
    """report.md and its plots; files of an earlier report in the folder are replaced."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = plots(records)
    for name, (_, *plot) in made.items():
        (folder / f"{name}.svg").write_text(svg.intervals(*plot))
    (folder / "report.md").write_text(markdown(records, [(title, name) for name, (title, *_) in made.items()]))
