"""cuDNN's legacy convolution API through ctypes: cudnnGet*_v7's choice, and running an algorithm.

2-D problems only: the 4-d descriptor functions. Needs a card (cudnnCreate).
"""

import ctypes

from graph_api import DATA_TYPES, CudnnError

_DIRECTIONS = {"fwd": "Forward", "bwd_data": "BackwardData", "bwd_filter": "BackwardFilter"}
DEFAULT_MATH, TENSOR_OP_MATH = 0, 1


class _Perf(ctypes.Structure):
    """cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t are alike."""

    _fields_ = [
        ("algo", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("math", ctypes.c_int), ("reserved", ctypes.c_int * 3),
    ]  # fmt: skip


def _vector(values):
    return (ctypes.c_int * len(values))(*values)


class LegacyConvolution:
    """Descriptors of one problem. Raises CudnnError for what the legacy API has no form for."""

    def __init__(self, library, problem, handle):
        if len(problem.x_dims) != 4 or problem.pad_low != problem.pad_high:
            raise CudnnError(f"{problem.text}: the legacy API is used for 2-D problems of symmetric pads only")
        self.library, self.handle, self.operation = library, handle, problem.operation
        self.c = library.c
        layout, dtype = int(problem.nhwc), DATA_TYPES[problem.dtype]
        make = lambda name: self._make(f"cudnnCreate{name}Descriptor")
        self.x, self.y = make("Tensor"), make("Tensor")
        self.w, self.conv = make("Filter"), make("Convolution")
        for tensor, dims in ((self.x, problem.x_dims), (self.y, problem.y_dims)):
            self._call("cudnnSetTensor4dDescriptor", tensor, layout, dtype, *dims)
        self._call("cudnnSetFilter4dDescriptor", self.w, dtype, layout, *problem.w_dims)
        compute = DATA_TYPES["f64" if problem.dtype == "f64" else "f32"]
        self._call(
            "cudnnSetConvolutionNdDescriptor", self.conv, 2, _vector(problem.pad_low), _vector(problem.stride),
            _vector(problem.dilation), 1, compute,
        )  # fmt: skip
        if problem.groups != 1:
            self._call("cudnnSetConvolutionGroupCount", self.conv, problem.groups)
        # As PyTorch and ONNX Runtime have it; cudnnGet*_v7 goes by it.
        self.set_math(TENSOR_OP_MATH if problem.dtype == "f16" else DEFAULT_MATH)
        scale = ctypes.c_double if problem.dtype == "f64" else ctypes.c_float
        self.one, self.zero = scale(1), scale(0)

    def _make(self, name):
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made))
        return made

    def _call(self, name, *arguments):
        self.library.check(getattr(self.c, name)(*arguments), name)

    def set_math(self, math):
        self._call("cudnnSetConvolutionMathType", self.conv, math)

    def _order(self):
        """Descriptors in the order that the functions of the operation take them."""
        return {
            "fwd": (self.x, self.w, self.conv, self.y),
            "bwd_data": (self.w, self.y, self.conv, self.x),
            "bwd_filter": (self.x, self.y, self.conv, self.w),
        }[self.operation]

    def get_v7(self):
        """(algorithm, math type) that cudnnGetConvolution*Algorithm_v7 puts first."""
        perfs, count = (_Perf * 16)(), ctypes.c_int()
        self._call(
            f"cudnnGetConvolution{_DIRECTIONS[self.operation]}Algorithm_v7", self.handle, *self._order(), 16,
            ctypes.byref(count), perfs,
        )  # fmt: skip
        for perf in perfs[: count.value]:
            if perf.status == 0:
                return perf.algo, perf.math
        raise CudnnError("cudnnGet_v7 names no algorithm")

    def plan(self, algorithm, math):
        return LegacyPlan(self, algorithm, math)

    def workspace(self, algorithm, math):
        self.set_math(math)
        size = ctypes.c_size_t()
        self._call(
            f"cudnnGetConvolution{_DIRECTIONS[self.operation]}WorkspaceSize", self.handle, *self._order(), algorithm,
            ctypes.byref(size),
        )  # fmt: skip
        return size.value


class LegacyPlan:
    """What graph_api.Plan is for a legacy algorithm."""

    def __init__(self, convolution, algorithm, math):
        self.of, self.algorithm, self.math = convolution, algorithm, math
        self.workspace = convolution.workspace(algorithm, math)
        self.pointers = None

    def bind(self, x, w, y, workspace):
        self.pointers = tuple(ctypes.c_void_p(p) for p in (x, w, y, workspace))

    def run(self):
        c, (x, w, y, workspace) = self.of, self.pointers
        c.set_math(self.math)
        size = ctypes.c_size_t(self.workspace)
        one, zero = ctypes.byref(c.one), ctypes.byref(c.zero)
        if c.operation == "fwd":
            c._call("cudnnConvolutionForward", c.handle, one, c.x, x, c.w, w, c.conv, self.algorithm, workspace, size, zero, c.y, y)
        elif c.operation == "bwd_data":
            c._call("cudnnConvolutionBackwardData", c.handle, one, c.w, w, c.y, y, c.conv, self.algorithm, workspace, size, zero, c.x, x)
        else:
            c._call("cudnnConvolutionBackwardFilter", c.handle, one, c.x, x, c.y, y, c.conv, self.algorithm, workspace, size, zero, c.w, w)
