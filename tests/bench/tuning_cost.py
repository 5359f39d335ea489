"""Where the time of a tuning goes: the simulated GPU's virtual seconds and the host's seconds, by step.

The worker's trace says when each step ended, and the simulated GPU how long it had worked by then.
"""

import bisect
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = 32
STEPS = ("list", "plan", "check", "race", "secondary", "other")


def usage_by_time(path):
    """[(unix_us, busy_ns)] of the one worker that ran."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(int(when), int(busy)) for when, busy in lines]


def busy_at(usage, unix_us):
    place = bisect.bisect_right(usage, (unix_us, sys.maxsize)) - 1
    return usage[place][1] if place >= 0 else 0


def step_of(line):
    if line["kind"] in ("prepared", "check"):
        return {"prepared": "plan", "check": "check"}[line["kind"]]
    if line["kind"] != "sample":
        return "other"
    return "race" if (line["launch"], line["cache_state"]) == ("eager", "input_hot") else "secondary"


def cost_by_step(trace, usage):
    """{step: [GPU seconds, host seconds]} and the GPU seconds of the race's samples themselves."""
    cost = {step: [0.0, 0.0] for step in STEPS}
    sampled = 0.0
    before = None
    for line in trace:
        if before is not None:
            gpu = (busy_at(usage, line["unix_us"]) - busy_at(usage, before["unix_us"])) / 1e9
            host = (line["unix_us"] - before["unix_us"]) / 1e6
            step = step_of(line)
            if line["kind"] == "prepared" and before["kind"] == "problem":
                # Until the first plan was begun, candidates were listed, by cudnnFind on the GPU, too.
                plan = min(host, line["took_us"] / 1e6)
                cost["list"][0] += gpu
                cost["list"][1] += host - plan
                gpu, host = 0.0, plan
            cost[step][0] += gpu
            cost[step][1] += host
        if step_of(line) == "race" and "gpu_us" in line:
            sampled += line["gpu_us"] * line["runs"] / 1e6
        before = line
    return cost, sampled


def measure(folder, binaries, daemon_in, batch=BATCH, most=None):
    """ResNet-50's forward problems, one after the other: all, or the first `most`."""
    trace_path, usage_path = folder / "trace", folder / "usage"
    problems = (ROOT / "deploy" / "examples" / "resnet50.csv").read_text().splitlines()
    list_path = folder / "list.csv"
    list_path.write_text("\n".join([problems[0], *problems[1:][:most]]) + "\n")
    env = {
        "CONVTUNE_TRACE": str(trace_path),
        "SIMGPU_USAGE": str(usage_path),
        "LD_LIBRARY_PATH": str(binaries.parent / "tests" / "fakes" / "nvml"),
    }
    with daemon_in(folder, "--devices", "0", "--worker", binaries / "convtune-worker-sim", env=env) as daemon:
        command = [binaries / "convtune", "tune", "--address", daemon.address, "--file", list_path, "--op", "fwd",
                   "--batch", batch, "--dtype", "f16", "--layout", "nhwc", "--budget", "60s", "--json"]  # fmt: skip
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    trace = [json.loads(line) for line in trace_path.read_text().splitlines()]
    kinds = collections.Counter(line["kind"] for line in trace)
    usage = usage_by_time(usage_path)
    cost, sampled = cost_by_step(trace, usage)
    tunings = kinds["problem"]
    rows = []
    for step, (gpu, host) in cost.items():
        rows.append({"figure": "tuning_gpu_s", "step": step, "problems": tunings, "value": gpu / tunings})
        rows.append({"figure": "tuning_host_s", "step": step, "problems": tunings, "value": host / tunings})
    total = sum(gpu for gpu, _ in cost.values())
    rows.append({"figure": "tuning_gpu_s", "step": "all", "problems": tunings, "value": total / tunings})
    rows.append({"figure": "tuning_gpu_share_sampled", "problems": tunings, "value": sampled / total})
    return rows
