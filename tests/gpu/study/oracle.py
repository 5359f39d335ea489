"""The oracle: lists a problem's engine configs by itself, times them by CUPTI, and judges a choice on rounds of their own.

It shares nothing with convtune's worker: its own binding of cuDNN, its own
lists, PyTorch's profiler for the times. Each request is a JSON line on standard
input, {"problem", "winner", "stock", "seconds"}; the answer is a JSON line.
Caches: flushed, then the input written, as a network leaves them.
"""

import json
import os
import random
import sys
import time
import traceback

import stats
from problem import candidate_text, parse, parse_candidate

FLUSH_BYTES = 256 << 20  # more than four times an H200's L2
WORKSPACE_BYTES = 4 << 30
SCREEN_ROUNDS, CHOOSE_ROUNDS, JUDGE_ROUNDS = 4, 15, 25
FINALISTS = 6
# A first run that takes so much longer than the fastest ends a plan's part.
HOPELESS = 10
TICK = "erfinv"  # a kernel of a name that nothing else has


class LostEvents(RuntimeError):
    """The profile does not hold what was launched."""


def split(events, launches):
    """Microseconds of each launch, in order; None for one that ran nothing.

    events are (name, start_ns, duration_ns) of one stream. Every launch stands
    between two ticks; what stands between the second of one and the first of the
    next is not timed. A launch's time is from the begin of its first kernel to
    the end of its last."""
    spans, ticks, inside = [], 0, []
    for name, start, duration in sorted(events, key=lambda e: e[1]):
        if TICK not in name:
            if ticks % 2:
                inside.append((start, start + duration))
            continue
        ticks += 1
        if ticks % 2 == 0:
            spans.append((max(end for _, end in inside) - min(start for start, _ in inside)) / 1000 if inside else None)
            inside = []
    if ticks != 2 * launches:
        raise LostEvents(f"{ticks} ticks in the profile, {2 * launches} were launched")
    return spans


def judge(candidates, choice, stock, sample):
    """Who is fastest, and how far the choice is from it; sample(names, rounds) gives {name: [us or None]} of interleaved rounds.

    Three disjoint sets of rounds: one to leave out what is slow, one to choose the
    oracle, one to judge the choice against it."""
    middle = lambda times: stats.median([t for t in times if t]) if any(times) else float("inf")
    screened = {name: middle(times) for name, times in sample(candidates, SCREEN_ROUNDS).items()}
    fixed = [name for name in (choice, stock) if name in screened]
    finalists = list(dict.fromkeys(sorted(screened, key=screened.get)[:FINALISTS] + fixed))
    chosen = {name: middle(times) for name, times in sample(finalists, CHOOSE_ROUNDS).items()}
    best = min(chosen, key=chosen.get)
    judged = sample(list(dict.fromkeys([best, *fixed])), JUDGE_ROUNDS)
    against = lambda name: stats.regret(judged[name], judged[best]) if name in judged else None
    return {"oracle": best, "oracle_us": middle(judged[best]), "regret": against(choice), "stock_regret": against(stock)}


class Gpu:
    """Tensors, flush, ticks and profiler on PyTorch's current device."""

    def __init__(self):
        import torch

        from graph_api import Library

        self.torch = torch
        torch.cuda.init()
        torch.backends.cudnn.version()  # the library that PyTorch has is the one that is asked
        self.library = Library()
        self.handle = self.library.handle(torch.cuda.current_stream().cuda_stream)
        self.flush = torch.ones(FLUSH_BYTES // 4, device="cuda")
        self.ticking = torch.zeros(32, device="cuda")

    def answer(self, problem, winner, stock, seconds):
        from graph_api import CudnnError, Graph, Plan

        torch, end = self.torch, time.monotonic() + seconds
        parsed = parse(problem)
        graph = Graph(self.library, parsed, handle=self.handle)
        listed = graph.configs()
        wanted = [text for text in (winner, stock) if text and text.startswith("graph:")]
        tried = list(dict.fromkeys([*wanted, *listed]))
        tensors = [self._filled(dims) for dims in (parsed.x_dims, parsed.w_dims, parsed.y_dims)]
        # The layer before has just written this tensor; of a transposed convolution it is y.
        written = tensors[0] if parsed.operation == "fwd" else tensors[2]
        plans, built, best = {}, 0, float("inf")
        workspace = None
        for text in tried:
            # A third of the time for plans: where it ends, what is not built is not in the oracle's list.
            if time.monotonic() > end - 2 * seconds / 3 and text not in wanted:
                break
            try:
                plan = Plan(graph, *parse_candidate(text))
                built += 1
                if plan.workspace > WORKSPACE_BYTES:
                    continue
                if workspace is None or workspace.numel() < plan.workspace:
                    workspace = torch.empty(max(plan.workspace, 1 << 20), device="cuda", dtype=torch.uint8)
                plan.keep = workspace
                plan.bind(*(t.data_ptr() for t in tensors), workspace.data_ptr())
                plan.run()
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                marks[0].record()
                plan.run()
                marks[1].record()
                torch.cuda.synchronize()
            except (CudnnError, torch.OutOfMemoryError):
                continue
            took = marks[0].elapsed_time(marks[1])
            best = min(best, took)
            if took < HOPELESS * best or text in wanted:
                plans[text] = plan
        if winner not in plans:
            raise ValueError(f"the winner {winner} does not run")

        def sample(names, rounds):
            sequence = [name for number in range(rounds) for name in (names if number % 2 else names[::-1])]
            spans = split(self._profile([plans[name] for name in sequence], written), len(sequence))
            found = {name: [] for name in names}
            for name, span in zip(sequence, spans):
                found[name].append(span)
            return found

        answer = judge(list(plans), winner, stock, sample)
        return {"problem": problem, "winner": winner, "listed": len(tried), "built": built, "ran": len(plans), **answer}

    def _filled(self, dims):
        size = 1
        for d in dims:
            size *= d
        return self.torch.empty(size, device="cuda", dtype=self.torch.float16).normal_()

    def _profile(self, plans, written):
        """(name, start_ns, duration_ns) of all that ran on the GPU for these plans, one launch each."""
        torch = self.torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for plan in plans:
                self.flush.sum()
                written.mul_(1)
                torch.erfinv(self.ticking, out=self.ticking)
                plan.run()
                torch.erfinv(self.ticking, out=self.ticking)
            torch.cuda.synchronize()
        return [
            (event.name(), event.start_ns(), event.duration_ns())
            for event in profile.profiler.kineto_results.events()
            if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0
        ]


class MadeUp:
    """Nine other plans, the fastest of which takes 1% less than the winner; the stock choice takes 20% more."""

    def answer(self, problem, winner, stock, seconds, us):
        others = {candidate_text(900 + i, {}): us * (0.99 + 0.1 * i) for i in range(9)}
        known = {**others, winner: us, **({stock: 1.2 * us} if stock and stock != winner else {})}
        draw = random.Random(problem).gauss
        sample = lambda names, rounds: {name: [known[name] * draw(1, 0.0005) for _ in range(rounds)] for name in names}
        return {"problem": problem, "winner": winner, "listed": len(known), "built": len(known), "ran": len(known), **judge(list(known), winner, stock, sample)}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)
    gpu = MadeUp() if sys.argv[1:] == ["--made-up"] else Gpu()
    say({"ready": True})
    for line in sys.stdin:
        try:
            say(gpu.answer(**json.loads(line)))
        except Exception as error:  # the next problem may go well
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"[:1000]})


if __name__ == "__main__":
    main()
