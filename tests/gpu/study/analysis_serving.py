"""What the records of unmodified PyTorch under the interposer say. Pure: of records alone."""

import stats
import workloads
from part_serving import POLICIES
from tables import Table, number, percent, ratio

# Largest difference from the stock program's values, in units of the largest
# of them. Outputs of two algorithms differ by rounding of what is stored (u: half
# a unit in the last place, 2^-11 for f16 and 2^-8 for bf16; Higham, Accuracy and
# Stability of Numerical Algorithms, 2002, section 2.1) over some tens of layers,
# and f32 by what TF32's 11 bits leave where PyTorch's default allows it.
TOLERANCE = {"f16": 2e-2, "bf16": 1e-1, "f32": 5e-3}
FIRST_MS = 50.0


def of(records, case, benchmark, policy):
    return records.of("serving", case=case.name, benchmark=benchmark, policy=policy)


def measured_cases(records):
    return [c for c in workloads.SERVING_CASES if records.of("serving", case=c.name)]


def first_iterations(records):
    rows = []
    for case in measured_cases(records):
        base = [r["first_ms"] for r in of(records, case, False, "stock")]
        search = [r["first_ms"] for r in of(records, case, True, "stock")]
        for benchmark in (False, True):
            for policy in POLICIES:
                times = [r["first_ms"] for r in of(records, case, benchmark, policy)]
                if not times:
                    continue
                middle = stats.median(times)
                over = middle - stats.median(base) if base else None
                shorter = stats.median(search) / middle if search else None
                rows.append([case.name, "on" if benchmark else "off", policy, len(times), number(middle, 4), number(over), number(shorter)])
    return Table(
        "First iteration",
        "Milliseconds from the first convolution to the end of iteration 1 (with torch.compile: of the whole iteration), medians of "
        f"fresh processes. Asked of reorder and truncate: at most {FIRST_MS:.0f} ms over benchmark off, and 10 times shorter than stock with benchmark on.",
        ["network", "benchmark", "policy", "processes", "ms", "over stock, benchmark off", "stock, benchmark on, over it"], rows,
    )  # fmt: skip


def steady(records):
    rows = []
    for case in measured_cases(records):
        median_of = lambda r: r["eager_us"]["median"]
        reference = [median_of(r) for r in of(records, case, True, "stock")]
        peak = [r["peak_reserved_bytes"] for r in of(records, case, False, "stock") if "peak_reserved_bytes" in r]
        for benchmark in (False, True):
            for policy in POLICIES:
                found = of(records, case, benchmark, policy)
                if not found or not reference:
                    continue
                memory = [r["peak_reserved_bytes"] for r in found if "peak_reserved_bytes" in r]
                more = stats.median(memory) / stats.median(peak) if memory and peak else None
                holds = stats.non_inferior([median_of(r) for r in found], reference)[0]
                rows.append([
                    case.name, "on" if benchmark else "off", policy, number(stats.median([median_of(r) for r in found]), 4),
                    ratio(stats.ratio_of_medians([median_of(r) for r in found], reference)), "yes" if holds else "no", number(more, 4),
                ])  # fmt: skip
    return Table(
        "Steady iterations and memory",
        "Eager iterations against stock PyTorch with benchmark on, and peak reserved memory against stock with benchmark off. "
        "Non-inferior: the one-sided 95% bound is below 1.01.",
        ["network", "benchmark", "policy", "us", "over stock, benchmark on", "non-inferior", "memory over stock"], rows,
    )  # fmt: skip


def shares(records):
    """What the interposer's counters say."""
    rows = []
    for case in measured_cases(records):
        for benchmark in (False, True):
            for policy in POLICIES[1:]:
                lines = [r["counters"] for r in of(records, case, benchmark, policy) if r.get("counters")]
                if not lines:
                    continue
                line = lines[-1]
                executed = line.get("executions", 0)
                share = line.get("executions_served", 0) / executed if executed else None
                problems = line.get("problems", 0)
                plans = (line.get("plans", 0) + line.get("plans_own", 0)) / problems if problems else None
                missed = ", ".join(f"{reason} {count}" for reason, count in sorted(line.get("missed", {}).items()) if count)
                rows.append([case.name, "on" if benchmark else "off", policy, problems, executed, percent(share, 1), number(plans), missed])
    return Table(
        "What was served", "By the interposer's counters, of the last process. At least 95% of the executed convolutions are asked for.",
        ["network", "benchmark", "policy", "problems", "executions", "served", "plans per problem", "missed, by reason"], rows,
    )  # fmt: skip


def difference(reference, outputs):
    """Largest difference over all tensors, in units of each one's largest value; infinite for what is not finite."""
    worst = 0.0
    for name, tensor in reference.items():
        scale = max(tensor["largest"], 1e-30)
        for expected, got in zip(tensor["values"], outputs[name]["values"]):
            off = abs(expected - got) / scale
            worst = max(worst, off) if off == off else float("inf")
    return worst


def outputs(records):
    rows = []
    for case in measured_cases(records):
        reference = next((r["outputs"] for r in of(records, case, False, "stock") if r.get("outputs")), None)
        for benchmark in (False, True):
            for policy in POLICIES:
                found = next((r["outputs"] for r in of(records, case, benchmark, policy) if r.get("outputs")), None)
                if reference is None or found is None or (not benchmark and policy == "stock"):
                    continue
                off = difference(reference, found)
                rows.append([case.name, "on" if benchmark else "off", policy, f"{off:.1e}", "yes" if off <= TOLERANCE[case.dtype] else "no"])
    return Table(
        "Outputs and gradients", "Largest difference from stock PyTorch with benchmark off over samples of the output and of gradients, in units of each "
        f"tensor's largest value; within {', '.join(f'{v:g} for {k}' for k, v in TOLERANCE.items())}.",
        ["network", "benchmark", "policy", "difference", "within"], rows,
    )  # fmt: skip


def failures(records):
    rows = [[r["case"], "on" if r["benchmark"] else "off", r["policy"], r["round"], r["error"][:120]] for r in records.of("serving_error")]
    return Table("Processes that failed", "They are in none of the numbers above.", ["network", "benchmark", "policy", "round", "error"], rows)


def tables(records):
    return [first_iterations(records), steady(records), shares(records), outputs(records), failures(records)]


def plots(records):
    points = []
    for case in measured_cases(records):
        base = [r["first_ms"] for r in of(records, case, False, "stock")]
        for benchmark, policy in ((True, "stock"), (True, "truncate"), (False, "truncate")):
            found = [r["first_ms"] for r in of(records, case, benchmark, policy)]
            if base and found:
                label = f"{case.name} {policy}, benchmark {'on' if benchmark else 'off'}"
                points.append((label, stats.ratio_of_medians(found, base)))
    return {"first-iteration": ("First iteration over stock PyTorch's with benchmark off", "time / time", points)}
