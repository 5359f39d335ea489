"""A convtuned of the study's own: tuned through the command line, read as JSON."""

import json
import os
import pathlib
import subprocess
import tempfile
import time

CACHE_STATES = {"cold": "CACHE_STATE_COLD", "input_hot": "CACHE_STATE_INPUT_HOT", "hot": "CACHE_STATE_HOT"}
# Problems of one command: so few that a deadline is noticed in time.
CHUNK = 8


class TuningError(RuntimeError):
    """The daemon or the command line did not do what was asked."""


class Daemon:
    """convtuned on a state directory, with one GPU; a context manager."""

    def __init__(self, programs, state, env, extra=()):
        self.programs, self.state = pathlib.Path(programs), pathlib.Path(state)
        self.env, self.extra = env, list(extra)
        self.process = None

    def __enter__(self):
        self.state.mkdir(parents=True, exist_ok=True)
        self.folder = tempfile.TemporaryDirectory(prefix="ct-")  # a socket's path is short
        self.address = f"unix:{self.folder.name}/s"
        command = [
            self.programs / "convtuned", "--state-dir", self.state, "--listen", self.address, "--devices", "0",
            "--auto-promote", *self.extra,
        ]  # fmt: skip
        with open(self.state / "convtuned.log", "ab") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        end = time.monotonic() + 60
        while self.run("environments", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise TuningError(f"convtuned does not start; see {self.state / 'convtuned.log'}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None
        self.folder.cleanup()

    def run(self, *arguments, check=True, input=None, seconds=600):
        command = [str(self.programs / "convtune"), *map(str, arguments), "--address", self.address]
        try:
            done = subprocess.run(command, env=self.env, input=input, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TuningError(f"convtune {arguments[0]}: not done within {seconds:.0f} s") from None
        if check and done.returncode not in (0, 3):
            raise TuningError(f"convtune {arguments[0]}: exit code {done.returncode}: {done.stderr[-500:]}")
        return done

    def environment(self):
        """The environment of the card, as `convtune environments` has it. Raises TuningError where there is none."""
        for environment in json.loads(self.run("environments", "--json").stdout).get("environments", []):
            if environment.get("current"):
                return environment
        raise TuningError(f"convtuned has no device; see {self.state / 'convtuned.log'}")

    def tune(self, problems, budget, until, api="any", memory_budget=None):
        """Tunes what has no tuning yet. (seconds that it took, problems that are left because of `until`).

        A problem for which no candidate ran has no tuning afterwards, and no error here."""
        seconds, left = 0.0, list(problems)
        while left and time.monotonic() < until:
            chunk, left = left[:CHUNK], left[CHUNK:]
            options = ["--budget", budget, "--api", api, "--json", "--file", "-"]
            options += ["--memory-budget", memory_budget] if memory_budget else []
            started = time.monotonic()
            done = self.run("tune", *options, input="\n".join(chunk) + "\n", seconds=max(5.0, until + 15 - started), check=False)
            # With 1 it says that some problems have no answer; the others have.
            if done.returncode not in (0, 1, 3) or '"jobs"' not in done.stdout:
                raise TuningError(f"convtune tune: exit code {done.returncode}: {done.stderr[-500:]}")
            seconds += time.monotonic() - started
        return seconds, left

    def explain(self, problem):
        """The tuning of a problem with all its candidates; None if there is none."""
        done = self.run("explain", problem, "--json")
        return json.loads(done.stdout).get("tuning") if done.returncode == 0 else None

    def winners(self, problems, cache=None, api="graph"):
        """{problem: winner or None} of an API ("any": of both), ranked by a cache state."""
        options = ["--api", api, "--json", "--file", "-"]
        options += ["--cache", cache.replace("_", "-")] if cache else []
        done = self.run("get", *options, input="\n".join(problems) + "\n")
        results = json.loads(done.stdout)["results"]
        return {problem: result.get("answer", {}).get("winner") for problem, result in zip(problems, results)}

    @property
    def snapshot(self):
        return self.state / "snapshot"


def _number(value):
    return float(value) if value is not None else 0.0


def summary(problem, tuning):
    """What the study keeps of a tuning: one flat record."""
    elapsed = tuning.get("elapsed", "0s")
    return {
        "kind": "tuning", "problem": problem, "evidence": tuning.get("evidence"),
        "elapsed_s": float(elapsed.rstrip("s")), "stop_reason": tuning.get("stopReason"), "rounds": tuning.get("rounds", 0),
        "cache_state": tuning.get("cacheState"), "incomplete": tuning.get("incompleteReason", ""),
        "marks": tuning.get("conditions", {}).get("marks", []), "winner": tuning.get("winner", ""),
        "candidates": [candidate(c, tuning.get("cacheState")) for c in tuning.get("candidates", [])],
    }  # fmt: skip


def candidate(c, ranked_by=None):
    """A candidate of the API's JSON as the study keeps it; times in microseconds by cache state.

    ranked_by: the cache state that the tuning's own median was taken in, if it says so."""
    states = {name: number for number, name in CACHE_STATES.items()}
    times = {
        states[t["cacheState"]]: t["medianUs"] for t in c.get("otherTimes", [])
        if t.get("cacheState") in states and t.get("launch") in (None, "LAUNCH_MODE_EAGER")
    }  # fmt: skip
    if ranked_by in states and c.get("medianUs"):
        times[states[ranked_by]] = c["medianUs"]
    replays = {
        states[t["cacheState"]]: t["medianUs"] for t in c.get("otherTimes", [])
        if t.get("cacheState") in states and t.get("launch") == "LAUNCH_MODE_GRAPH_CAPTURE"
    }  # fmt: skip
    return {
        "text": c["text"], "timed": c.get("status") == "CANDIDATE_STATUS_TIMED", "median_us": _number(c.get("medianUs")),
        "times": times, "replays": replays, "workspace": int(c.get("workspaceBytes", 0)), "notes": notes_mask(c),
        "rank": c.get("heuristicRank", 0), "find_us": _number(c.get("findUs")), "stock": c.get("stock", False),
        "error": c.get("error"),
    }  # fmt: skip


NOTES = (
    "TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT", "NONDETERMINISTIC", "WINOGRAD",
    "WINOGRAD_TILE_4X4", "WINOGRAD_TILE_6X6", "WINOGRAD_TILE_13X13", "STRICT_NAN_PROP",
)  # fmt: skip


def notes_mask(c):
    """Numerical notes as a snapshot has them: the bit of note n of the API is 1 << n."""
    return sum(1 << (NOTES.index(note.removeprefix("NUMERICAL_NOTE_")) + 1) for note in c.get("numericalNotes", []))


def write_snapshot(program, folder, environment, choices):
    """A snapshot in which each problem has one candidate: {problem: {"text", "notes", "workspace"}}."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["release\t1"]
    for problem, choice in choices.items():
        field = f"candidate={choice['text']};notes={choice['notes']};workspace={choice['workspace']};time=1"
        lines.append("\t".join(["choice", environment, "stable", problem, field]))
    done = subprocess.run(
        [str(program), str(folder / "current.snapshot")], input="\n".join(lines) + "\n", text=True, capture_output=True
    )
    if done.returncode != 0:
        raise TuningError(f"convtune-make-snapshot: {done.stderr[-500:]}")
    return folder


def library_folders(python):
    """Folders of the cuDNN, cuBLAS and NVRTC wheels that a Python's PyTorch loads: for LD_LIBRARY_PATH."""
    code = (
        "import importlib.util as u, pathlib\n"
        "spec = u.find_spec('nvidia')\n"
        "roots = list(spec.submodule_search_locations) if spec else []\n"
        "print(':'.join(str(p) for r in roots for p in pathlib.Path(r).glob('*/lib') if p.is_dir()))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    return done.stdout.strip()
