"""Unmodified programs with the interposer in front of cuDNN."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[3]
H200 = "profile:nvidia-h200,cc=9.0,sms=132,cudnn={cudnn},lib=full"
ALL = "build=all"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One convolution, as an argument list of the raw program and as text."""

    op: str = "fwd"
    x: tuple = (32, 64, 56, 56)
    w: tuple = (64, 64, 3, 3)
    pad: int = 1
    stride: int = 1
    dilation: int = 1
    type: str = "f16"
    nhwc: bool = True
    epilogue: str = ""
    mid: str = "f32"
    alpha2: float = 1.0
    align: int = 16

    @property
    def args(self):
        rank = len(self.x) - 2
        spread = lambda n: ",".join([str(n)] * rank)
        args = [
            f"op={self.op}", "x=" + ",".join(map(str, self.x)), "w=" + ",".join(map(str, self.w)),
            f"pad={spread(self.pad)}", f"stride={spread(self.stride)}",
            f"dilation={spread(self.dilation)}", f"type={self.type}", f"align={self.align}",
        ]  # fmt: skip
        if self.nhwc:
            args.append("nhwc")
        if self.epilogue:
            args += [*self.epilogue.split("+"), f"mid={self.mid}", f"alpha2={self.alpha2}"]
        return args

    @property
    def text(self):
        times = lambda dims: "x".join(map(str, dims))
        groups = self.x[1] // self.w[1]
        text = f"{self.op},x={times(self.x)},w={times(self.w)},pad={self.pad},stride={self.stride}"
        text += f",dilation={self.dilation},groups={groups},{'nhwc' if self.nhwc else 'nchw'},{self.type}"
        text += f",align={self.align}"
        if self.epilogue:
            text += f",epilogue={self.epilogue},mid={self.mid}"
        return text


# Each form that is served: operation, type, layout, groups, dilation, 3-D and
# the fused graphs as PyTorch (add, bias, relu; f32 between) and ONNX Runtime
# (the types of input and output between) build them.
FORMS = {
    "fwd_f16": Problem(),
    "fwd_f32": Problem(type="f32", nhwc=False),
    "fwd_f32_nhwc": Problem(type="f32"),
    "fwd_bf16": Problem(type="bf16"),
    "bwd_data_f16": Problem(op="bwd_data"),
    "bwd_data_f32": Problem(op="bwd_data", type="f32", nhwc=False),
    "bwd_filter_f16": Problem(op="bwd_filter"),
    "bwd_filter_bf16": Problem(op="bwd_filter", type="bf16"),
    "grouped": Problem(x=(32, 128, 28, 28), w=(128, 4, 3, 3)),
    "dilated": Problem(x=(8, 64, 56, 56), pad=2, dilation=2),
    "strided_1x1": Problem(x=(32, 256, 56, 56), w=(512, 256, 1, 1), pad=0, stride=2),
    "three_d": Problem(x=(2, 32, 16, 28, 28), w=(64, 32, 3, 3, 3)),
    "bias": Problem(epilogue="bias"),
    "bias_relu_f32": Problem(epilogue="bias+relu", type="f32", mid="f32"),
    "pytorch_fused": Problem(epilogue="add+bias+relu"),
    "pytorch_fused_without_add": Problem(epilogue="add+bias+relu", alpha2=0.0),
    "pytorch_fused_f32": Problem(epilogue="add+bias+relu", type="f32"),
    "onnxruntime_fused": Problem(epilogue="add+bias+relu", type="f32", nhwc=False),
    "onnxruntime_fused_nhwc": Problem(epilogue="bias+relu", type="f32"),
    "onnxruntime_fused_bias": Problem(epilogue="bias", type="f32"),
}


@dataclasses.dataclass
class Candidate:
    id: str
    notes: int
    workspace: int

    def field(self, time=1.0, prefix="graph:"):
        return f"candidate={prefix}{self.id};notes={self.notes};workspace={self.workspace};time={time}"


def candidates(mode):
    """Those of a mode that a plan was built of."""
    return [
        Candidate(c["id"], c["notes"], c["workspace"]) for c in mode["configs"] if c.get("workspace", -1) >= 0
    ]


def neutral(known):
    """Those behind the first that may take its place unasked."""
    found = [c for c in known[1:] if c.notes & ~known[0].notes == 0 and c.workspace <= known[0].workspace]
    assert found, "no neutral candidate behind the stock choice"
    return found


def stock_field(candidate):
    return f"stock=;notes={candidate.notes};workspace={candidate.workspace}"


class Machine:
    """The built programs and a profile in a folder of its own."""

    def __init__(self, build, folder):
        self.bin = build / "bin"
        self.lib = build / "lib"
        self.folder = folder
        self.preload = self.reachable("libconvtune_preload.so")
        self.first = []
        self.reports = folder / "reports"
        self.reports.mkdir()
        if os.environ.get("CONVTUNE_TEST_PRELOAD_ASAN") == "1":
            self.preload = self.reachable("asan/libconvtune_preload.so")
            # Its runtime has to be the first library of a program that knows nothing of it.
            needed = subprocess.check_output(["ldd", str(self.preload)], text=True).splitlines()
            self.first = [next(line.split()[2] for line in needed if "libasan" in line)]
        self.profile = self.profile_of("nvidia-h200")
        self._stock = {}

    def profile_of(self, name):
        """A file with what cuDNN is told of that device."""
        path = self.folder / f"{name}.json"
        properties = json.loads((REPO / f"deploy/profiles/{name}.json").read_text())["properties"]
        path.write_text(json.dumps(properties, separators=(",", ":")))
        return path

    def reachable(self, name):
        """A library's path, or a link to it where its own has a space, which separates names in LD_PRELOAD."""
        library = self.lib / name
        if " " not in str(library):
            return library
        link = self.folder / library.name
        link.unlink(missing_ok=True)
        link.symlink_to(library)
        return link

    @functools.cached_property
    def cudnn_library(self):
        """The one that the raw programs load."""
        lines = subprocess.check_output(["ldd", str(self.bin / "convtune-raw-linked")], text=True)
        return pathlib.Path(re.search(r"libcudnn\.so\.9 => (.*) \(0x", lines)[1])

    @property
    def cudnn_folder(self):
        return str(self.cudnn_library.parent)

    @functools.cached_property
    def cudnn_version(self):
        """As 9.19.0."""
        code = f"import ctypes; print(ctypes.CDLL({str(self.cudnn_library)!r}).cudnnGetVersion())"
        version = int(subprocess.check_output([sys.executable, "-c", code]))
        return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"

    @property
    def environment(self):
        return H200.format(cudnn=self.cudnn_version)

    def write_snapshot(self, folder, *lines, release=7):
        """Lines as convtune-make-snapshot reads them."""
        folder.mkdir(exist_ok=True)
        text = "\n".join([f"release\t{release}" if isinstance(release, int) else release, *lines]) + "\n"
        subprocess.run(
            [self.bin / "convtune-make-snapshot", folder / "current.snapshot"], input=text, text=True, check=True
        )

    def choice(self, problem, *fields, environment=None, channel="stable"):
        text = problem if isinstance(problem, str) else problem.text
        return "\t".join(["choice", environment or self.environment, channel, text, *fields])

    def store(self, folder, problem, *winners, stock=None, **where):
        """The folder, with a snapshot that has these candidates; `stock` is what cuDNN lists first, where the snapshot says it."""
        fields = [winner.field() for winner in winners] + ([stock_field(stock)] if stock else [])
        self.write_snapshot(folder, self.choice(problem, *fields, **where))
        return folder

    def env(self, snapshot, policy="reorder", counters=None, **extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CONVTUNE_", "LD_"))}
        if snapshot is not None:
            env["CONVTUNE_SNAPSHOT"] = str(snapshot)
            env["CONVTUNE_PRELOAD_POLICY"] = policy
            env["LD_PRELOAD"] = " ".join([*self.first, str(self.preload)])
            if self.first:
                # Of what cuDNN leaks nothing is asked here; valgrind tells whose a leak is.
                common = f"log_path={self.reports}/report:handle_abort=1"
                env["ASAN_OPTIONS"] = f"{common}:detect_leaks=0"
                env["UBSAN_OPTIONS"] = f"{common}:print_stacktrace=1"
            if counters:
                env["CONVTUNE_PRELOAD_COUNTERS"] = str(counters)
        return {**env, **extra}

    def fake_env(self, env):
        """Execution needs a GPU: a cuDNN that is real but for that, and of which engines can be taken away.

        Beside it lies no library of precompiled engines, which makes it another library configuration.
        """
        return {**env, "LD_LIBRARY_PATH": str(self.lib / "fakes-cudnn")}

    def command(self, args, program="convtune-raw-linked"):
        return [str(self.bin / program), *args]

    def raw_args(self, problem, *more):
        return [f"profile={self.profile}", *problem.args, *more]

    def run(self, command, env, check=True, timeout=300):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        self.check_reports()
        if check:
            assert done.returncode == 0, (command, done.returncode, done.stderr[-2000:], done.stdout[-500:])
        return done

    def check_reports(self):
        """Fails with what a sanitizer had to say."""
        reports = [path.read_text(errors="replace")[:4000] for path in self.reports.iterdir()]
        assert not reports, "\n".join(reports)

    def raw(self, problem, *more, env=None, program="convtune-raw-linked", prefix=()):
        """What the raw program printed, one object for each problem."""
        done = self.run(self.command([*prefix, *self.raw_args(problem, *more)], program), env or self.env(None))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[0] if len(lines) == 1 else lines

    def stock(self, problem, *more):
        """As raw, without the interposer; asked once."""
        key = (problem, more)
        if key not in self._stock:
            self._stock[key] = self.raw(problem, *more)
        return self._stock[key]

    def known(self, problem):
        """What can be built of cuDNN's own list, in its order."""
        return candidates(self.stock(problem, ALL)["modes"][0])


def listening(folder):
    """A socket that gets what programs tell the daemon of this snapshot's folder."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(folder / "datagrams.sock"))
    return listener


def _rewritten(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _replaced(make):
    def replace(path):
        path.unlink()
        make(path)

    return replace


# What becomes of a snapshot's file, and what the counters say of it. That every byte counts is held by db/snapshot's unit tests.
UNREADABLE = {
    "absent": (lambda path: path.unlink(), "no such file"),
    "empty": (_rewritten(lambda whole: b""), "not a snapshot"),
    "cut_short": (_rewritten(lambda whole: whole[:300]), "too short"),
    "damaged": (_rewritten(lambda whole: whole[:-3] + bytes([whole[-3] ^ 0x55]) + whole[-2:]), "checksum does not match"),
    "older": (_rewritten(lambda whole: whole[:8] + struct.pack("<I", 1) + whole[12:]), "of another format version"),
    "a_folder": (_replaced(lambda path: path.mkdir()), "not a snapshot"),
    "a_pipe": (_replaced(os.mkfifo), "not a snapshot"),
    "a_link_to_itself": (_replaced(lambda path: path.symlink_to(path)), "cannot be opened"),
}


def read_counters(path):
    """One object for each process that ended."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def ids(mode):
    return [config["id"] for config in mode["configs"]]


class Legacy:
    """The program of legacy calls, against a cuDNN that needs no GPU and is soon loaded."""

    TENSOR_CORE = 2

    def __init__(self, machine, folder):
        self.machine = machine
        self.folder = folder / "snapshot"
        self.counters = folder / "counters"

    def environment(self, name="nvidia-h200"):
        # Beside the fake there is no library of precompiled engines.
        return f"{name},cc=9.0,sms=132,cudnn={self.machine.cudnn_version},lib=graph_jit_only"

    def store(self, *candidates, op="fwd", type="f16", environment=None):
        """Candidates as (algorithm, math type, notes, time)."""
        text = f"{op},x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,{type}"
        fields = [
            f"candidate=legacy:algo{algo},math{math};notes={notes};workspace=0;time={time}"
            for algo, math, notes, time in candidates
        ]
        self.machine.write_snapshot(
            self.folder, self.machine.choice(text, *fields, environment=environment or self.environment())
        )

    def run(self, *args, policy="reorder", preload=True, prefix=(), **extra):
        """What it printed, one list of results for each call; and how often cuDNN searched."""
        env = self.machine.env(self.folder if preload else None, policy, counters=self.counters, **extra)
        done = self.machine.run([*prefix, *self.machine.command(args, "convtune-legacy-calls")], env)
        results = [json.loads(line)["results"] for line in done.stdout.splitlines()]
        return results[0] if len(results) == 1 else results, done.stderr.count("search")
