"""Times candidates by CUPTI's kernel records, through PyTorch's profiler: the referee that is not convtune's timer.

A job on standard input, one JSON object:
  {"do": "time", "problems": [{"problem": TEXT, "candidates": [TEXT...]}], "rounds": N, "states": ["cold"...],
   "memory_bytes": N, "seconds": N}
  {"do": "choices", "problems": [TEXT...]}
The answers on standard output, one JSON line for each problem. Needs a card and
PyTorch; runs in a process of its own, so that another run of it is an
independent one.
"""

import json
import sys
import time

import kernels
from graph_api import CudnnError, Graph, Library, Plan
from legacy_api import LegacyConvolution
from problem import parse, parse_candidate

STATES = ("cold", "input_hot", "hot")
FLUSH_BYTES = 256 << 20  # more than four times an H200's L2


class Card:
    """Tensors, the flush, the ticks and the profiler on PyTorch's current device."""

    def __init__(self):
        import torch

        self.torch = torch
        torch.cuda.init()
        self.stream = torch.cuda.current_stream()
        self.library = Library()
        self.handle = self.library.handle(self.stream.cuda_stream)
        self.flush_buffer = torch.ones(FLUSH_BYTES // 4, device="cuda")
        self.tick_tensor = torch.zeros(32, device="cuda")

    def tensors(self, problem):
        """x, w and y: random normal; x and y, which a ReLU has passed over, with half of them cut to zero."""
        torch = self.torch
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[problem.dtype]
        generator = torch.Generator(device="cuda").manual_seed(1)
        made = []
        for dims in (problem.x_dims, problem.w_dims, problem.y_dims):
            count = 1
            for size in dims:
                count *= size
            made.append(torch.empty(count, device="cuda", dtype=dtype).normal_(generator=generator))
        made[0].clamp_(min=0)
        made[2].clamp_(min=0)
        return made

    def tick(self):
        self.torch.erfinv(self.tick_tensor, out=self.tick_tensor)

    def prime(self, state, tensors, plan, inputs):
        if state == "hot":
            plan.run()
            return
        self.flush_buffer.sum()
        if state == "input_hot":
            inputs.mul_(1)

    def profile(self, launch):
        """(name, start_ns, duration_ns) of all that ran on the card while launch() did."""
        torch = self.torch
        activity = torch.profiler.ProfilerActivity.CUDA
        with torch.profiler.profile(activities=[activity]) as profile:
            launch()
            torch.cuda.synchronize()
        events = []
        for event in profile.profiler.kineto_results.events():
            if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0:
                events.append((event.name(), event.start_ns(), event.duration_ns()))
        return events


def make_plans(card, problem, candidates, memory_bytes):
    """{text: plan}, {text: why not}."""
    graph = Graph(card.library, problem, handle=card.handle)
    legacy = None
    plans, errors = {}, {}
    for text in candidates:
        try:
            kind, first, second = parse_candidate(text)
            if kind == "legacy":
                legacy = legacy or LegacyConvolution(card.library, problem, card.handle)
                plan = legacy.plan(first, second)
            else:
                plan = Plan(graph, first, second)
            if plan.workspace > memory_bytes:
                raise CudnnError(f"workspace of {plan.workspace} bytes")
            plans[text] = plan
        except CudnnError as error:
            errors[text] = str(error)
    return plans, errors


def time_problem(card, text, candidates, rounds, states, memory_bytes, deadline):
    """The answer for one problem: {"samples": {state: {candidate: [us or None]}}, ...}."""
    problem = parse(text)
    plans, errors = make_plans(card, problem, candidates, memory_bytes)
    tensors = card.tensors(problem)
    # What the layer before (in a backward pass: behind) has just written.
    inputs = tensors[0] if problem.operation == "fwd" else tensors[2]
    workspace = card.torch.empty(max([p.workspace for p in plans.values()] + [256]), device="cuda", dtype=card.torch.uint8)
    for name, plan in list(plans.items()):
        try:
            plan.bind(*(t.data_ptr() for t in tensors), workspace.data_ptr())
            plan.run()
            plan.run()
        except CudnnError as error:
            errors[name] = str(error)
            del plans[name]
    card.torch.cuda.synchronize()
    names, samples, launched = list(plans), {}, 0
    for state in states:
        samples[state] = {name: [] for name in names}
        if not names:
            continue
        begin = 0
        while begin < rounds and time.monotonic() < deadline:
            # Profiles of some rounds each: one of all would hold every event in memory.
            end = min(rounds, begin + max(1, 2000 // len(names)))
            sequence = [names[i] for r in range(begin, end) for i in kernels.order(len(names), r)]

            def launch():
                for name in sequence:
                    card.prime(state, tensors, plans[name], inputs)
                    card.tick()
                    plans[name].run()
                    card.tick()

            for name, spent in zip(sequence, kernels.split(card.profile(launch), len(sequence))):
                samples[state][name].append(round(spent[0], 3) if spent else None)
            launched += len(sequence)
            begin = end
    return {"kind": "referee", "problem": text, "samples": samples, "errors": errors, "launches": launched}


def list_choices(card, text):
    """What each heuristic mode and cudnnGet_v7 would run."""
    problem = parse(text)
    graph = Graph(card.library, problem, handle=card.handle)
    found = {"kind": "choices", "problem": text, "cudnn": card.library.version}
    for mode in ("a", "b", "instant"):
        first = graph.first_that_builds(mode)
        found[mode] = {"candidate": first[0], "workspace": first[1]} if first else None
    try:
        algorithm, math = LegacyConvolution(card.library, problem, card.handle).get_v7()
        found["get_v7"] = {"candidate": f"legacy:algo{algorithm},math{math}"}
    except CudnnError as error:
        found["get_v7"], found["get_v7_error"] = None, str(error)
    return found


def main():
    job = json.load(sys.stdin)
    card = Card()
    deadline = time.monotonic() + job.get("seconds", 3600)
    for entry in job["problems"]:
        if time.monotonic() > deadline:
            break
        text = entry if isinstance(entry, str) else entry["problem"]
        try:
            if job["do"] == "choices":
                answer = list_choices(card, text)
            else:
                answer = time_problem(
                    card, text, entry["candidates"], job["rounds"], job["states"], job["memory_bytes"], deadline
                )  # fmt: skip
        except (CudnnError, kernels.LostEvents, ValueError, card.torch.OutOfMemoryError) as error:
            answer = {"kind": "referee_error", "problem": text, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, separators=(",", ":")), flush=True)
        card.torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
