"""Runs network processes and referee processes, and reads what they say."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Grace for a process to end after its own limit.
GRACE_S = 20


class ProcessError(RuntimeError):
    """A process could not be run, or did not answer."""


class Zygote:
    """One forking parent with an environment of its own; see zygote.py."""

    def __init__(self, python, env, log):
        self.process = subprocess.Popen(
            [python, str(HERE / "zygote.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env=env, text=True, cwd=HERE,
        )  # fmt: skip
        self.torch = self._read(120).get("ready")

    def _read(self, seconds):
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise ProcessError(f"the parent of network processes ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return self._read(job["seconds"] + GRACE_S)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Runner:
    """Network processes, forked or started anew, in environments by name.

    base_env is the environment of all; a job's own variables come on top. Those
    in PARENT must be there when the process starts: jobs that differ in them
    have parents of their own."""

    PARENT = ("LD_PRELOAD", "TORCH_CUDNN_V8_API_DISABLED")

    def __init__(self, python=sys.executable, base_env=None, log=None, fork=True):
        self.python, self.fork, self.log = python, fork, log
        self.base_env = {k: v for k, v in (base_env or os.environ).items() if not k.startswith(("CONVTUNE_", "LD_PRELOAD"))}
        self.zygotes = {}

    def network(self, spec, env, seconds):
        """child.run's record. Raises ProcessError with the reason where there is none."""
        parent = {k: env[k] for k in self.PARENT if k in env}
        rest = {k: v for k, v in env.items() if k not in self.PARENT}
        job = {"spec": spec, "env": rest, "seconds": seconds}
        if self.fork:
            key = tuple(sorted(parent.items()))
            if key not in self.zygotes:
                self.zygotes[key] = Zygote(self.python, {**self.base_env, **parent}, self.log)
            try:
                answer = self.zygotes[key].run(job)
            except ProcessError:
                del self.zygotes[key]
                raise
        else:
            answer = self._once(job, parent)
        if "error" in answer:
            raise ProcessError(answer["error"])
        return answer["result"]

    def _once(self, job, parent):
        command = [self.python, str(HERE / "zygote.py"), "--once"]
        try:
            done = subprocess.run(
                command, input=json.dumps(job) + "\n", env={**self.base_env, **parent}, stdout=subprocess.PIPE,
                stderr=self.log, text=True, timeout=job["seconds"] + GRACE_S, cwd=HERE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": f"not done within {job['seconds']:.0f} s"}
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"error": f"the process ended with {done.returncode}"}

    def referee(self, job, seconds):
        """The referee's answers, one for each problem that it came to."""
        started = time.monotonic()
        job = {**job, "seconds": seconds}
        process = subprocess.Popen(
            [self.python, str(HERE / "referee.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=self.base_env, text=True, cwd=HERE,
        )  # fmt: skip
        timer = threading.Timer(seconds + GRACE_S, process.kill)
        timer.start()
        try:
            output, _ = process.communicate(json.dumps(job))
        finally:
            timer.cancel()
        answers = [json.loads(line) for line in output.splitlines() if line.endswith("}")]
        if process.returncode != 0 and not answers:
            raise ProcessError(f"the referee ended with {process.returncode} after {time.monotonic() - started:.0f} s")
        return answers

    def close(self):
        for zygote in self.zygotes.values():
            zygote.close()
        self.zygotes.clear()
