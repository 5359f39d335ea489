"""The steps of the study: which there are, in the order of what they are worth, and what each does."""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import peers
from lab import Daemon, NotReady, StepFailed, TimeIsUp, broken_words, failed_instruments

BUDGET = "700ms"
# For a network's problems of most work, since a race that is cut keeps the stock choice; and for those
# whose tuning could not be judged within BUDGET, and is therefore published to nobody.
LARGE, LARGE_BUDGET = 10, "3s"
UNPUBLISHED = (None, "EVIDENCE_UNSPECIFIED", "EVIDENCE_HEURISTIC")
# Of a network's convolutions: with less W is no W.
LEAST_SERVED = 0.95
# In the folder of results, of all tunings so far.
BUNDLE = "tunings.bundle"
# Left before a step's deadline, to ask for what there is and to end in order.
ENDING_S = 4.0
COLD_DISK_S = 11
ORACLE_SHAPES, FLIP_SHAPES, FLIP_TUNINGS = 12, 10, 3
B0_S = 15  # what a search without a limit adds to its generation


@dataclasses.dataclass(frozen=True)
class Network:
    """A network at its batch size: its problems in channels-last f16, most work first, and how often an iteration runs each."""

    name: str
    batch: int
    problems: dict

    @property
    def convolutions(self):
        return sum(self.problems.values())

    def snapshot(self, lab):
        """The published file that W is given on a GPU of this model."""
        return lab.work / "snapshots" / re.sub(r"[^A-Za-z0-9.-]+", "_", lab.card.name) / self.name / "current.snapshot"


@functools.cache
def networks():
    listed = json.loads((pathlib.Path(__file__).parent / "networks.json").read_text())
    return {name: Network(name, entry["batch"], entry["problems"]) for name, entry in listed.items()}


@dataclasses.dataclass(frozen=True)
class Step:
    """run(lab, records, step, until) appends what it finds as it finds it, and goes on from that when it is run again."""

    name: str
    limit_s: int
    about: str
    run: Callable
    extra: bool = False  # the rule does not need it: it is run when nothing else is left


def _generation_limit_s(network):
    """Searches take longer where there are more problems."""
    return max(23, 14 + math.ceil(0.5 * len(network.problems))) + (B0_S if "B0" in peers.names_for(network.name) else 0)


def all_steps():
    """The most valuable steps come first, in case there is no time for the rest."""
    nets = list(networks().values())
    main = nets[0]
    found = []
    for net in nets:
        found.append(Step(
            f"{net.name}-tune", 6 + math.ceil(3.1 * LARGE + 0.8 * (len(net.problems) - LARGE)),
            f"tunes {len(net.problems)} convolutions of {net.name}, {LARGE_BUDGET} for the {LARGE} largest, {BUDGET} for others", _bound(tune, net),
        ))  # fmt: skip
        # The first one also brings PyTorch from a cold disk.
        limit_s = _generation_limit_s(net) + (COLD_DISK_S if net is main else 0)
        found.append(Step(f"{net.name}-peers1", limit_s, f"{net.name}: all peers, replayed in turn", _bound(peers.generation, net)))
        if net is main:
            found.append(Step("startup", 36, f"first iterations and memory of fresh processes, {main.name}", _bound(peers.startup, main)))
    for net in nets:
        found.append(Step(f"{net.name}-peers2", _generation_limit_s(net), f"{net.name}: a second generation of processes", _bound(peers.generation, net)))
    found.append(Step("oracle", 25, f"{ORACLE_SHAPES} shapes against the fastest of all plans", oracle, extra=True))
    found.append(Step("flips", 105, f"{FLIP_SHAPES} shapes tuned {FLIP_TUNINGS} times", flips, extra=True))
    found.append(Step("soak", 32, f"20 s of H against W, {main.name}", _bound(peers.soak, main), extra=True))
    return found


def _bound(function, network):
    return lambda lab, records, step, until: function(lab, records, step, network, until)


def _microseconds(tuning, text):
    """A candidate's median if it was timed, else None."""
    found = next((c for c in tuning["candidates"] if c["text"] == text), {})
    return found.get("medianUs") if found.get("status") == "CANDIDATE_STATUS_TIMED" else None


def summary(problem, count, tuning):
    """The part of a tuning that the study keeps."""
    tuning = tuning or {}
    candidates = tuning.get("candidates", [])
    stock = next((c["text"] for c in candidates if c.get("stock")), None)
    having = lambda status: sum(c.get("status") == f"CANDIDATE_STATUS_{status}" for c in candidates)
    return {
        "problem": problem, "count": count, "evidence": tuning.get("evidence"), "winner": tuning.get("winner"), "stock": stock,
        "winner_us": candidates and _microseconds(tuning, tuning.get("winner")) or None,
        "stock_us": candidates and _microseconds(tuning, stock) or None,
        "candidates": len(candidates), "timed": having("TIMED"), "quarantined": having("QUARANTINED"),
        "cut": tuning.get("stopReason") == "STOP_REASON_BUDGET",
    }  # fmt: skip


def published(found):
    """The share of a network's convolutions whose tuning is good enough to be published; found: what `tuned` records."""
    return sum(p["count"] for p in found if p["evidence"] not in UNPUBLISHED) / sum(p["count"] for p in found)


def tune(lab, records, step, network, until):
    """Tunes what is not tuned yet, keeps what was published, and says how much there is to win.

    What an earlier call tuned comes back by its bundle: the database itself is not carried."""
    problems, state, bundle = list(network.problems), lab.work / "state", lab.work / BUNDLE
    trace = lab.work / "trace" / f"{network.name}.jsonl" if network is next(iter(networks().values())) else None
    if trace:
        trace.parent.mkdir(parents=True, exist_ok=True)
    fresh = bundle.exists() and not state.exists()
    cut, failures, instruments = False, [], []

    def unless_failed(act):
        """A command that fails loses none of the other commands' results."""
        try:
            return act()
        except StepFailed as failure:
            failures.append(str(failure))
        except TimeIsUp:
            nonlocal cut
            cut = True
        return None

    # The daemon's calls end before the step does, so that it can be asked for what it has.
    with Daemon(lab, state, until - ENDING_S, trace) as daemon:
        if fresh:
            unless_failed(lambda: daemon.run("import", str(bundle)))
        for part, budget in ((problems[:LARGE], LARGE_BUDGET), (problems[LARGE:], BUDGET)):
            failures += unless_failed(lambda part=part, budget=budget: daemon.tune(part, budget)) or []
        all_tried = not cut
        tunings = {p: unless_failed(lambda p=p: daemon.tuning(p)) for p in problems} if all_tried else {}
        unjudged = [p for p, tuning in tunings.items() if (tuning or {}).get("evidence") in UNPUBLISHED]
        if unjudged:
            unless_failed(lambda: daemon.tune(unjudged, LARGE_BUDGET, "--force"))
        daemon.until = until - ENDING_S / 2
        for p in unjudged if all_tried else problems:
            tunings[p] = unless_failed(lambda p=p: daemon.tuning(p)) or tunings.get(p)
        found = [summary(p, count, tunings.get(p)) for p, count in network.problems.items()]
        instruments = unless_failed(daemon.failed_instruments) or failed_instruments(list(tunings.values()))
        unless_failed(lambda: daemon.run("export", "--no-samples", str(bundle)))
        if trace:
            unless_failed(lambda: keep_samples(lab, daemon, trace))
    if not any(entry["winner"] for entry in found):
        if cut and not failures:
            raise TimeIsUp
        raise StepFailed(f"nothing was tuned: {failures[0] if failures else 'convtuned has no device'}; see {lab.log.name}")
    records.add({
        "kind": "tuned", "step": step, "network": network.name, "problems": found, "failures": failures[:3], "self_check_failed": instruments,
    })  # fmt: skip
    path, current = network.snapshot(lab), state / "snapshot" / "current.snapshot"
    if current.exists() and published(found) > 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(current, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
    if not all_tried:
        raise TimeIsUp
    if published(found) < LEAST_SERVED or not path.exists():
        raise StepFailed(unpublished(found, instruments) or "the daemon published no snapshot")


def keep_samples(lab, daemon, trace):
    """Every sample of the main network's tuning, and how they were taken: recording.bundle and samples.txt."""
    lines = lab.scratch / "tunings.jsonl"
    daemon.run("export", str(lab.work / "recording.bundle"))
    daemon.run("export", str(lines))
    arguments = [lines, *([trace] if trace.exists() else [])]
    with open(lab.work / "samples.txt", "w") as said:
        subprocess.run([sys.executable, pathlib.Path(__file__).parents[1] / "summary.py", *arguments], stdout=said, stderr=lab.log)


def unpublished(found, instruments):
    """Why W cannot be served, in words; empty where nothing of the tunings speaks against it."""
    reasons = [f"{broken_words(instruments)}; see gates"] if instruments else []
    share = published(found)
    if share < LEAST_SERVED:
        kinds = collections.Counter((p["evidence"] or "none").removeprefix("EVIDENCE_").lower() for p in found if p["evidence"] in UNPUBLISHED)
        listed = ", ".join(f"{name} {count}" for name, count in kinds.most_common())
        reasons.append(f"{100 * share:.0f}% of the convolutions have a tuning that may be published (evidence of the others: {listed})")
    return "; ".join(reasons)


def tuned(records):
    """{network: the records of its problems}: of each network the latest on this model of GPU."""
    return {r["network"]: r["problems"] for r in records.of("tuned", gpu=records.gpu)}


def oracle(lab, records, step, until):
    """For problems of most work: the winner against every plan that the oracle finds by itself."""
    known = {r["problem"] for kind in ("oracle", "oracle_failed") for r in records.of(kind, gpu=records.gpu)}
    by_network = [[p for p in found if p["winner_us"]] for found in tuned(records).values()]
    # Networks in turn, most work first in each.
    spread = [found[i] for i in range(ORACLE_SHAPES) for found in by_network if i < len(found)]
    chosen = list({p["problem"]: p for p in spread}.values())[:ORACLE_SHAPES]
    if not chosen:
        raise NotReady("no winners yet: a network's step `tune` comes first")
    left = [p for p in chosen if p["problem"] not in known]
    end, child = until - 1, None
    for i, entry in enumerate(left):
        if child is None:
            child = lab.child("oracle.py", arguments=["--made-up"] if lab.simulated else [])
            child.receive(end)
        request = {k: entry[k] for k in ("problem", "winner", "stock")} | {"seconds": max(0.5, (end - time.time()) / (len(left) - i))}
        if lab.simulated:
            request["us"] = entry["winner_us"]
        try:
            records.add({"kind": "oracle", "step": step, **child.ask(request, end)})
        except StepFailed as failure:
            records.add({"kind": "oracle_failed", "step": step, "problem": entry["problem"], "reason": str(failure)})
            child.close()  # a fault of one plan may have taken the context from all that follow
            child = None
    if child is not None:
        child.close()


def flips(lab, records, step, until):
    """The same shapes in fresh databases, by fresh daemons and workers."""
    problems = list(next(iter(networks().values())).problems)[:FLIP_SHAPES]
    for number in range(len(records.of("flips", card=records.card)), FLIP_TUNINGS):
        state = lab.scratch / "fresh"
        shutil.rmtree(state, ignore_errors=True)
        with Daemon(lab, state, until - ENDING_S) as daemon:
            daemon.tune(problems, LARGE_BUDGET)
            found = {}
            for problem in problems:
                tuning = daemon.tuning(problem)
                if tuning and tuning.get("winner"):
                    times = {c["text"]: c["medianUs"] for c in tuning["candidates"] if c.get("status") == "CANDIDATE_STATUS_TIMED"}
                    found[problem] = {"winner": tuning["winner"], "times": times}
        records.add({"kind": "flips", "step": step, "number": number, "tunings": found})
    shutil.rmtree(lab.scratch / "fresh", ignore_errors=True)
