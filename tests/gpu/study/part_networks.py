"""First part: whole networks with our winners against the best of their peers, eager and replayed."""

import shutil
import time

import choices
import tuning
import workloads
from runner import ProcessError
from steps import Step

ROUNDS = 10
# Rounds in which the slow ones take part: their first iteration takes long.
SLOW_ROUNDS = 3
SLOW = ("B0", "V7")
STATES = ("cold", "input_hot", "hot")
# W is what a program gets by default: neutral. W_all may use any workspace and
# notes, as PyTorch's own search may; so may the winners of each cache state.
OURS = ("W", "W_all", *(f"W_{state}" for state in STATES))
CONFIGS = ("H", "A", "B", "B10", "B0", "V7", *OURS)
FIRST_CASES = 6
PROCESS_S = 240  # a search without limit takes long
LEAST_S = 5
STEADY_S = 0.4


def steps(options):
    """Six cases in full, then the others: a few rounds of each before many of any."""
    budget = options.get("budget", "2s")
    first, others = workloads.NETWORK_CASES[:FIRST_CASES], workloads.NETWORK_CASES[FIRST_CASES:]
    made = []
    for group in (first, others):
        for begin, end in ((0, SLOW_ROUNDS), (SLOW_ROUNDS, ROUNDS)):
            for case in group:
                if begin == 0:
                    made += [_tune(case, budget), _choices(case)]
                made += [_round(case, number) for number in range(begin, end)]
    return made


def seconds_of(until):
    """What a process may take."""
    return max(LEAST_S, min(PROCESS_S, until - time.monotonic()))


def tune_case(lab, case, budget, until, **fields):
    """Tunes a case's problems. (records, finished); shared with the part that is about serving."""
    from gpu import PeakMemory

    counts = workloads.problems_of(case)
    daemon = lab.open_daemon()
    with PeakMemory(lab.nvml) as peak:
        seconds, left = daemon.tune(counts, budget, until, api="graph")  # PyTorch runs no other
    if left:
        return [], False
    found = [{"kind": "environment", **daemon.environment()}]
    for problem in counts:
        stored = daemon.explain(problem)
        if stored is not None:
            found.append({**tuning.summary(problem, stored), "case": case.name})
    for state in (None, *STATES):
        winners = daemon.winners(list(counts), state)
        found.append({
            "kind": "winners", "case": case.name, "state": state,
            "winners": {p: w and {k: v for k, v in tuning.candidate(w).items() if k in ("text", "notes", "workspace")} for p, w in winners.items()},
        })  # fmt: skip
    found.append({
        "kind": "tuned", "case": case.name, "seconds": seconds, "problems": len(counts), "counts": counts,
        "peak_bytes": peak.bytes, "budget": budget, **fields,
    })  # fmt: skip
    shutil.copyfile(daemon.snapshot / "current.snapshot", lab.snapshot_folder(f"{case.name}/W") / "current.snapshot")
    return found, True


def _tune(case, budget):
    def run(lab, records, until):
        return tune_case(lab, case, budget, until)

    return Step(f"networks/{case.name}/tune", 3.0 * 30, run)


def _choices(case):
    def run(lab, records, until):
        problems = list(workloads.problems_of(case))
        answers = lab.referee({"do": "choices", "problems": problems}, seconds_of(until))
        return [{**a, "case": case.name} for a in answers], len(answers) == len(problems)

    return Step(f"networks/{case.name}/choices", 30, run, needs=(f"networks/{case.name}/tune",))


def chosen_by(config, case, records):
    """{problem: candidate} of a configuration whose choices are known beforehand; None for the others."""
    tunings = {r["problem"]: r for r in records.of("tuning", case=case.name)}
    if config in ("A", "B"):
        return choices.peer_choices(tunings, records.of("choices", case=case.name), config.lower())
    if config in OURS:
        state = config[2:] if config[2:] in STATES else None
        found = [r for r in records.of("winners", case=case.name) if r["state"] == state]
        return {p: w for r in found[-1:] for p, w in r["winners"].items() if w}
    return None


def prepare(lab, case, config, records):
    """(what the child is told, its environment) of a configuration."""
    if config in choices.PYTORCH:
        return choices.PYTORCH[config], choices.V7_ENV if config == "V7" else {}
    if config in ("W", "W_all"):
        allow = "notes,workspace" if config == "W_all" else ""
        return {"benchmark": False}, lab.preload_env(lab.snapshot_folder(f"{case.name}/W"), "truncate", allow)
    environment = records.of("environment")[-1]["text"]
    snapshot = lab.write_snapshot(f"{case.name}/{config}", environment, chosen_by(config, case, records))
    return {"benchmark": False}, lab.preload_env(snapshot, "truncate", allow="notes,workspace")


def taking_part(number):
    """Configurations of a round, in its order: rotated by one with every round."""
    there = [c for c in CONFIGS if number < SLOW_ROUNDS or c not in SLOW]
    shift = number % len(there)
    return there[shift:] + there[:shift]


def run_network(lab, case, spec, env, seconds):
    """The record of one process: what child.run says, summarised, with the interposer's counters."""
    counters = None
    if "LD_PRELOAD" in env:
        counters = lab.counters_file()
        env = {**env, "CONVTUNE_PRELOAD_COUNTERS": str(counters)}
    result = lab.network(case.spec(seconds=STEADY_S, **spec), env, seconds)
    for launch in ("eager_us", "graph_us"):
        if launch in result:
            result[launch] = choices.summarise(result[launch])
    if counters is not None:
        result["counters"] = lab.read_counters(counters)
    return result


def _round(case, number):
    def run(lab, records, until):
        found, measured = [], {}
        for config in taking_part(number):
            chosen = chosen_by(config, case, records) if config[2:] in STATES else None
            twin = next((c for c, (other, _) in measured.items() if chosen is not None and choices.same(chosen, other)), None)
            if twin is not None:
                found.append({**measured[twin][1], "config": config, "same_as": twin})
                continue
            if until - time.monotonic() < LEAST_S:
                return [], False
            record = {"kind": "network", "case": case.name, "config": config, "round": number}
            try:
                more, env = prepare(lab, case, config, records)
                record |= run_network(lab, case, {**more, "graph": True, "profile": True}, env, seconds_of(until))
            except ProcessError as error:
                if time.monotonic() >= until - 1:
                    return [], False  # it was cut short by the run's end
                record |= {"kind": "network_error", "error": str(error)}
            found.append(record)
            if chosen is not None and record["kind"] == "network":
                measured[config] = (chosen, record)
        return found, True

    kind = "slow-round" if number < SLOW_ROUNDS else "round"
    return Step(f"networks/{case.name}/{kind}/{number}", 100, run, needs=(f"networks/{case.name}/choices",))
