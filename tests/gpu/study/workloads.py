"""The cases and shapes of the study, and the problem lists that they come to."""

import csv
import dataclasses
import functools
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[2]


@dataclasses.dataclass(frozen=True)
class Case:
    """A network at a batch size, a type and a layout."""

    network: str
    batch: int
    dtype: str = "f16"
    layout: str = "nhwc"
    train: bool = False
    compile: bool = False

    @property
    def name(self):
        parts = [self.network, f"b{self.batch}", self.dtype, self.layout]
        return "-".join(parts + ["train"] * self.train + ["compile"] * self.compile)

    def spec(self, **more):
        """For child.run."""
        return {
            "network": self.network, "batch": self.batch, "dtype": self.dtype, "layout": self.layout,
            "train": self.train, "compile": self.compile, **more,
        }  # fmt: skip


# In the order of what they tell: the common case first, then what is launch-bound
# (batch 1) and what has other kinds of convolution, then the rest.
NETWORK_CASES = [
    Case("resnet50", 32), Case("resnet50", 1), Case("sd_unet", 1), Case("mobilenet_v2", 32), Case("yolov3", 8),
    Case("efficientnet_b0", 32), Case("convnext_tiny", 32), Case("resnext50", 32), Case("vae_decoder", 1),
    Case("unet", 8), Case("sdxl_unet", 1), Case("resnet50", 8), Case("mobilenet_v2", 1), Case("resnet50", 32, "f32", "nchw"),
    Case("yolov3", 1), Case("yolov3", 32), Case("efficientnet_b0", 1), Case("efficientnet_b0", 8),
    Case("mobilenet_v2", 8), Case("convnext_tiny", 1), Case("convnext_tiny", 8), Case("resnext50", 1),
    Case("resnext50", 8), Case("sd_unet", 8), Case("sd_unet", 32), Case("sdxl_unet", 8), Case("vae_decoder", 8),
    Case("unet", 1), Case("unet", 32), Case("sdxl_unet", 32), Case("vae_decoder", 32), Case("mobilenet_v2", 32, "f32", "nchw"),
    Case("efficientnet_b0", 32, "f32", "nchw"), Case("yolov3", 8, "f32", "nchw"), Case("sd_unet", 1, "f32", "nchw"),
]  # fmt: skip

SERVING_CASES = [
    Case("resnet50", 1), Case("resnet50", 32), Case("sd_unet", 1), Case("efficientnet_b0", 32),
    Case("resnet50", 32, train=True), Case("varying", 8), Case("conv_transpose1d", 16, "f32", "nchw"),
    Case("resnet50", 32, compile=True),
]  # fmt: skip


@functools.lru_cache(maxsize=None)
def problems_of(case):
    """{problem: how often an iteration runs it}, most work first. Needs PyTorch; runs on the meta device."""
    sys.path.insert(0, str(REPO / "client" / "python"))
    try:
        import convtune.torch
    finally:
        sys.path.pop(0)
    import nets

    module = nets.build(case.network, layout=case.layout)
    inputs = nets.inputs(case.network, case.batch, layout=case.layout)
    found = convtune.torch.problems(module, inputs, dtype=case.dtype)
    forward = {str(p): found.count(p) for p in found.most_work_first()}
    if not case.train:
        return forward
    # What a convolution's gradients are follows from it; the input of the whole
    # network needs none. (torch before 2.0 runs no backward pass on the meta device.)
    image = "x=" + "x".join(str(size) for size in inputs[0].shape) + ","
    both = {}
    for text, count in forward.items():
        rest = text.removeprefix("fwd,")
        both |= {text: count, f"bwd_filter,{rest}": count}
        if not rest.startswith(image):
            both[f"bwd_data,{rest}"] = count
    return both


FORMS = (("f16", "nhwc"), ("bf16", "nhwc"), ("f32", "nchw"))


def deepbench(folder, name):
    """Rows of a DeepBench list as dictionaries; FileNotFoundError says where it was looked for."""
    with open(pathlib.Path(folder) / f"deepbench_{name}.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if "device" not in row["set"]]


def row_problem(row, operation, dtype, layout):
    """A row's text form. DeepBench's filter_w is S, its filter_h R."""
    get = lambda *names: next(row[n] for n in names if n in row)
    dims = f"x={row['n']}x{row['c']}x{row['h']}x{row['w']},w={row['k']}x{row['c']}x{get('filter_h', 'r')}x{get('filter_w', 's')}"
    return f"{operation},{dims},pad={row['pad_h']}x{row['pad_w']},stride={row['stride_h']}x{row['stride_w']},{layout},{dtype}"


def resnet50_rows():
    """The list that the repository has by itself, once per distinct row."""
    with open(REPO / "deploy" / "examples" / "resnet50.csv", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def shape_sets(data):
    """{set name: problems}, in the order in which they are studied. `data` may be None: only what the repository has."""
    sets = {}
    resnet = resnet50_rows()
    lists = [("resnet50", resnet, ("fwd",))]
    if data is not None:
        lists += [("deepbench_server", deepbench(data, "infer"), ("fwd",)), ("deepbench_train", deepbench(data, "train"), ("fwd", "bwd_data", "bwd_filter"))]
    for dtype, layout in FORMS:
        for name, rows, operations in lists:
            for operation in operations:
                problems = [row_problem(row, operation, dtype, layout) for row in rows]
                sets[f"{name}-{operation}-{dtype}"] = list(dict.fromkeys(problems))
    return sets


def spread(problems, count):
    """`count` of the problems, evenly over the list."""
    if len(problems) <= count:
        return list(problems)
    return [problems[i * len(problems) // count] for i in range(count)]
