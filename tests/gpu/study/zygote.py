"""Forks one process for each job, from a parent that has imported PyTorch and nothing more.

The parent never touches CUDA, so each child makes a context, a cuDNN handle and
caches of its own, as a freshly started program does; what is saved is the
seconds of importing. Jobs come as JSON lines on standard input:
  {"spec": {...}, "env": {...}, "seconds": N}
and each is answered by one line, {"result": ...} or {"error": TEXT}. A child
that outlives its seconds is killed. `--once` runs one job without a fork.
"""

import json
import os
import select
import signal
import sys
import time
import traceback

LEAVING_S = 15


def _leave(code):
    """Ends the process through the C library, so that what was registered with atexit is run: counters are written then."""
    import ctypes

    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)


def _answer(job):
    import child

    try:
        return {"result": child.run(job["spec"])}
    except Exception as error:  # what the framework raises is a result of the run
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


def _wait(pid):
    """The child's wait status; one that has answered and does not end is killed after a while."""
    end = time.monotonic() + LEAVING_S
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _run_forked(job):
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        os.environ.update(job.get("env", {}))
        data = json.dumps(_answer(job)).encode()
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(data)
        _leave(0)
    os.close(writable)
    chunks, end = [], time.monotonic() + job["seconds"]
    killed = False
    while True:
        ready, _, _ = select.select([readable], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            killed = True
            break
        chunk = os.read(readable, 1 << 16)
        if not chunk:
            break
        chunks.append(chunk)
    os.close(readable)
    status = _wait(pid)
    if killed:
        return {"error": f"not done within {job['seconds']:.0f} s"}
    try:
        return json.loads(b"".join(chunks))
    except ValueError:
        return {"error": f"the process ended by itself: wait status {status}"}


def main():
    # What a program prints is not an answer: answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1:] == ["--once"]:
        job = json.loads(sys.stdin.readline())
        os.environ.update(job.get("env", {}))
        print(json.dumps(_answer(job)), file=answers, flush=True)
        _leave(0)
    import torch  # noqa: F401  so that children need not
    import nets  # noqa: F401

    print(json.dumps({"ready": torch.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_run_forked(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
