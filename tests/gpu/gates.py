"""Gates: what a machine and our programs must show on it before the verdict's minutes are spent.

    python3 gates.py NAME --kit DIR --work DIR [--simulate WORKER]

runs one gate as a process of its own. It prints what it saw, one line, and ends
with 0; where it fails, one line says why, and it ends with 1. `go` runs them in
the order of GATES. --simulate tries all but the GPU, with WORKER in the worker's place.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
STUDY = HERE / "study"
sys.path.append(str(STUDY))

import lab  # noqa: E402  what W gets, and how the study reads a self-check

PROBLEM = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1x1,nhwc,f16"  # ResNet-50's, and convolve()'s below
DAEMON_S = 100
READ_S = 20  # for the page cache
READERS, READ_BYTES = 8, 8 << 20
QUESTION_S, SANITIZER_S = 15, 100
SMALL = [f"fwd,x=2x16x{size}x{size},w=32x16x3x3,pad=1x1,{form}" for size, form in ((8, "nhwc,f16"), (9, "nchw,f32"), (12, "nhwc,bf16"))]
# Of PyTorch's folders, those that a convolution needs, in the order of need.
NEEDED_FIRST = ("cudnn", "torch/lib", "cublas", "cudart", "nvrtc", "cupti", "nvJitLink")


Failed = lab.StepFailed  # a gate is shut; the message says why


@dataclasses.dataclass(frozen=True)
class Gate:
    name: str
    limit_s: int
    run: Callable  # run(Place) gives the words of its line; raises Failed
    next: str  # what is to be done where it fails
    once: bool = True  # it passes for a kit, driver and cuDNN, and is not asked again; else it is of this machine
    fatal: bool = False  # without it nothing else can be had
    later: bool = False  # of a second call: the first has better to do


class Place:
    """Where a gate runs: the kit, the folder of results, and how programs of ours are started."""

    def __init__(self, kit, work, simulate=None):
        self.kit, self.work, self.simulate = pathlib.Path(kit).resolve(), pathlib.Path(work).resolve(), simulate is not None
        self.scratch = self.work / "tmp"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.worker = pathlib.Path(simulate).resolve() if simulate else self.kit / "bin" / "convtune-worker"
        self.questions = self.worker.with_name("convtune-gpu-questions" + ("-sim" if simulate else ""))
        self.library = self.kit / "lib" / "libconvtune_preload.so"
        self.env, self.worker_env = lab.environments()
        card = self.work / "card.json"
        self.gpu = json.loads(card.read_text())["gpu"] if card.exists() else ""
        self.ignore_clock(False)

    @functools.cached_property
    def log(self):
        (self.work / "logs").mkdir(exist_ok=True)
        return open(self.work / "logs" / "gate-convtuned.log", "ab")

    def daemon(self, state, seconds, **how):
        trace = self.work / "trace" / "gates.jsonl"
        trace.parent.mkdir(exist_ok=True)
        return lab.Daemon(self, state, time.time() + seconds, trace, **how)

    def ignore_clock(self, now):
        """Has the worker sample whatever its clock, from here on and in the study, if it has to `now` or had to before."""
        self.worker_env |= lab.clock_env(self.work, self.gpu, now)

    def python(self, code, seconds, **env):
        """Standard output of a Python process that runs `code`; Failed with its last words otherwise."""
        return self.said([sys.executable, "-c", code], seconds, {**self.env, **env})

    def said(self, command, seconds, env=None, good=(0,)):
        try:
            done = subprocess.run(list(map(str, command)), env=env or self.env, capture_output=True, text=True, timeout=seconds)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{pathlib.Path(command[0]).name}: {error}") from None
        if done.returncode not in good:
            words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1][-400:]
            raise Failed(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {words}")
        return done.stdout


def torch_folder():
    """Without importing it; None where it is not."""
    spec = importlib.util.find_spec("torch")
    return pathlib.Path(spec.submodule_search_locations[0]) if spec else None


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cudnn_wheel():
    return version_of("nvidia-cudnn-cu13") or version_of("nvidia-cudnn-cu12")


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def glibc():
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1]


def versions(place):
    needs = json.loads((place.kit / "kit.json").read_text())
    torch = version_of("torch")
    cudnn = cudnn_wheel()
    if numbers(glibc()) < numbers(needs["glibc"]):
        raise Failed(f"glibc {glibc()} is here, {needs['glibc']} is needed")
    if not place.simulate and (torch is None or cudnn is None):
        raise Failed(f"{sys.executable}: torch {torch}, cuDNN's wheel {cudnn}")
    commit = (place.kit / "COMMIT").read_text().strip()
    return f"Python {platform.python_version()}, glibc {glibc()}, torch {torch}, cuDNN {cudnn} (built with {needs['cudnn']}), commit {commit[:12]}"


def find_smi():
    folders = os.environ.get("PATH", "") + ":/usr/local/nvidia/bin:/usr/bin"
    return shutil.which("nvidia-smi", path=folders)


def card(place):
    """Which GPU it is, its clocks and who else is on it."""
    found = lab.MadeUpCard() if place.simulate else lab.find_card()
    cudnn = cudnn_wheel()
    (place.work / "card.json").write_text(json.dumps({"gpu": found.name, "driver": found.driver, "cudnn": cudnn}))
    program = find_smi()
    if program is None:
        if place.simulate:
            return "simulated: no nvidia-smi"
        raise Failed("nvidia-smi is not in PATH, nor in /usr/local/nvidia/bin")
    (place.work / "nvidia-smi.txt").write_text(place.said([program, "-q"], 20))
    fields = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,compute_mode,mig.mode.current"
    line = place.said([program, f"--query-gpu={fields}", "--format=csv,noheader"], 10).splitlines()[0]
    name, driver, clock, most, memory, watts, degrees, mode, mig = (part.strip() for part in line.split(","))
    others = place.said([program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], 10).strip().splitlines()
    text = f"{name}, driver {driver}, SM {clock} of {most}, memory {memory}, {watts}, {degrees} C, compute mode {mode}, MIG {mig}"
    if others:
        raise Failed(f"{text}: {len(others)} other processes compute on it")
    return text


def ask(place, name):
    """One of the four questions, asked without anything of ours but two kernels."""
    if place.simulate and not place.questions.exists():
        return "simulated: not asked"
    return place.said([place.questions, name, place.kit / "server/worker/device/kernels.ptx"], QUESTION_S, place.worker_env).strip()


def delays(place):
    try:
        return ask(place, "delays")
    except Failed as failure:
        if "are OFF" not in str(failure):
            raise
        place.ignore_clock(True)
        raise Failed(f"{failure}; from here on the worker samples in spite of it, and results are marked") from None


def files(place):
    """Reads the libraries once, so that no later step waits for a cold disk."""
    torch = torch_folder()
    found = [path for folder in lab.library_folders() for path in folder.glob("*.so*")]
    found += list((torch / "lib").glob("*.so*")) if torch else []
    found = sorted(
        (path for path in found if path.is_file()),
        key=lambda path: next((i for i, part in enumerate(NEEDED_FIRST) if part in "/".join(path.parts[-3:])), len(NEEDED_FIRST)),
    )
    found = [*(place.kit / "bin").iterdir(), *(place.kit / "lib").iterdir(), *found]
    started, left, read, lock = time.monotonic(), iter(found), [0, 0], threading.Lock()

    def reader():
        buffer = bytearray(READ_BYTES)
        while True:
            with lock:
                path = next(left, None)
            if path is None:
                return
            with open(path, "rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    if time.monotonic() - started > READ_S:
                        return
                    with lock:
                        read[0] += count
            with lock:
                read[1] += 1

    threads = [threading.Thread(target=reader) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    text = f"{read[1]} of {len(found)} libraries, {read[0] / 1e6:.0f} MB in {took:.1f} s, {read[0] / 1e6 / max(took, 1e-3):.0f} MB/s"
    if read[1] < len(found):
        raise Failed(f"{text}: the rest is read when it is needed")
    return text


def probe(place):
    """The worker runs here and sees a GPU; what it says is kept."""
    said = place.said([place.worker, "--probe", "--devices", "all"], 60, place.worker_env)
    (place.work / "probe.jsonl").write_text(said)
    if not said.strip():
        raise Failed("no GPU with a driver on this machine")
    first = json.loads(said.splitlines()[0])
    if first.get("error"):
        raise Failed(first["error"])
    (place.work / "device-properties.json").write_text(place.said([place.worker, "--dump-profile", "--device", "gpu:0"], 30, place.worker_env))
    return first["environment"]


# PROBLEM as PyTorch runs it. On a CPU, for a rehearsal, no cuDNN is called.
CONVOLVE = """
import torch
def convolve():
    device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(0)
    make = lambda *dims: torch.randn(dims, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    x, w = make(32, 64, 56, 56), make(64, 64, 3, 3)
    return lambda: torch.nn.functional.conv2d(x, w, padding=1)
"""
CONVOLVE_ONCE = CONVOLVE + """
with torch.no_grad():
    convolve()()
if torch.cuda.is_available():
    torch.cuda.synchronize()
"""


def broken_words(documents):
    """Names the instruments that the worker's self-check found broken, for the end of a line."""
    words = lab.broken_words(lab.failed_instruments(documents))
    return f"; {words}" if words else ""


def served(place):
    """Tunes one problem, and has one PyTorch convolution served by what the daemon published."""
    state = place.scratch / "gate-state"
    shutil.rmtree(state, ignore_errors=True)
    with place.daemon(state, DAEMON_S) as daemon:
        if failures := daemon.tune([PROBLEM], "2s"):
            raise Failed(f"{failures[0]}{broken_words(daemon.run('environments'))}")
        tuning = daemon.tuning(PROBLEM) or {}
        documents = [daemon.run("environments"), tuning]
    if "clock" in lab.failed_instruments(documents) and lab.IGNORE_CLOCK not in place.worker_env:
        place.ignore_clock(True)
        return served(place)
    broken = broken_words(documents) + (", and samples are taken in spite of it" if lab.IGNORE_CLOCK in place.worker_env else "")
    (place.work / "gate-tuning.json").write_text(json.dumps(tuning))
    evidence, candidates = tuning.get("evidence", "none").removeprefix("EVIDENCE_").lower(), tuning.get("candidates", [])
    quarantined = sum(c.get("status") == "CANDIDATE_STATUS_QUARANTINED" for c in candidates)
    text = f"evidence {evidence}, {len(candidates)} candidates, {quarantined} quarantined, winner {tuning.get('winner')}{broken}"
    # The daemon's last act was the snapshot.
    if not (state / "snapshot" / "current.snapshot").exists():
        raise Failed(f"{text}: nothing was published")
    if torch_folder() is None and place.simulate:
        return f"simulated, without torch: {text}"
    counters = place.scratch / "counters.jsonl"
    counters.unlink(missing_ok=True)
    place.python(CONVOLVE_ONCE, 60, **lab.served_env(place.library, state / "snapshot", counters))
    most = {"executions": 0, "executions_served": 0, **lab.counted(counters, "executions")}
    text = f"{most['executions_served']} of {most['executions']} served; {text}"
    if place.simulate:
        return f"simulated: the interposer is loaded beside torch; {text}"
    if most["executions"] != 1 or most["executions_served"] != 1:
        raise Failed(f"{text}; it missed {most.get('missed')}")
    return text


# The work of a peer of the verdict: a child of a process that has PyTorch, a captured graph, and CUPTI.
FORK = CONVOLVE + """
import json, os, sys
def child():
    run = convolve()
    activities = [torch.profiler.ProfilerActivity.CUDA if torch.cuda.is_available() else torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad():
        eager = replay = run
        if torch.cuda.is_available():
            expected = eager()
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                run()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = run()
            replay = graph.replay
            replay()
            torch.cuda.synchronize()
            assert torch.equal(captured, expected), "the replay's output differs"
        with torch.profiler.profile(activities=activities) as profile:
            replay()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    events = profile.profiler.kineto_results.events()
    names = sorted({e.name() for e in events if e.duration_ns() > 0 and
                    (not torch.cuda.is_available() or e.device_type() == torch.autograd.DeviceType.CUDA)})
    assert names, "the profile of a replay holds no kernel"
    print(f"{len(names)} kernels seen, one of them {max(names, key=len)[:60]}", flush=True)
assert not torch.cuda.is_initialized()
pid = os.fork()
if pid == 0:
    try:
        child()
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def one_process(place):
    """Fork, CUDA graph and CUPTI in one process."""
    if torch_folder() is None and place.simulate:
        return "simulated, without torch"
    said = place.python(FORK, 60).strip()
    return f"simulated, on the CPU: {said}" if place.simulate else said


def api_calls(log):
    """Of cuDNN's own log: (names of the functions called, heuristic modes asked by number, whether mode B was answered by A)."""
    functions = set(re.findall(r"function (\w+)\(\) called", log))
    modes = {int(mode) for mode in re.findall(r"ENGINEHEUR_MODE \(200\).*?\[0\]: type=int; val=(\d+);", log, re.S)}
    return functions, modes, "redirecting to CUDNN_HEUR_MODE_A" in log


MODE_B = 1
LEGACY = re.compile(r"cudnn(Get|Find)?Convolution(Forward|BackwardData|BackwardFilter)")


def apis(place):
    """PyTorch's own variables lead to the legacy API and to heuristic mode B, by what cuDNN logs."""
    if torch_folder() is None and place.simulate:
        return "simulated, without torch"

    def logged(variable):
        path = place.scratch / f"cudnn-{variable}.log"
        path.unlink(missing_ok=True)
        place.python(CONVOLVE_ONCE, 60, CUDNN_LOGLEVEL_DBG="3", CUDNN_LOGDEST_DBG=str(path), **{variable: "1"})
        return api_calls(path.read_text(errors="replace") if path.exists() else "")

    with concurrent.futures.ThreadPoolExecutor() as both:
        (functions, _, _), (_, modes, redirected) = both.map(logged, ("TORCH_CUDNN_V8_API_DISABLED", "TORCH_CUDNN_USE_HEURISTIC_MODE_B"))
    if place.simulate:
        return "simulated: on the CPU cuDNN is not called"
    legacy = sorted(f for f in functions if LEGACY.match(f))
    if not legacy or MODE_B not in modes:
        raise Failed(f"legacy functions called: {', '.join(legacy) or 'none'}; heuristic modes asked: {sorted(modes) or 'none'}")
    return f"{', '.join(legacy)}; mode B asked{', and answered by mode A, as cuDNN says' if redirected else ''}"


def referee(place):
    """The study's referee, which shares nothing with our worker, times one shape."""
    tuning = json.loads((place.work / "gate-tuning.json").read_text())
    stock = next((c["text"] for c in tuning["candidates"] if c.get("stock")), None)
    request = {"problem": PROBLEM, "winner": tuning["winner"], "stock": stock, "seconds": 6}
    if place.simulate:
        request["us"] = 10.0
    command = [sys.executable, str(STUDY / "oracle.py"), *(["--made-up"] if place.simulate else [])]
    done = subprocess.run(command, input=json.dumps(request) + "\n", env=place.env, capture_output=True, text=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    last = answers[-1] if answers else {"error": done.stderr.strip()[-300:]}
    if "oracle" not in last:
        raise Failed(last.get("error", str(last)))
    regret = "not timed" if last["regret"] is None else f"{last['regret'] * 100:+.1f}%"
    text = f"{last['ran']} of {last['listed']} plans ran, the fastest {last['oracle']} {last['oracle_us']:.1f} us, our winner {regret}"
    if last["regret"] is None or abs(last["regret"]) > 0.5:
        raise Failed(f"{text}: two timers disagree about this shape")
    return text


def sanitized(place, program, tool):
    """(errors, what is to be said) of one tool of compute-sanitizer over a tuning of SMALL."""
    log, worker = place.work / "logs" / f"{tool}.log", place.scratch / f"{tool}-worker"
    # A probe or a watch is none of its business. The worker's self-check spoils a capture, which is an error of a call.
    worker.write_text(f"""#!/bin/sh
case "$*" in *--fd*) exec '{program}' --tool {tool} --target-processes all --require-cuda-init no --report-api-errors no --log-file '{log}' '{place.worker}' "$@";; esac
exec '{place.worker}' "$@"
""")
    worker.chmod(0o755)
    log.unlink(missing_ok=True)
    seconds = SANITIZER_S - 15
    # The worker is slow, and its times are of no use.
    slow = place.daemon(place.scratch / f"{tool}-state", seconds, worker=worker, options=("--hang-timeout", f"{seconds}s"))
    slow.env[lab.IGNORE_CLOCK] = "1"
    try:
        with slow as daemon:
            for problem in SMALL:
                if failures := daemon.tune([problem], "3s"):
                    return 1, f"{tool}: {failures[0]}"
    except Failed as failure:
        return 1, f"{tool}: {failure}"
    except lab.TimeIsUp:
        return 1, f"{tool}: not done within {seconds} s"
    said = log.read_text(errors="replace") if log.exists() else ""
    found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", said)
    kernels = sorted(set(re.findall(r"\bat .*?([\w:]+)(?:<[^(]*)?\(", said)))[:3]
    if found is None:
        return 1, f"{tool} said no summary"
    return int(found[1]), f"{tool} {found[1]}" + (f" ({', '.join(kernels)})" if kernels and found[1] != "0" else "")


def sanitizer(place):
    """compute-sanitizer over one tuning of three small shapes: it looks at memory, and nothing that it slows down is a time."""
    program = shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if program is None:
        return "skipped: compute-sanitizer is not in PATH, nor in /usr/local/cuda/bin"
    with concurrent.futures.ThreadPoolExecutor() as tools:
        found = list(tools.map(lambda tool: sanitized(place, program, tool), ("memcheck", "racecheck", "initcheck")))
    text = "errors: " + ", ".join(words for _, words in found)
    if any(errors for errors, _ in found):
        raise Failed(text)
    return text


GATES = (
    Gate("card", 30, card, "end the other processes, or put the driver's folder into PATH", once=False),
    Gate("replay", QUESTION_S, lambda place: ask(place, "replay"), "times of replays hold the host's: read the networks' table, whose replays are PyTorch's own"),
    Gate("spoilt", QUESTION_S, lambda place: ask(place, "spoilt"), "expect captures to be turned off, or errors behind them in logs/"),
    Gate("caches", QUESTION_S, lambda place: ask(place, "caches"), "times of short candidates are of warm caches, and none is to be trusted: without copies (server/worker/gpu_problem.cc, Copies) each run has its flush"),
    Gate("delays", QUESTION_S, delays, "nothing: the tables say that times are of a clock that is off"),
    Gate("versions", 20, versions, "run go with the Python that has PyTorch and its wheels; build the kit on an older distribution", once=False),
    Gate("files", 40, files, "nothing: steps that read from the disk take longer", once=False),
    Gate("probe", 80, probe, "read logs/probe.log; LD_DEBUG=libs bin/convtune-worker --probe --devices all says which library it is", once=False, fatal=True),
    Gate("served", 120, served, "read logs/gate-convtuned.log and gate-tuning.json (its conditions tell of the self-check); W cannot count until this is mended"),
    Gate("process", 80, one_process, "the peers of the verdict need each of the three: see which one the line names"),
    Gate("apis", 80, apis, "without mode B, peer B is H again: read the verdict as the best of H, B10 and B0"),
    Gate("referee", 80, referee, "read gate-tuning.json: regret and oracle are not to be believed until this is mended"),
    Gate("sanitizer", SANITIZER_S, sanitizer, "read logs/memcheck.log, racecheck.log and initcheck.log: the kernels' names say whose they are", later=True),
)


def main():
    parser = argparse.ArgumentParser(prog="gates.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[gate.name for gate in GATES])
    parser.add_argument("--kit", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--simulate", type=pathlib.Path, metavar="WORKER")
    parsed = parser.parse_args()
    gate = next(g for g in GATES if g.name == parsed.name)
    try:
        print(gate.run(Place(parsed.kit, parsed.work, parsed.simulate)))
    except Failed as failure:
        print(failure)
        return 1
    except lab.TimeIsUp:
        print("not done in its time")
        return 1
    except Exception as error:  # whatever it is, it is this gate's answer
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
