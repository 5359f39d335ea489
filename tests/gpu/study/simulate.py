"""A lab without a card: the real daemon and database over the fake worker, and made-up processes.

What a network or the referee would have measured is drawn from what the fake
worker's tuning says, with noise of a fixed seed, so that a simulated study runs
every step, every record and every report, and its result is known beforehand.
Nothing of it says anything of a real card, and its records say `simulated`.
"""

import hashlib
import json
import random
import time

import choices
from lab import Lab, NotHere
from tuning import summary

CONTEXT_US = 500.0  # of an iteration that is not convolution
STATE_FACTORS = {"cold": 1.1, "input_hot": 1.0, "hot": 0.9}


def _random(*parts):
    return random.Random(hashlib.sha256(repr(parts).encode()).digest())


class SimulatedLab(Lab):
    simulated = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.snapshots = {}  # folder: {problem: candidate}
        self.known = {}  # problem: its tuning, once there is one
        self.draws = 0

    def check(self):
        if not (self.programs / "convtune-fake-worker").exists():
            raise NotHere(f"convtune-fake-worker: not in {self.programs}")

    def worker_options(self):
        return ["--worker", str(self.programs / "convtune-fake-worker")]

    def write_snapshot(self, name, environment, chosen):
        folder = super().write_snapshot(name, environment, chosen)
        self.snapshots[str(folder)] = {p: c["text"] for p, c in chosen.items()}
        return folder

    def tunings(self, problems):
        for problem in problems:
            if problem not in self.known:
                daemon = self.open_daemon()
                stored = daemon.explain(problem)
                if stored is None:  # shapes that only fresh tunings had
                    daemon.tune([problem], "10s", time.monotonic() + 60)
                    stored = daemon.explain(problem)
                self.known[problem] = summary(problem, stored)
        return {problem: self.known[problem] for problem in problems}

    def _noise(self):
        self.draws += 1
        return _random("noise", self.draws).gauss(1.0, 0.002)

    def _chosen(self, spec, env, tunings):
        """Who runs in a network: the snapshot's candidate, or what PyTorch itself would take."""
        served = self.snapshots.get(env.get("CONVTUNE_SNAPSHOT"), {}) if env.get("CONVTUNE_PRELOAD_POLICY") != "observe" else {}
        published = env.get("CONVTUNE_SNAPSHOT", "").endswith("_W") and env.get("CONVTUNE_PRELOAD_POLICY") != "observe"
        taken = {}
        for problem, tuning in tunings.items():
            timed = sorted(choices.timed(tuning), key=lambda c: c["rank"])
            default = choices.stock(tuning) or timed[0]
            if published:
                allowed = [c for c in timed if env["CONVTUNE_PRELOAD_ALLOW"] or c["workspace"] <= default["workspace"] and c["notes"] & ~default["notes"] == 0]
                taken[problem] = min([*allowed, default], key=lambda c: c["median_us"])
            elif problem in served:
                taken[problem] = choices.candidates(tuning)[served[problem]]
            elif spec.get("benchmark"):
                most = timed if spec.get("limit") == 0 else timed[:10]
                taken[problem] = min(most, key=lambda c: c["median_us"])
            else:
                taken[problem] = default
        return taken

    def network(self, spec, env, seconds):
        import workloads

        if "problems" in spec:
            self._observe(spec, env)
            return {"first_ms": 1.0, "errors": {}}
        case = workloads.Case(*(spec[k] for k in ("network", "batch", "dtype", "layout", "train", "compile")))
        counts = workloads.problems_of(case)
        tunings = self.tunings(counts)
        taken = self._chosen(spec, env, tunings)
        self.release_card()
        conv = sum(counts[p] * c["median_us"] for p, c in taken.items()) * STATE_FACTORS["input_hot"]
        searching = spec.get("benchmark") and env.get("CONVTUNE_PRELOAD_POLICY") not in ("reorder", "truncate")
        plans = sum(len(choices.timed(t)) if searching else 1 for t in tunings.values())
        draw = lambda: [(conv + CONTEXT_US) * self._noise() for _ in range(10)]
        first = 5.0 * plans + (conv + CONTEXT_US) / 1000
        result = {
            "torch": "simulated", "first_ms": first, "first_iteration_ms": first + 1, "eager_us": draw(),
            "peak_bytes": 1 << 30, "peak_reserved_bytes": 1 << 30, "kernel_us": conv + CONTEXT_US, "conv_us": conv * self._noise(),
            "conv_calls": sum(counts.values()),
        }  # fmt: skip
        if spec.get("graph"):
            result["graph_us"] = draw()
        if spec.get("outputs"):
            result["outputs"] = {"output": {"largest": 1.0, "values": [0.5 * self._noise() for _ in range(8)]}}
        if "CONVTUNE_PRELOAD_COUNTERS" in env:
            served = 0 if env["CONVTUNE_PRELOAD_POLICY"] == "observe" else sum(counts.values())
            line = {
                "policy": env["CONVTUNE_PRELOAD_POLICY"], "problems": len(counts), "executions": sum(counts.values()),
                "executions_served": served, "plans": plans, "plans_served": plans, "plans_own": 0, "missed": {},
            }  # fmt: skip
            with open(env["CONVTUNE_PRELOAD_COUNTERS"], "a") as file:
                file.write(json.dumps(line) + "\n")
        return result

    def _observe(self, spec, env):
        """Sends the datagrams that the interposer would have sent."""
        import datagrams

        tunings = self.tunings(spec["problems"])
        taken = self._chosen({**spec, "benchmark": True}, {}, tunings)
        datagrams.send(env["CONVTUNE_SNAPSHOT"], {p: c["text"] for p, c in taken.items()})

    def referee(self, job, seconds):
        problems = [e if isinstance(e, str) else e["problem"] for e in job["problems"]]
        tunings = self.tunings(problems)
        self.release_card()
        answers = []
        for entry in job["problems"]:
            problem = entry if isinstance(entry, str) else entry["problem"]
            tuning = tunings[problem]
            if job["do"] == "choices":
                listed = sorted(choices.timed(tuning), key=lambda c: c["rank"])
                say = lambda c: {"candidate": c["text"], "workspace": c["workspace"]}
                first = choices.stock(tuning) or listed[0]
                answers.append({
                    "kind": "choices", "problem": problem, "a": say(first), "b": say(listed[1]), "instant": say(first), "get_v7": None,
                    "cudnn": "9.19.0",
                })  # fmt: skip
                continue
            known = choices.candidates(tuning)
            samples = {
                state: {
                    t: [known[t]["median_us"] * STATE_FACTORS[state] * self._noise() for _ in range(job["rounds"])]
                    for t in entry["candidates"]
                }
                for state in job["states"]
            }  # fmt: skip
            answers.append({"kind": "referee", "problem": problem, "samples": samples, "errors": {}, "launches": 0})
        return answers
