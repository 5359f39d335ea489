"""Second part: shape by shape. Regret against a held-out oracle, flips, peers, wall time, memory."""

import shutil
import time

import choices
import tuning
import workloads
from gpu import PeakMemory
from observed import Listener, signature
from problem import parse
from runner import ProcessError
from steps import Step

BLOCK = 12
SELECT_ROUNDS = JUDGE_ROUNDS = 30
STATES = ("cold", "input_hot", "hot")
SELECT_STATE = "input_hot"
MEMORY_BYTES = 16 << 30
FRESH_TUNINGS, FRESH_SHAPES, FRESH_BLOCK = 20, 40, 10
TORCH_ROUNDS = {"B10": 3, "B0": 1}
RUNNERS_UP = 3  # of the first process, that are judged beside its winner
PROCESS_S = 240


def blocks(options):
    """(name, problems) of every block: the first of each set, then the second of each, ..."""
    sets = workloads.shape_sets(options.get("data"))
    rows = {name: [problems[i : i + BLOCK] for i in range(0, len(problems), BLOCK)] for name, problems in sets.items()}
    most = max(len(row) for row in rows.values())
    return [(f"{name}/{i}", row[i]) for i in range(most) for name, row in rows.items() if i < len(row)]


def fresh_shapes(options):
    """40 shapes, evenly from all sets."""
    sets = workloads.shape_sets(options.get("data"))
    share = -(-FRESH_SHAPES // len(sets))
    return [p for problems in sets.values() for p in workloads.spread(problems, share)][:FRESH_SHAPES]


def steps(options):
    budget = options.get("budget", "2s")
    made = []
    for name, problems in blocks(options):
        made += [_tune(name, problems, budget), _choices(name, problems)]
        made += [_torch(name, problems, peer, r) for peer, rounds in TORCH_ROUNDS.items() for r in range(rounds)]
        made += [_select(name, problems), _judge(name, problems)]
    shapes = fresh_shapes(options)
    parts = [shapes[i : i + FRESH_BLOCK] for i in range(0, len(shapes), FRESH_BLOCK)]
    fresh = [_fresh(i, part, r, budget) for r in range(FRESH_TUNINGS) for i, part in enumerate(parts)]
    fresh += [_fresh_judge(i, part) for i, part in enumerate(parts)]
    # After the first block of each set, so that both kinds of evidence begin early.
    begin = next((i + 1 for i, s in enumerate(made) if s.name.endswith("/0/judge") and not any(
        t.name.endswith("/0/judge") for t in made[i + 1 :])), len(made))  # fmt: skip
    return made[:begin] + fresh + made[begin:]


def _seconds(until):
    return max(5.0, min(PROCESS_S, until - time.monotonic()))


def _complete(answers, entries, until):
    """All are there, or the process had all the time that one may have: what it did not come to is left out."""
    return len(answers) == len(entries) or until - time.monotonic() > 5


def _tune(name, problems, budget):
    def run(lab, records, until):
        daemon = lab.open_daemon()
        with PeakMemory(lab.nvml) as peak:
            seconds, left = daemon.tune(problems, budget, until, memory_budget=str(MEMORY_BYTES >> 30) + "GiB")
        if left:
            return [], False
        found = [{"kind": "environment", **daemon.environment()}]
        winners = {state: daemon.winners(problems, state, api="any") for state in (None, *STATES)}
        for problem in problems:
            stored = daemon.explain(problem)
            if stored is None:
                continue
            texts = {state or "default": (by.get(problem) or {}).get("text") for state, by in winners.items()}
            found.append({**tuning.summary(problem, stored), "block": name, "ours": texts})
        found.append({
            "kind": "tuned", "block": name, "seconds": seconds, "problems": len(problems), "peak_bytes": peak.bytes,
            "memory_budget": MEMORY_BYTES, "budget": budget,
        })  # fmt: skip
        return found, True

    return Step(f"shapes/{name}/tune", 3.0 * BLOCK, run)


def _choices(name, problems):
    def run(lab, records, until):
        answers = lab.referee({"do": "choices", "problems": problems}, _seconds(until))
        return [{**a, "block": name} for a in answers], _complete(answers, problems, until)

    return Step(f"shapes/{name}/choices", 20, run, needs=(f"shapes/{name}/tune",))


def _torch(name, problems, peer, number):
    """What PyTorch settles on by itself, seen by the interposer in `observe`."""

    def run(lab, records, until):
        by_signature = {signature(parse(p)): p for p in problems}
        with Listener() as listener:
            env = lab.preload_env(listener.folder, "observe")
            spec = {"problems": problems, **choices.PYTORCH[peer]}
            try:
                took = lab.network(spec, env, _seconds(until))
            except ProcessError as error:
                return [{"kind": "torch_error", "block": name, "peer": peer, "round": number, "error": str(error)}], True
        settled = {}
        for kind, found, text in listener.found:
            if kind == "plan" and found in by_signature:
                settled[by_signature[found]] = text
        return [{
            "kind": "torch", "block": name, "peer": peer, "round": number, "choices": settled,
            "first_ms": took["first_ms"],
        }], True  # fmt: skip

    return Step(f"shapes/{name}/torch/{peer}/{number}", 30 if peer == "B10" else 60, run, needs=(f"shapes/{name}/tune",))


def _of_block(records, kind, name):
    return {r["problem"]: r for r in records.of(kind, block=name)}


def _select(name, problems):
    """The first process: all listed plans, from which the oracle is taken."""

    def run(lab, records, until):
        tunings = _of_block(records, "tuning", name)
        entries = [
            {"problem": p, "candidates": [c["text"] for c in tunings[p]["candidates"] if c["timed"]]}
            for p in problems if p in tunings
        ]  # fmt: skip
        job = {"do": "time", "problems": entries, "rounds": SELECT_ROUNDS, "states": [SELECT_STATE], "memory_bytes": MEMORY_BYTES}
        answers = lab.referee(job, _seconds(until))
        return [{**a, "block": name, "role": "select"} for a in answers], _complete(answers, entries, until)

    return Step(f"shapes/{name}/select", 10.0 * BLOCK, run, needs=(f"shapes/{name}/choices",))


def finalists(problem, tuned, said, settled, selected):
    """{candidate: who chose it} for the second process; `oracle` is the first process's fastest."""
    from stats import median

    chosen = {}
    add = lambda text, who: text and chosen.setdefault(text, []).append(who)
    samples = selected["samples"].get(SELECT_STATE, {}) if selected else {}
    medians = {t: median([v for v in s if v]) for t, s in samples.items() if any(s)}
    best = sorted(medians, key=medians.get)
    for place, text in enumerate(best[: 1 + RUNNERS_UP]):
        add(text, "oracle" if place == 0 else f"runner_up_{place}")
    for state, text in tuned["ours"].items():
        add(text, "W" if state == "default" else f"W_{state}")
    for mode, who in (("a", "A"), ("b", "B"), ("instant", "H"), ("get_v7", "Get_v7")):
        add((said or {}).get(mode, None) and said[mode]["candidate"], who)
    for record in settled:
        add(record["choices"].get(problem), f"{record['peer']}_{record['round']}")
    found = choices.find_choice(tuned)
    add(found and found["text"], "V7")
    return chosen


def _judge(name, problems):
    """The second process, on rounds of its own."""

    def run(lab, records, until):
        tunings, said = _of_block(records, "tuning", name), _of_block(records, "choices", name)
        settled = records.of("torch", block=name)
        selected = {r["problem"]: r for r in records.of("referee", block=name, role="select")}
        chosen = {p: finalists(p, tunings[p], said.get(p), settled, selected.get(p)) for p in problems if p in tunings}
        entries = [{"problem": p, "candidates": list(who)} for p, who in chosen.items()]
        job = {"do": "time", "problems": entries, "rounds": JUDGE_ROUNDS, "states": list(STATES), "memory_bytes": MEMORY_BYTES}
        answers = lab.referee(job, _seconds(until))
        marked = [{**a, "block": name, "role": "judge", "chosen_by": chosen[a["problem"]]} for a in answers]
        return marked, _complete(answers, entries, until)

    return Step(f"shapes/{name}/judge", 6.0 * BLOCK, run, needs=(f"shapes/{name}/select",))


def _fresh(index, problems, number, budget):
    """One independent tuning: a new database, a new daemon, a new worker process."""

    def run(lab, records, until):
        state = lab.out / "fresh" / f"{number}-{index}"
        lab.release_card()
        try:
            with lab.open_daemon(state) as daemon:
                seconds, left = daemon.tune(problems, budget, until)
                if left:
                    return [], False
                winners = daemon.winners(problems, api="any")
        finally:
            shutil.rmtree(state, ignore_errors=True)
        texts = {p: w["text"] for p, w in winners.items() if w}
        return [{"kind": "fresh", "part": index, "number": number, "winners": texts, "seconds": seconds}], True

    return Step(f"shapes/fresh/{number}/{index}", 3.0 * FRESH_BLOCK, run)


def _fresh_judge(index, problems):
    def run(lab, records, until):
        tunings = records.of("fresh", part=index)
        entries = [
            {"problem": p, "candidates": sorted({t["winners"][p] for t in tunings if p in t["winners"]})} for p in problems
        ]  # fmt: skip
        job = {"do": "time", "problems": entries, "rounds": JUDGE_ROUNDS, "states": [SELECT_STATE], "memory_bytes": MEMORY_BYTES}
        answers = lab.referee(job, _seconds(until))
        return [{**a, "part": index, "role": "fresh"} for a in answers], _complete(answers, entries, until)

    return Step(f"shapes/fresh/judge/{index}", 60, run, needs=tuple(f"shapes/fresh/{n}/{index}" for n in range(FRESH_TUNINGS)))
