"""Third part: unmodified PyTorch under the interposer: first iterations, steady time, memory, shares, outputs."""

import time

import part_networks
import workloads
from runner import ProcessError
from steps import Step

ROUNDS = 10
POLICIES = ("stock", "observe", "reorder", "truncate")
CONFIGS = tuple((benchmark, policy) for benchmark in (False, True) for policy in POLICIES)


def steps(options):
    """A round of each case before a second of any."""
    made = [_tune(case, options.get("budget", "2s")) for case in workloads.SERVING_CASES]
    return made + [_round(case, number) for number in range(ROUNDS) for case in workloads.SERVING_CASES]


def _tune(case, budget):
    def run(lab, records, until):
        return part_networks.tune_case(lab, case, budget, until)

    return Step(f"serving/{case.name}/tune", 90, run)


def taking_part(number):
    shift = number % len(CONFIGS)
    return CONFIGS[shift:] + CONFIGS[:shift]


def _round(case, number):
    def run(lab, records, until):
        found = []
        snapshot = lab.snapshot_folder(f"{case.name}/W")
        for benchmark, policy in taking_part(number):
            record = {"kind": "serving", "case": case.name, "benchmark": benchmark, "policy": policy, "round": number}
            env = {} if policy == "stock" else lab.preload_env(snapshot, policy)
            spec = {"benchmark": benchmark, "outputs": number == 0}
            if until - time.monotonic() < part_networks.LEAST_S:
                return [], False
            try:
                record |= part_networks.run_network(lab, case, spec, env, part_networks.seconds_of(until))
            except ProcessError as error:
                if time.monotonic() >= until - 1:
                    return [], False
                record |= {"kind": "serving_error", "error": str(error)}
            found.append(record)
        return found, True

    return Step(f"serving/{case.name}/round/{number}", 90, run, needs=(f"serving/{case.name}/tune",))
