"""What the study found, as JSON lines, and which of its steps are done.

A step's records and the line that ends it are appended in one write and synced,
so a step that was interrupted leaves nothing, or a cut line that reading skips.
Every record carries the number of the run whose conditions (commit, GPU,
driver, cuDNN, date) the run's own record holds.
"""

import json
import os
import pathlib
import time


class Records:
    """The file records.jsonl of one folder. One process writes at a time."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.path = self.folder / "records.jsonl"
        self.all = []
        self.done = {}
        self.failures = {}
        if self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                try:
                    self._take(json.loads(line))
                except ValueError:
                    continue
        self.run = sum(r["kind"] == "run" for r in self.all)

    def _take(self, record):
        if record["kind"] == "done":
            self.done[record["step"]] = record
        elif record["kind"] == "failed":
            self.failures.setdefault(record["step"], []).append(record)
        self.all.append(record)

    def _append(self, records):
        cut = self.path.exists() and self.path.stat().st_size > 0 and self._last_byte() != b"\n"
        text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records)
        with open(self.path, "ab") as file:
            file.write(("\n" if cut else "").encode() + text.encode())
            file.flush()
            os.fsync(file.fileno())
        for record in records:
            self._take(record)

    def _last_byte(self):
        with open(self.path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)

    def begin(self, about):
        """Starts a run; about says under which conditions. Makes the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run += 1
        self._append([{"kind": "run", "run": self.run, "at": _now(), **about}])

    def finish(self, step, records, seconds):
        """A step is done, with what it found."""
        marked = [{"run": self.run, "step": step, **record} for record in records]
        self._append([*marked, {"kind": "done", "step": step, "run": self.run, "at": _now(), "seconds": round(seconds, 3)}])

    def fail(self, step, reason, seconds):
        self._append([{"kind": "failed", "step": step, "run": self.run, "at": _now(), "seconds": round(seconds, 3), "reason": reason}])

    def of(self, kind, **fields):
        """Records of a kind that belong to steps that are done and whose fields have these values."""
        return [
            r for r in self.all
            if r["kind"] == kind and (kind == "run" or r.get("step") in self.done) and all(r.get(k) == v for k, v in fields.items())
        ]  # fmt: skip

    def seconds_of(self, prefix):
        """How long the done steps took whose names begin so."""
        return [d["seconds"] for name, d in self.done.items() if name.startswith(prefix)]


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
