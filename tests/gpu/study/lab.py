"""The lab that the steps of the study work in: the kit's programs, the daemon, helper processes, and the GPU."""

import ctypes
import importlib.util
import json
import os
import pathlib
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid as uuidlib

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]
PROGRAMS = ("convtuned", "convtune", "convtune-worker")
# The worker measures though its self-check does not trust the clock; the tunings are INCOMPLETE, with the reason NO_CLOCK.
IGNORE_CLOCK = "CONVTUNE_MEASURE_DESPITE_SELF_CHECK"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
NOT_FOUND = 3  # convtune's exit code


class NotHere(RuntimeError):
    """Something that the study needs is not on this machine."""


class NoGpu(NotHere):
    pass


class StepFailed(RuntimeError):
    """A step cannot be done, for a reason that trying again at once does not mend."""


class NotReady(RuntimeError):
    """Another step brings what this one needs, and has not brought it."""


class TimeIsUp(RuntimeError):
    """The step's deadline came."""


def die_with_parent():
    """For a child, between fork and exec: it ends when the step's process does, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def clock_env(work, gpu, ignore=False):
    """The variable for the worker's environment, if a gate found the clock of this model of GPU to be off; ignore: it did now."""
    path = pathlib.Path(work) / "ignore-clock"
    if ignore:
        path.write_text(gpu)
    return {IGNORE_CLOCK: "1"} if path.exists() and path.read_text() == gpu else {}


def find_kit(kit=None, simulate=False):
    """A folder with bin/ and lib/: `kit`, or the source tree's build folder whose programs run here."""
    tried = [pathlib.Path(kit)] if kit else [REPO / "build-portable", REPO / "build"]
    needed = PROGRAMS[:2] if simulate else PROGRAMS
    for folder in tried:
        if all((folder / "bin" / name).exists() for name in needed):
            if subprocess.run([folder / "bin" / "convtune", "--help"], capture_output=True).returncode == 0:
                return folder.resolve()
    raise NotHere(f"{', '.join(needed)}: not in {' or '.join(str(t / 'bin') for t in tried)}, or they do not run here")


def library_folders():
    """Folders of the libraries that this Python's PyTorch loads: the worker must have the same cuDNN."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations) if spec else []
    return [path for root in roots for path in sorted(pathlib.Path(root).glob("*/lib")) if path.is_dir()]


def environments():
    """(that of a program, that of the worker): whatever the caller's sets of ours, or of how PyTorch calls cuDNN, is no part of either."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CONVTUNE_", "LD_PRELOAD", "LD_AUDIT", "TORCH_CUDNN_"))}
    folders = [*map(str, library_folders()), env.get("LD_LIBRARY_PATH", "")]
    return env, {**env, "LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def served_env(library, snapshot, counters):
    """The environment of W: an unmodified program that gets the winners of a snapshot's folder.

    What B10 and B0 choose from has any notes and any workspace: so may the winners."""
    return {
        "LD_PRELOAD": str(library), "CONVTUNE_SNAPSHOT": str(snapshot), "CONVTUNE_PRELOAD_POLICY": "reorder",
        "CONVTUNE_PRELOAD_ALLOW": "notes,workspace", "CONVTUNE_PRELOAD_REPORT": "0", "CONVTUNE_PRELOAD_COUNTERS": str(counters),
    }  # fmt: skip


def failed_instruments(document):
    """Names of the instruments that the worker's self-check found not to work, wherever a JSON document tells of one."""
    found = {}
    for key, value in document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ():
        if key in ("selfCheck", "self_check") and isinstance(value, dict):
            found |= dict.fromkeys(value.get("failed", []))
        else:
            found |= dict.fromkeys(failed_instruments(value))
    return list(found)


def broken_words(instruments):
    """Says that these do not work; empty where all do."""
    do = "does" if len(instruments) == 1 else "do"
    return f"the worker's self-check found that {', '.join(instruments)} {do} not work" if instruments else ""


def counted(path, counter):
    """The line with the largest value of a counter, of those that the interposer wrote as programs ended; {} if it wrote no line."""
    most = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            most = max(most, json.loads(line), key=lambda counters: counters.get(counter, -1))
        except ValueError:
            continue  # it was cut
    return most


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Card:
    """The first GPU as NVML sees it. Raises NoGpu where there is none."""

    def __init__(self):
        try:
            self._c = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NoGpu(f"no GPU with a driver on this machine: {error}") from None
        self._device = ctypes.c_void_p()
        if self._c.nvmlInit_v2() != 0 or self._c.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) != 0:
            raise NoGpu("no GPU on this machine, says NVML")
        self.uuid = self._text(self._c.nvmlDeviceGetUUID, self._device)
        self.name = self._text(self._c.nvmlDeviceGetName, self._device)
        self.driver = self._text(self._c.nvmlSystemGetDriverVersion)

    @staticmethod
    def _text(function, *device):
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if function(*device, buffer, 96) == 0 else "unknown"

    def _number(self, name, *arguments):
        value = ctypes.c_uint()
        function = getattr(self._c, name, None)  # a driver may lack it
        return value.value if function and function(self._device, *arguments, ctypes.byref(value)) == 0 else None

    def state(self):
        """Clock in MHz, power, temperature; None for what NVML does not say."""
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        return {
            "mhz": self._number("nvmlDeviceGetClockInfo", 1),  # NVML_CLOCK_SM
            "watts": None if milliwatts is None else round(milliwatts / 1000, 1),
            "celsius": self._number("nvmlDeviceGetTemperature", 0),  # NVML_TEMPERATURE_GPU
        }

    def used_bytes(self):
        memory = _Memory()
        return memory.used if self._c.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)) == 0 else None


class CardByDriver:
    """The first GPU as CUDA's driver sees it, where NVML is missing: no clocks and no power. Makes no context. Raises NoGpu."""

    def __init__(self):
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"no GPU with a driver on this machine: {error}") from None
        device, version = ctypes.c_int(), ctypes.c_int()
        name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(16)
        if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
            raise NoGpu("no GPU on this machine, says CUDA's driver")
        self.name = name.value.decode() if cuda.cuDeviceGetName(name, 96, device) == 0 else "unknown"
        # As NVML writes it, so that a GPU is the same one by both.
        known = cuda.cuDeviceGetUuid(uuid, device) == 0
        self.uuid = f"GPU-{uuidlib.UUID(bytes=uuid.raw)}" if known else "unknown"
        self.driver = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}" if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0 else "unknown"

    def state(self):
        return {"mhz": None, "watts": None, "celsius": None}

    def used_bytes(self):
        return None


def find_card():
    """NVML tells more; a container may lack it and have a GPU that works. Raises NoGpu."""
    try:
        return Card()
    except NoGpu as error:
        try:
            return CardByDriver()
        except NoGpu:
            raise error from None


class MadeUpCard:
    """For --simulate: a GPU that nobody takes for a real one."""

    uuid, name, driver = "simulated", "simulated", "simulated"

    def state(self):
        return {"mhz": 1, "watts": 1.0, "celsius": 1}

    def used_bytes(self):
        return None


class Child:
    """A helper process of a step that is asked by JSON lines and answers by them; a context manager."""

    def __init__(self, program, env, log, arguments=()):
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / program), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env=env, preexec_fn=die_with_parent,
        )  # fmt: skip
        self._data = b""

    def send(self, request):
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what receive() then finds says why

    def receive(self, until):
        """The next answer. Raises TimeIsUp, or StepFailed with what the process said."""
        pipe = self.process.stdout
        while b"\n" not in self._data:
            if not select.select([pipe], [], [], max(0.0, until - time.time()))[0]:
                raise TimeIsUp
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                raise StepFailed(f"{self.process.args[1]} ended with {self.process.wait()}; see the log beside the records")
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            raise StepFailed(f"{self.process.args[1]} said {line[:200]!r}, which is no answer") from None
        if "error" in answer:
            raise StepFailed(answer["error"])
        return answer

    def ask(self, request, until):
        self.send(request)
        return self.receive(until)

    def close(self, timeout_s=0.0):
        """Kills the process; with a timeout it may first end by itself, so that what it registered for its exit runs."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Daemon:
    """convtuned on a state directory, with the first GPU; a context manager. options: flags besides."""

    def __init__(self, lab, state, until, trace=None, worker=None, options=()):
        self.lab, self.state, self.until, self.worker, self.options = lab, pathlib.Path(state), until, worker or lab.worker, options
        self.env = {**lab.worker_env, **({"CONVTUNE_TRACE": str(trace)} if trace else {})}
        self.folder = tempfile.mkdtemp(prefix="ct-")  # a socket's path is short
        self.address = f"unix:{self.folder}/s"
        self.process = None

    def __enter__(self):
        self.state.mkdir(parents=True, exist_ok=True)
        command = [
            self.lab.kit / "bin" / "convtuned", "--state-dir", self.state, "--listen", self.address, "--devices", "0",
            "--worker", self.worker, "--auto-promote", "--allow-network-fs", "--drain-timeout", "1s", *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=self.lab.log, stderr=self.lab.log,
            env=self.env, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            while not os.path.exists(f"{self.folder}/s"):
                if self.process.poll() is not None:
                    raise StepFailed(f"convtuned ended with {self.process.returncode}; see {self.lab.log.name}")
                if time.time() > self.until:
                    raise TimeIsUp
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """Its last act is the snapshot."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *arguments, lines=()):
        """The JSON document of a convtune command; {} where it says that there is nothing.

        Raises TimeIsUp at the deadline; the daemon keeps what it has stored."""
        command = [str(self.lab.kit / "bin" / "convtune"), *arguments, "--json", "--address", self.address]
        try:
            done = subprocess.run(
                command, input="\n".join(lines), env=self.lab.worker_env, capture_output=True, text=True,
                timeout=max(0.1, self.until - time.time()), preexec_fn=die_with_parent,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeIsUp from None
        if done.returncode == NOT_FOUND and not done.stdout:
            return {}
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise StepFailed(f"convtune {arguments[0]}: exit code {done.returncode}: {done.stderr[-500:]}") from None

    def tune(self, problems, budget, *options):
        """The first problems that could not be tuned, each with its reason."""
        if not problems:
            return []
        document = self.run("tune", "--api", "graph", "--budget", budget, *options, "--file", "-", lines=problems)
        failures = [failure for job in document.get("jobs", []) for failure in job.get("failures", [])]
        return [f"{failure['problemText']}: {failure['reason']}" for failure in failures]

    def failed_instruments(self):
        """Names the instruments that the worker's self-check found broken; empty too where no device tells of one."""
        return failed_instruments(self.run("environments"))

    def tuning(self, problem):
        """The tuning of a problem with all its candidates; None if there is none."""
        return self.run("explain", problem).get("tuning")


class Lab:
    """One machine, one kit, one folder to work in. stand_in: a program in the worker's place, with made-up peers beside it."""

    def __init__(self, work, kit=None, stand_in=None):
        self.work, self.simulated = pathlib.Path(work).resolve(), stand_in is not None
        self.kit = find_kit(kit, self.simulated)
        self.worker = pathlib.Path(stand_in).resolve() if stand_in else self.kit / "bin" / "convtune-worker"
        if not self.worker.exists():
            raise NotHere(f"{self.worker} is not there")
        self.card = MadeUpCard() if self.simulated else find_card()
        self.library = self.kit / "lib" / "libconvtune_preload.so"
        if not self.library.exists():
            raise NotHere(f"{self.library} is not there")
        self.scratch = self.work / "tmp"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.log = open(self.work / "study.log", "ab")
        self.ignores_clock = clock_env(self.work, self.card.name)
        self.env, self.worker_env = environments()
        self.worker_env |= self.ignores_clock

    def conditions(self):
        commit = self.kit / "COMMIT"
        git = lambda *a: subprocess.run(["git", "-C", REPO, *a], capture_output=True, text=True).stdout.strip()
        return {
            "simulated": self.simulated, "commit": commit.read_text().strip() if commit.exists() else git("rev-parse", "HEAD") or "unknown",
            "card": self.card.uuid, "gpu": self.card.name, "driver": self.card.driver, "python": platform.python_version(),
            "machine": platform.platform(), "cores": os.cpu_count(), "clock_ignored": bool(self.ignores_clock),
        }  # fmt: skip

    def child(self, program, env=None, arguments=()):
        return Child(program, {**self.env, **(env or {})}, self.log, arguments)

    def close(self):
        self.log.close()
