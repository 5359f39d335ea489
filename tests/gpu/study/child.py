"""One process of the study: a network under one configuration, from its first convolution to its steady state.

run(spec) gives a record. A spec is JSON:
  network, batch, dtype (f16, f32), layout (nhwc, nchw)
  train      also the backward pass and an SGD step, with autocast where dtype is f16
  benchmark  torch.backends.cudnn.benchmark; limit: benchmark_limit, null for the default
  graph      also a CUDA graph of the forward pass, replayed
  compile    torch.compile
  seconds    of steady iterations, of each kind of launch
  profile    also kernel times by CUPTI
  outputs    also a sample of outputs and gradients, for comparison
or, instead of a network, problems: texts of 2-D convolutions that PyTorch runs as its settings say.
On a CPU (device "cpu") the same code runs without the card's parts: that is how
it is tested where there is none.
"""

import contextlib
import time

TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
OUTPUT_SAMPLE = 256
PROFILED = 3
SETTLED = 20  # executions; the interposer reports a plan after 16


class Clock:
    """Times iterations: by CUDA events around each one, or by the host's clock on a CPU."""

    def __init__(self, torch, device):
        self.torch, self.cuda = torch, device == "cuda"

    def synchronize(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def iterations(self, step, seconds, least=10, most=500):
        """Microseconds of each iteration: about `seconds` of them, queued back to back."""
        self.synchronize()
        start = time.perf_counter()
        step()
        self.synchronize()
        one = max(time.perf_counter() - start, 1e-6)
        count = max(least, min(most, int(seconds / one)))
        if not self.cuda:
            times = []
            for _ in range(3):
                start = time.perf_counter()
                step()
                times.append((time.perf_counter() - start) * 1e6)
            return times
        marks = [self.torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        self.synchronize()
        return [before.elapsed_time(after) * 1000 for before, after in zip(marks, marks[1:])]


def _first_convolution(module, torch):
    kinds = (torch.nn.modules.conv._ConvNd,)
    return next((part for part in module.modules() if isinstance(part, kinds)), None)


def _setup(torch, spec):
    cudnn = torch.backends.cudnn
    cudnn.benchmark = spec["benchmark"]
    if spec.get("limit") is not None:
        cudnn.benchmark_limit = spec["limit"]
    torch.manual_seed(0)


def _step(torch, spec, module, inputs, device):
    """One iteration as a function; it returns what is compared, before any update."""
    dtype = getattr(torch, TYPES[spec["dtype"]])
    if not spec.get("train"):

        def infer():
            with torch.no_grad():
                return module(*inputs)

        return infer
    module.train()
    # Steps of size 0: the work of a step, and weights that stay comparable.
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0, momentum=0.9)

    def train():
        optimizer.zero_grad(set_to_none=True)
        autocast = torch.autocast(device, dtype=dtype) if spec["dtype"] != "f32" else contextlib.nullcontext()
        with autocast:
            output = module(*inputs)
        output.float().square().mean().backward()
        optimizer.step()
        return output

    return train


def _sampled(tensor):
    flat = tensor.detach().float().flatten()
    step = max(1, flat.numel() // OUTPUT_SAMPLE)
    return {"largest": float(flat.abs().max()), "values": [float(v) for v in flat[::step][:OUTPUT_SAMPLE]]}


def _graph(torch, step):
    """A captured graph's replay; warmed on a side stream, as capture wants."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _profile(torch, step):
    """Kernel time of one iteration, all and that of convolution operators, in microseconds."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    kernels = convolutions = calls = 0.0
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels += event.time_range.elapsed_us()
        elif event.name.startswith(("aten::cudnn_convolution", "aten::convolution_backward")):
            convolutions += event.device_time_total
            calls += 1
    return {"kernel_us": kernels / PROFILED, "conv_us": convolutions / PROFILED, "conv_calls": calls / PROFILED}


def _problem_call(torch, problem, device):
    """A function that runs one convolution through PyTorch's own dispatch."""
    dtype = getattr(torch, TYPES[problem.dtype])
    format_ = torch.channels_last if problem.nhwc else torch.contiguous_format
    make = lambda dims: torch.randn(dims, device=device, dtype=dtype).to(memory_format=format_)
    x, w = make(problem.x_dims), make(problem.w_dims)
    geometry = (list(problem.stride), list(problem.pad_low), list(problem.dilation))
    if problem.operation == "fwd":
        return lambda: torch.nn.functional.conv2d(x, w, None, *geometry, problem.groups)
    y = make(problem.y_dims)
    mask = [problem.operation == "bwd_data", problem.operation == "bwd_filter", False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(y, x, w, None, *geometry, False, [0, 0], problem.groups, mask)


def run_problems(torch, spec, device):
    """Runs each of a list of 2-D problems often enough for the interposer to report PyTorch's plan."""
    from problem import parse

    clock = Clock(torch, device)
    started, errors = time.perf_counter(), {}
    for text in spec["problems"]:
        try:
            call = _problem_call(torch, parse(text), device)
            with torch.no_grad():
                for _ in range(SETTLED):
                    call()
            clock.synchronize()
        except RuntimeError as error:
            errors[text] = str(error)[:300]
    return {"first_ms": (time.perf_counter() - started) * 1000, "errors": errors}


def run(spec):
    """The record of one process. Raises what the framework raises."""
    import torch

    if "problems" in spec:
        _setup(torch, spec)
        return run_problems(torch, spec, spec.get("device", "cuda"))
    import nets

    device = spec.get("device", "cuda")
    dtype = getattr(torch, TYPES[spec["dtype"]])
    clock = Clock(torch, device)
    _setup(torch, spec)
    stored = torch.float32 if spec.get("train") else dtype  # autocast keeps weights in f32
    module = nets.build(spec["network"], device, stored, spec["layout"])
    inputs = nets.inputs(spec["network"], spec["batch"], device, stored, spec["layout"])
    result = {"torch": torch.__version__}
    if device == "cuda":
        # The context, and what PyTorch itself loads with its first kernels, are
        # not what is compared.
        torch.zeros(1024, device=device).add_(1).sum().item()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    step = _step(torch, spec, module, inputs, device)
    if spec.get("compile"):
        compiled = torch.compile(module)
        step = _step(torch, spec, compiled, inputs, device)

    begun = {}
    first = _first_convolution(module, torch)
    if first is not None and not spec.get("compile"):

        def note_time(*_):  # a hook's value would replace the input
            begun.setdefault("at", time.perf_counter())

        first.register_forward_pre_hook(note_time)
    started = time.perf_counter()
    output = step()
    clock.synchronize()
    ended = time.perf_counter()
    result["first_iteration_ms"] = (ended - started) * 1000
    # From the first convolution on; with torch.compile, whose code runs no hooks, of the whole iteration.
    result["first_ms"] = (ended - begun.get("at", started)) * 1000
    if spec.get("outputs"):
        result["outputs"] = {"output": _sampled(output)}
        for name, parameter in list(module.named_parameters())[:: max(1, len(list(module.parameters())) // 8)]:
            if parameter.grad is not None:
                result["outputs"][name] = _sampled(parameter.grad)
    del output
    result["eager_us"] = [round(t, 2) for t in clock.iterations(step, spec["seconds"])]
    if device == "cuda":
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
        result["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        if spec.get("profile"):
            result.update(_profile(torch, step))
        if spec.get("graph"):
            replay = _graph(torch, step)
            result["graph_us"] = [round(t, 2) for t in clock.iterations(replay, spec["seconds"])]
    return result
