"""Plans of whole models for a GPU that a profile stands in for: until a fresh process holds them, and until all are tried."""

import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESNET50 = ROOT / "deploy" / "examples" / "resnet50.csv"
NETWORKS = ROOT / "tests" / "data" / "workloads" / "networks.csv"
MODELS = ("resnet50", "mobilenet_v2", "efficientnet_b0")
PROFILE = ROOT / "deploy" / "profiles" / "nvidia-h200.json"
BATCH = 8
ROUNDS = 7


def problem_text(row):
    kept = [part for part in row["problem"].split(",") if part not in ("nchw", "nhwc", "f16", "i8")]
    return re.sub("x=[0-9]+x", f"x={BATCH}x", ",".join(kept), count=1) + ",nhwc,f16"


def models():
    """Name to problems."""
    rows = {"resnet50": list(csv.DictReader(RESNET50.open()))}
    for row in csv.DictReader(NETWORKS.open()):
        if row["network"] in MODELS[1:]:
            rows.setdefault(row["network"], []).append(row)
    return {name: list(dict.fromkeys(map(problem_text, found))) for name, found in rows.items()}


def seconds_of(command):
    start = time.monotonic()
    subprocess.run([str(c) for c in command], check=True)
    return time.monotonic() - start


def ready(model, command, folder, address, convtune, problems):
    """Fresh processes in turn: plans known in advance, our answers, and all that a search without memory builds."""
    get = [convtune, "get", "--address", address, "--on-miss", "heuristic", "--json", "--file", problems]
    answers = json.loads(subprocess.run([str(c) for c in get], check=True, stdout=subprocess.PIPE, text=True).stdout)
    known = folder / f"{model}.plans"
    known.write_text("".join(f"{row['problemText']}\t{row['answer']['winner']['text']}\n" for row in answers["results"]))
    commands = {
        "known": [*command, "--mode", "known", "--problems", known],
        "resolve": [*command, "--mode", "resolve", "--problems", problems, "--address", address],
        "all": [*command, "--mode", "all", "--problems", problems],
    }
    times = {mode: [] for mode in commands}
    for turn in range(ROUNDS + 1):
        for mode, line in commands.items():
            took = seconds_of(line)
            if turn > 0:  # the first one reads cuDNN from the disk
                times[mode].append(took)
    value, baseline = statistics.median(times["resolve"]), statistics.median(times["known"])
    row = {"model": model, "problems": len(answers["results"]), "value": value}
    return [
        {"figure": "ready_plans_s", **row, "baseline": baseline, "ratio": value / baseline},
        {"figure": "ready_plans_without_memory_s", **row, "baseline": statistics.median(times["all"]),
         "ratio": value / statistics.median(times["all"])},
    ]  # fmt: skip


def measure(folder, bin_folder, daemon_in):
    rows = []
    bench, convtune = bin_folder / "convtune-bench-plans", bin_folder / "convtune"
    if not bench.exists():
        print("left out: built without cuDNN", file=sys.stderr)
        return rows
    command = [bench, "--profile", PROFILE]
    with daemon_in(folder, "--devices", "none", "--profile", "nvidia-h200", "--log-level", "warn") as daemon:
        for model, texts in models().items():
            problems = folder / f"{model}.txt"
            problems.write_text("".join(f"{text}\n" for text in texts))
            rows += ready(model, command, folder, daemon.address, convtune, problems)
            tune = [*command, "--mode", "tune", "--problems", problems]
            text = subprocess.run([str(c) for c in tune], check=True, stdout=subprocess.PIPE, text=True).stdout
            rows.append({**json.loads(text), "model": model})
    return rows
