"""What the steps of the study work with: programs, processes, folders, and the card."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import time

from gpu import Nvml
from runner import Runner
from tuning import Daemon, library_folders, write_snapshot

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]
PROGRAMS = ("convtuned", "convtune", "convtune-worker", "convtune-make-snapshot")


class NotHere(RuntimeError):
    """Something that the study needs is not on this machine."""


def find_build(build=None):
    """The build folder whose programs run here: `build`, or the first of the usual ones."""
    tried = [pathlib.Path(build)] if build else [REPO / "build-portable", REPO / "build"]
    for folder in tried:
        program = folder / "bin" / "convtune"
        if program.exists() and subprocess.run([program, "--help"], capture_output=True).returncode == 0:
            return folder.resolve()
    raise NotHere(f"convtune runs from none of {', '.join(str(t / 'bin') for t in tried)}: build first, or give --build")


class Lab:
    """The real machine. simulate.py has one that needs no card."""

    simulated = False

    def __init__(self, out, build, python=sys.executable, fork=True, options=None):
        self.out = pathlib.Path(out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.build, self.python = pathlib.Path(build), python
        self.programs, self.library = self.build / "bin", self.build / "lib" / "libconvtune_preload.so"
        self.options = options or {}
        self.nvml = Nvml()
        self.log = open(self.out / "processes.log", "ab")
        folders = library_folders(python)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CONVTUNE_", "LD_PRELOAD"))}
        # The worker must load the cuDNN that PyTorch has: a winner of another version serves nothing.
        self.env["LD_LIBRARY_PATH"] = ":".join(p for p in (folders, self.env.get("LD_LIBRARY_PATH", "")) if p)
        self.runner = Runner(python, self.env, self.log, fork)
        self.daemon = None

    def check(self):
        """Raises NotHere with what is missing for a run on a card."""
        missing = [name for name in PROGRAMS if not (self.programs / name).exists()]
        if missing:
            raise NotHere(f"{', '.join(missing)}: not in {self.programs}")
        if not self.library.exists():
            raise NotHere(f"{self.library} is not there")
        if not self.nvml.available:
            raise NotHere("no GPU with a driver on this machine")
        code = "import torch; assert torch.cuda.is_available(); print(torch.__version__, torch.backends.cudnn.version())"
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, env=self.env)
        if done.returncode != 0:
            raise NotHere(f"{self.python} has no PyTorch that sees the GPU: {done.stderr.strip()[-200:]}")

    def about(self):
        """The conditions of a run: what every record of it stands under."""
        git = lambda *a: subprocess.run(["git", "-C", REPO, *a], capture_output=True, text=True).stdout.strip()
        code = (
            "import torch, json; b = torch.backends.cudnn; print(json.dumps([torch.__version__, torch.version.cuda, "
            "b.version() if torch.cuda.is_available() else None]))"
        )
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, env=self.env)
        torch, cuda, cudnn = json.loads(done.stdout) if done.returncode == 0 else (None, None, None)
        return {
            "simulated": self.simulated, "commit": git("rev-parse", "HEAD") or "unknown",
            "changed_files": len(git("status", "--porcelain").splitlines()),
            "gpu": self.nvml.text("nvmlDeviceGetName") if self.nvml.available else None,
            "driver": self.nvml.text("nvmlSystemGetDriverVersion") if self.nvml.available else None,
            "torch": torch, "cuda": cuda, "cudnn": cudnn, "machine": platform.platform(), "cores": os.cpu_count(),
            "forked": self.runner.fork,
        }  # fmt: skip

    def open_daemon(self, state=None):
        """A Daemon on a state directory; the study's own, kept running between steps, where none is given."""
        if state is not None:
            return Daemon(self.programs, state, self.env, self.worker_options())
        if self.daemon is None:
            self.daemon = Daemon(self.programs, self.out / "state", self.env, self.worker_options()).__enter__()
        return self.daemon

    def worker_options(self):
        # The card is given back soon: network processes want it idle and its memory free.
        return ["--idle-timeout", "1s"]

    def release_card(self):
        """Ends the daemon, so that nothing but what is timed next has a context on the card."""
        if self.daemon is not None:
            self.daemon.close()
            self.daemon = None

    def network(self, spec, env, seconds):
        self.release_card()
        return self.runner.network(spec, env, seconds)

    def referee(self, job, seconds):
        self.release_card()
        return self.runner.referee(job, seconds)

    def snapshot_folder(self, name):
        folder = self.out / "snapshots" / name.replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_snapshot(self, name, environment, choices):
        return write_snapshot(self.programs / "convtune-make-snapshot", self.snapshot_folder(name), environment, choices)

    def preload_env(self, snapshot, policy, allow="", counters=None):
        env = {
            "LD_PRELOAD": str(self.library), "CONVTUNE_SNAPSHOT": str(snapshot), "CONVTUNE_PRELOAD_POLICY": policy,
            "CONVTUNE_PRELOAD_ALLOW": allow,
        }  # fmt: skip
        if counters is not None:
            env["CONVTUNE_PRELOAD_COUNTERS"] = str(counters)
        return env

    def counters_file(self):
        path = self.out / "counters.jsonl"
        path.unlink(missing_ok=True)
        return path

    def read_counters(self, path):
        """The line of the network process; None if it wrote none."""
        end = time.monotonic() + 2
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.02)
        if not path.exists():
            return None
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return max(lines, key=lambda line: line.get("executions", 0)) if lines else None

    def close(self):
        self.release_card()
        self.runner.close()
        self.log.close()
