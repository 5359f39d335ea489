"""What the study found, as JSON lines, and which of its steps are done.

Each append is one write and one sync, so a kill leaves whole records or a cut
line, which reading skips. A record names its step, its GPU and that one's model:
GPUs are never pooled as one, and what is done for one model is not for another.
"""

import json
import os
import pathlib
import time


class Records:
    """The file records.jsonl of one folder. One process writes at a time."""

    def __init__(self, work):
        self.path = pathlib.Path(work) / "records.jsonl"
        data = self.path.read_bytes() if self.path.exists() else b""
        self.all, self.card, self.gpu = read(data), None, None
        self._cut = data[-1:] not in (b"", b"\n")  # a kill cut the last line: it stays one of its own

    def begin(self, conditions):
        """Under which conditions what follows was found; kept where they differ from the last ones."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.card, self.gpu = conditions["card"], conditions.get("gpu")
        known = [r for r in self.all if r["kind"] == "conditions"]
        if not known or any(known[-1].get(k) != v for k, v in conditions.items()):
            self.add({"kind": "conditions", **conditions})

    def add(self, *records):
        stamped = [{"at": round(time.time(), 3), "card": self.card, "gpu": self.gpu, **record} for record in records]
        text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in stamped)
        with open(self.path, "ab") as file:
            file.write((b"\n" if self._cut else b"") + text.encode())
            file.flush()
            os.fsync(file.fileno())
        self._cut = False
        self.all += stamped

    def done(self, gpu=None):
        """Names of the steps that ended on a GPU of this model; None: of any."""
        return {r["step"] for r in self.all if r["kind"] == "done" and gpu in (None, r.get("gpu"))}

    def of(self, kind, **fields):
        return [r for r in self.all if r["kind"] == kind and all(r.get(k) == v for k, v in fields.items())]


def read(data):
    """The whole lines of a records.jsonl, each once."""
    found = []
    for line in dict.fromkeys(data.split(b"\n")):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "kind" in record:
            found.append(record)
    return found
