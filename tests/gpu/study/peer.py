"""One peer: a process that stays, with a network under one setting of PyTorch and a captured CUDA graph of it.

It answers JSON lines with JSON lines; what each request does is the docstring
of the method of its name. How PyTorch chooses is set by the process's
environment and by the request `load`. It ends when its standard input does. On
device "cpu" the same code runs without the GPU's parts: that is how it is
tested where there is none. With --made-up no PyTorch is loaded, and the numbers
are those that `load` brings.
"""

import ctypes
import json
import math
import os
import random
import signal
import sys
import time
import traceback


class TorchPeer:
    def __init__(self):
        import torch  # the process's longest single act: its end is told at once

        self.torch = torch

    def load(self, network, batch, device="cuda", benchmark=False, limit=None, **_):
        """Builds the network on the device. The context and what PyTorch loads with its first kernels are not what is compared."""
        import nets

        torch = self.torch
        self.cuda = device == "cuda"
        torch.backends.cudnn.benchmark = benchmark
        if limit is not None:
            torch.backends.cudnn.benchmark_limit = limit
            if self.cuda and torch._C._cuda_get_cudnn_benchmark_limit() != limit:
                raise RuntimeError(f"this PyTorch does not take benchmark_limit = {limit}")
        dtype = torch.float16 if self.cuda else torch.float32
        self.module = nets.build(network, device, dtype)
        self.inputs = nets.inputs(network, batch, device, dtype)
        answer = {"torch": torch.__version__}
        if self.cuda:
            torch.zeros(1024, device=device).add_(1).sum().item()
            answer["cudnn"] = torch.backends.cudnn.version()
            answer["uuid"] = str(getattr(torch.cuda.get_device_properties(0), "uuid", "unknown"))
        self._synchronize()
        return answer

    def _synchronize(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def _step(self):
        with self.torch.no_grad():
            return self.module(*self.inputs)

    def first(self):
        """The first iteration: all of it, and from its first convolution on; peak memory as PyTorch counts it."""
        torch, begun = self.torch, {}
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        convolution = next(m for m in self.module.modules() if isinstance(m, torch.nn.modules.conv._ConvNd))
        hook = convolution.register_forward_pre_hook(lambda *_: begun.setdefault("at", time.perf_counter()) and None)
        started = time.perf_counter()
        self.output = self._step()
        self._synchronize()
        ended = time.perf_counter()
        hook.remove()
        answer = {"first_ms": (ended - begun["at"]) * 1e3, "first_iteration_ms": (ended - started) * 1e3, "ended": time.monotonic()}
        if self.cuda:
            answer["peak_bytes"] = torch.cuda.max_memory_allocated()
            answer["reserved_bytes"] = torch.cuda.max_memory_reserved()
        return answer

    def capture(self):
        """Captures one iteration. Eager ones come first, on a side stream, as a capture wants it."""
        torch = self.torch
        if not self.cuda:
            self.replay_once = self._step
            return {}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.output = self._step()
        self.replay_once = graph.replay
        graph.replay()
        self._synchronize()
        return {}

    def replay(self, seconds):
        """Median time of a replay, of about so many seconds of them, back to back behind two that are not timed."""
        if not self.cuda:
            started = time.perf_counter()
            self.replay_once()
            return {"us": (time.perf_counter() - started) * 1e6, "count": 1}
        torch = self.torch
        self.replay_once()
        torch.cuda.synchronize()
        started = time.perf_counter()
        self.replay_once()
        torch.cuda.synchronize()
        count = max(3, min(2000, int(seconds / max(1e-6, time.perf_counter() - started))))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.replay_once()
            mark.record()
        torch.cuda.synchronize()
        times = sorted(a.elapsed_time(b) * 1e3 for a, b in zip(marks, marks[1:]))
        return {"us": round((times[(count - 1) // 2] + times[count // 2]) / 2, 3), "count": count}

    def modes(self, problems):
        """For how many of the convolutions mode B is mode INSTANT, which PyTorch asks without it: {problem: [same list, same first]}."""
        import graph_api
        import problem

        library = graph_api.Library()  # the one that PyTorch has
        handle = library.handle()
        return {"modes": {text: graph_api.modes_agree(library, problem.parse(text), "instant", "b", handle) for text in problems}}

    def save(self, path):
        """Writes the output, for the others to compare theirs with."""
        self.torch.save(self.output.detach().float().cpu(), path)
        return {}

    def compare(self, path):
        """How far this peer's output is from a saved one: the norm of the difference over the norm; None if that is no number."""
        torch = self.torch
        reference, mine = torch.load(path).double(), self.output.detach().cpu().double()
        error = ((mine - reference).norm() / reference.norm()).item()
        return {"relative_error": error if math.isfinite(error) else None}


class MadeUpPeer:
    """Its times are drawn around the one that it was told, so the study's result is known beforehand."""

    def load(self, made_up, seed, **_):
        self.known, self.random = made_up, random.Random(seed)
        return {"torch": "made up"}

    def first(self):
        ms = self.known["first_ms"] * self.random.gauss(1, 0.005)
        return {"first_ms": ms, "first_iteration_ms": ms + 1, "ended": time.monotonic(), "peak_bytes": 1 << 30, "reserved_bytes": 1 << 30}

    def capture(self):
        return {}

    def replay(self, seconds):
        return {"us": self.known["us"] * self.random.gauss(1, 0.002), "count": 1}

    def modes(self, problems):
        return {"modes": {text: [self.known["modes"]] * 2 for text in problems}}

    def save(self, path):
        return {}

    def compare(self, path):
        return {"relative_error": self.known.get("error", 0.0)}

    def close(self):
        """The counters that the interposer writes when a program exits."""
        if "CONVTUNE_PRELOAD_COUNTERS" in os.environ:
            with open(os.environ["CONVTUNE_PRELOAD_COUNTERS"], "a") as file:
                file.write(json.dumps({key: self.known["served"] for key in ("captured", "captured_served", "executions_served")}) + "\n")


def main():
    # The end of a step is told to its whole group. A peer's own end is its input's: then its counters are written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Programs may print anything: answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)
    peer = MadeUpPeer() if sys.argv[1:] == ["--made-up"] else TorchPeer()
    say({"imported": time.monotonic()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(getattr(peer, request.pop("do"))(**request))
        except Exception as error:  # what the framework raises is the reason
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"[:1000]})
    if hasattr(peer, "close"):
        peer.close()
    # Through the C library, so that the interposer's counters are written, and past Python's own taking down of CUDA.
    sys.stderr.flush()
    ctypes.CDLL(None).exit(0)


if __name__ == "__main__":
    main()
