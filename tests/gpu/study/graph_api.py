"""cuDNN's graph API through ctypes, as far as the oracle needs it.

Written for this study alone and sharing nothing with convtune's worker: it is
the other pair of eyes. The numbers are cudnn_graph_v9.h's. A graph is made for
a handle (a GPU) or for a device-properties JSON (no GPU: plans are built, and
not run).
"""

import ctypes

from problem import candidate_text, packed_strides

HEURISTIC_MODES = {"instant": 0, "b": 1, "fallback": 2, "a": 3}
DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}

_CONVOLUTION, _ENGINE, _ENGINECFG, _ENGINEHEUR, _PLAN = 1, 2, 3, 4, 5
_KNOB_CHOICE, _GRAPH, _VARIANT_PACK, _TENSOR, _DEVICEPROP = 7, 15, 16, 17, 38
# Operation descriptor, and its attributes: conv, x, w, y, alpha, beta.
_OPERATIONS = {
    "fwd": (10, 702, 704, 703, 705, 700, 701),
    "bwd_data": (12, 708, 710, 709, 711, 706, 707),
    "bwd_filter": (11, 714, 716, 715, 717, 712, 713),
}
_TYPES = {
    "handle": (0, ctypes.c_void_p), "data_type": (1, ctypes.c_int), "int64": (3, ctypes.c_int64),
    "float": (4, ctypes.c_float), "double": (5, ctypes.c_double), "pointer": (6, ctypes.c_void_p),
    "conv_mode": (7, ctypes.c_int), "heur_mode": (8, ctypes.c_int), "knob": (9, ctypes.c_int),
    "descriptor": (15, ctypes.c_void_p), "char": (24, ctypes.c_char),
}  # fmt: skip
X_UID, W_UID, Y_UID = 1, 2, 3


class CudnnError(RuntimeError):
    pass


class Library:
    """Loads libcudnn.so.9: the one that the process has already, if it has one."""

    def __init__(self, path="libcudnn.so.9"):
        self.c = ctypes.CDLL(path)
        self.c.cudnnGetVersion.restype = ctypes.c_size_t
        pointer, i64, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        self.c.cudnnBackendSetAttribute.argtypes = [pointer, i, i, i64, pointer]
        self.c.cudnnBackendGetAttribute.argtypes = [pointer, i, i, i64, pointer, pointer]
        self.c.cudnnBackendFinalize.argtypes = [pointer]
        self.c.cudnnBackendDestroyDescriptor.argtypes = [pointer]
        self.c.cudnnBackendCreateDescriptor.argtypes = [i, pointer]
        self.c.cudnnBackendExecute.argtypes = [pointer, pointer, pointer]

    @property
    def version(self):
        """As 9.19.0."""
        number = self.c.cudnnGetVersion()
        return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"

    def check(self, status, what):
        if status != 0:
            raise CudnnError(f"{what}: status {status}")

    def handle(self, stream=0):
        made = ctypes.c_void_p()
        self.check(self.c.cudnnCreate(ctypes.byref(made)), "cudnnCreate")
        self.check(self.c.cudnnSetStream(made, ctypes.c_void_p(stream)), "cudnnSetStream")
        return made


class Descriptor:
    """One backend descriptor; destroyed with the object."""

    def __init__(self, library, kind):
        self.library = library
        self.raw = ctypes.c_void_p()
        library.check(library.c.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.raw)), f"create descriptor {kind}")

    def __del__(self):
        if getattr(self, "raw", None):
            self.library.c.cudnnBackendDestroyDescriptor(self.raw)

    def set(self, attribute, type_name, *values):
        number, c_type = _TYPES[type_name]
        if type_name == "descriptor":
            values = [value.raw.value for value in values]
        array = (c_type * len(values))(*values)
        status = self.library.c.cudnnBackendSetAttribute(self.raw, attribute, number, len(values), ctypes.byref(array))
        self.library.check(status, f"set attribute {attribute}")
        return self

    def finalize(self, what):
        self.library.check(self.library.c.cudnnBackendFinalize(self.raw), f"finalize {what}")
        return self

    def count(self, attribute, type_name):
        number, _ = _TYPES[type_name]
        got = ctypes.c_int64()
        status = self.library.c.cudnnBackendGetAttribute(self.raw, attribute, number, 0, ctypes.byref(got), None)
        self.library.check(status, f"count attribute {attribute}")
        return got.value

    def get(self, attribute, type_name):
        number, c_type = _TYPES[type_name]
        value, got = c_type(), ctypes.c_int64()
        status = self.library.c.cudnnBackendGetAttribute(self.raw, attribute, number, 1, ctypes.byref(got), ctypes.byref(value))
        self.library.check(status, f"get attribute {attribute}")
        return value.value

    def children(self, attribute, kind, most=None):
        """Descriptors of an array attribute, at most `most` (left out: as many as cuDNN counts); it fills those it is given."""
        count = self.count(attribute, "descriptor") if most is None else most
        made = [Descriptor(self.library, kind) for _ in range(count)]
        if not made:
            return made
        array, got = (ctypes.c_void_p * count)(*(d.raw.value for d in made)), ctypes.c_int64()
        status = self.library.c.cudnnBackendGetAttribute(self.raw, attribute, 15, count, ctypes.byref(got), ctypes.byref(array))
        self.library.check(status, f"get attribute {attribute}")
        return made[: got.value]


class Graph:
    """The operation graph of one convolution. handle, or profile: the text of a device-properties JSON."""

    def __init__(self, library, problem, handle=None, profile=None, alignment=16):
        self.library, self.problem, self.handle = library, problem, handle
        self.properties = None
        if handle is None:
            self.properties = Descriptor(library, _DEVICEPROP).set(2702, "char", *(bytes([b]) for b in profile.encode())).finalize("profile")
        rank = len(problem.x_dims) - 2
        compute = DATA_TYPES["f64" if problem.dtype == "f64" else "f32"]
        self.parts = [
            Descriptor(library, _TENSOR)
            .set(906, "int64", uid)
            .set(901, "data_type", DATA_TYPES[problem.dtype])
            .set(902, "int64", *dims)
            .set(903, "int64", *packed_strides(dims, problem.nhwc))
            .set(900, "int64", alignment)
            .finalize("tensor")
            for uid, dims in ((X_UID, problem.x_dims), (W_UID, problem.w_dims), (Y_UID, problem.y_dims))
        ]
        convolution = Descriptor(library, _CONVOLUTION)
        convolution.set(106, "int64", rank).set(100, "data_type", compute).set(101, "conv_mode", 1)
        convolution.set(105, "int64", *problem.pad).set(104, "int64", *problem.pad)
        convolution.set(102, "int64", *problem.dilation).set(103, "int64", *problem.stride).finalize("convolution")
        kind, conv, x, w, y, alpha, beta = _OPERATIONS[problem.operation]
        operation = Descriptor(library, kind).set(conv, "descriptor", convolution)
        for attribute, part in zip((x, w, y), self.parts):
            operation.set(attribute, "descriptor", part)
        scale = "double" if problem.dtype == "f64" else "float"
        operation.set(alpha, scale, 1.0).set(beta, scale, 0.0).finalize("operation")
        self.parts += [convolution, operation]
        self.graph = Descriptor(library, _GRAPH).set(801, "descriptor", operation)
        if handle is not None:
            self.graph.set(800, "handle", handle.value)
        self.graph.finalize("graph")

    def heuristics(self, mode, most=None):
        """Texts of the configs that a mode lists, best first, at most `most` of them."""
        query = Descriptor(self.library, _ENGINEHEUR).set(201, "descriptor", self.graph)
        query.set(200, "heur_mode", HEURISTIC_MODES[mode])
        if self.properties is not None:
            query.set(204, "descriptor", self.properties)
        query.finalize("heuristics")
        return [self._read(config) for config in query.children(202, _ENGINECFG, most)]

    def _read(self, config):
        engine = config.children(300, _ENGINE)[0]
        knobs = {}
        # cuDNN gives 0 as the count of choices: there is at most one for each knob of the engine.
        for choice in config.children(302, _KNOB_CHOICE, engine.count(1302, "descriptor")):
            knobs[choice.get(600, "knob")] = choice.get(601, "int64")
        return candidate_text(engine.get(1301, "int64"), knobs)

    def configs(self):
        """Texts of all that the heuristic modes list, and of each engine with its own defaults; some of them cannot be built."""
        listed = [text for mode in HEURISTIC_MODES for text in self._listed(mode)]
        engines = self.graph.get(802, "int64")
        return list(dict.fromkeys([*listed, *(candidate_text(engine, {}) for engine in range(engines))]))

    def _listed(self, mode):
        try:
            return self.heuristics(mode)
        except CudnnError:  # a mode that has nothing for this problem
            return []


def modes_agree(library, problem, mode, other, handle=None, profile=None):
    """(whether two heuristic modes list the same configs, whether the first is the same); False where a mode lists none."""
    graph = Graph(library, problem, handle, profile)
    one, two = graph._listed(mode), graph._listed(other)
    return bool(one) and one == two, bool(one) and one[:1] == two[:1]


class Plan:
    """An execution plan of an engine and its knobs. Raises CudnnError where cuDNN refuses it."""

    def __init__(self, graph, engine, knobs):
        library = graph.library
        self.library, self.handle = library, graph.handle
        chosen = Descriptor(library, _ENGINE).set(1300, "descriptor", graph.graph).set(1301, "int64", engine)
        if graph.properties is not None:
            chosen.set(1307, "descriptor", graph.properties)
        chosen.finalize("engine")
        choices = [
            Descriptor(library, _KNOB_CHOICE).set(600, "knob", knob).set(601, "int64", value).finalize("knob")
            for knob, value in sorted(knobs.items())
        ]
        config = Descriptor(library, _ENGINECFG).set(300, "descriptor", chosen)
        if choices:
            config.set(302, "descriptor", *choices)
        config.finalize("engine config")
        self.plan = Descriptor(library, _PLAN).set(401, "descriptor", config)
        if graph.handle is not None:
            self.plan.set(400, "handle", graph.handle.value)
        else:
            self.plan.set(407, "descriptor", graph.properties)
        self.plan.finalize("plan")
        self.workspace = self.plan.get(402, "int64")
        self.pack = None

    def bind(self, x, w, y, workspace):
        """Addresses of the tensors and of at least self.workspace bytes."""
        self.pack = Descriptor(self.library, _VARIANT_PACK).set(1000, "int64", X_UID, W_UID, Y_UID)
        self.pack.set(1001, "pointer", x, w, y).set(1003, "pointer", workspace).finalize("variant pack")

    def run(self):
        status = self.library.c.cudnnBackendExecute(self.handle, self.plan.raw, self.pack.raw)
        self.library.check(status, "execute")
