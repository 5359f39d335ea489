"""The convtune program."""

import json
import os
import subprocess


class Result:
    """How a command ended."""

    def __init__(self, args, completed):
        self.args = args
        self.code = completed.returncode
        self.out = completed.stdout.decode(errors="replace")
        self.err = completed.stderr.decode(errors="replace")

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"{' '.join(map(str, self.args))}: exit {self.code}\n{self.out[-3000:]}\n{self.err[-3000:]}"


class Cli:
    """Runs commands against one daemon; result codes are the caller's to judge."""

    def __init__(self, binary, address=None, env=None):
        self._binary = str(binary)
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("CONVTUNE_")}
        self._env.update(env or {})
        if address:
            self._env["CONVTUNE_ADDRESS"] = address

    def __call__(self, *args, stdin=b"", timeout=300):
        command = [self._binary] + [a if isinstance(a, bytes) else str(a) for a in args]
        return Result(
            command, subprocess.run(command, input=stdin, capture_output=True, env=self._env, timeout=timeout)
        )

    def start(self, *args):
        """Runs a command beside what follows; what it returns waits for the result."""
        command = [self._binary, *map(str, args)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env)

        def result():
            out, err = process.communicate(timeout=60)
            return Result(command, subprocess.CompletedProcess(command, process.returncode, out, err))

        return result

    def ok(self, *args, **kwargs):
        result = self(*args, **kwargs)
        assert result.code == 0, result
        return result
