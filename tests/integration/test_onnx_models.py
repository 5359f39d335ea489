"""convtune.onnx against models made here: exactly the expected problems."""

import os
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

from conftest import REPO
from harness import python_package
from harness.onnx_models import model, node, refusal, tensor, zeros


class Builder:
    """A graph, node by node; the weights have shapes and zeros."""

    def __init__(self, shape, elem_type=TensorProto.FLOAT):
        self.type = elem_type
        self.inputs = [tensor("x", shape, elem_type)]
        self.nodes, self.weights, self.last = [], [], "x"

    def node(self, op, *extra, **attributes):
        out = f"t{len(self.nodes)}"
        self.nodes.append(node(op, [self.last, *extra], out, name=f"n{len(self.nodes)}", **attributes))
        self.last = out
        return self

    def weight(self, shape):
        name = f"w{len(self.weights)}"
        self.weights.append(zeros(name, shape, self.type))
        return name

    def conv(self, shape, op="Conv", **attributes):
        return self.node(op, self.weight(shape), **attributes)

    def model(self, opset=17):
        return model(self.nodes, self.inputs, *self.weights, outputs=[self.last], elem_type=self.type, opset=opset)

    def save(self, path, **kwargs):
        onnx.save(self.model(**kwargs), path)
        return path


def texts(workload):
    return {str(problem): count for problem, count in workload.items()}


def residual():
    """ResNet-50's beginning: a stem, and a bottleneck twice."""
    b = Builder(["batch", 3, 224, 224])
    b.conv((64, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2]).node("Relu")
    b.node("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    for _ in range(2):
        shortcut = b.last
        b.conv((64, 64, 1, 1)).node("Relu").conv((64, 64, 3, 3), pads=[1, 1, 1, 1]).node("Relu")
        b.conv((64, 64, 1, 1)).node("Add", shortcut).node("Relu")
    return b


def test_a_residual_network_for_each_batch(ct, tmp_path):
    path = residual().save(tmp_path / "resnet.onnx")
    found = ct.onnx.problems(path, batch_sizes=[1, 8], runtime="plain")
    tail = "stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"
    assert texts(found) == {
        text: count
        for n in (1, 8)
        for text, count in {
            f"fwd,x={n}x3x224x224,w=64x3x7x7,pad=3x3,stride=2x2,dilation=1x1,groups=1,nchw,f32,acc=f32": 1,
            f"fwd,x={n}x64x56x56,w=64x64x1x1,pad=0x0,{tail}": 4,
            f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1x1,{tail}": 2,
        }.items()
    }
    # Per run: the 3x3 twice 231 MFLOP, the stem 236, the 1x1 four times 26.
    assert [p.w for p in ct.onnx.problems(path, runtime="plain").most_work_first()] == [(64, 64, 3, 3), (64, 3, 7, 7), (64, 64, 1, 1)]


def test_a_batch_that_nobody_names_is_said_to_be_1(ct, tmp_path):
    path = residual().save(tmp_path / "resnet.onnx")
    notice = f"{path}: batch is symbolic and was read as 1; --batch 1,8,32 (batch_sizes=[1, 8, 32]) names yours"
    assert ct.onnx.problems(path).notices == [notice]
    assert ct.onnx.problems(path, batch_sizes=[1]).notices == [] and ct.onnx.problems(path, dims={"batch": 8}).notices == []
    assert ct.onnx.problems(Builder([1, 3, 8, 8]).conv((4, 3, 3, 3)).model()).notices == []
    result = python_package.run("-m", "convtune", "problems", path)
    assert (result.returncode, result.stderr) == (0, notice + "\n")


def test_a_checkout_that_is_not_installed_is_one_line(tmp_path):
    path = residual().save(tmp_path / "resnet.onnx")
    for verb in ("problems", "warm"):
        result = subprocess.run(
            [sys.executable, "-m", "convtune", verb, path], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(REPO / "client" / "python")},
        )  # fmt: skip
        assert result.returncode == 1, result
        assert result.stderr.splitlines()[-1] == (
            "error: No module named 'convtune.v1'; convtune is not installed: pip install ./client/python"
        )


def test_a_depthwise_network_in_half_precision(ct):
    b = Builder([1, 32, 112, 112], TensorProto.FLOAT16)
    b.conv((32, 1, 3, 3), group=32, pads=[1, 1, 1, 1]).node("Clip").conv((64, 32, 1, 1)).node("Clip")
    b.conv((64, 1, 3, 3), group=64, pads=[1, 1, 1, 1], strides=[2, 2])
    assert list(texts(ct.onnx.problems(b.model(), layout="nhwc"))) == [
        "fwd,x=1x32x112x112,w=32x1x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=32,nhwc,f16,acc=f32",
        "fwd,x=1x32x112x112,w=64x32x1x1,pad=0x0,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32",
        "fwd,x=1x64x112x112,w=64x1x3x3,pad=1x1,stride=2x2,dilation=1x1,groups=64,nhwc,f16,acc=f32",
    ]


def test_a_unets_transposed_convolutions_are_data_gradients(ct):
    b = Builder(["n", 64, 28, 28])
    b.conv((64, 32, 2, 2), op="ConvTranspose", strides=[2, 2])
    b.conv((32, 16, 3, 3), op="ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    found = ct.onnx.problems(b.model(), [4])
    assert list(texts(found)) == [
        "bwd_data,x=4x32x56x56,w=64x32x2x2,pad=0x0,stride=2x2,dilation=1x1,groups=1,nchw,f32,acc=f32",
        "bwd_data,x=4x16x112x112,w=32x16x3x3,pad=1x1,stride=2x2,dilation=1x1,groups=1,nchw,f32,acc=f32",
    ]
    # Each writes what the convolution reads, and reads what it writes.
    assert [p.y for p in found] == [(4, 64, 28, 28), (4, 32, 56, 56)]


def test_three_and_one_dimensions(ct):
    video = Builder(["n", 3, 16, 112, 112]).conv(
        (64, 3, 3, 7, 7), pads=[1, 3, 3, 1, 3, 3], strides=[1, 2, 2], dilations=[1, 1, 1]
    )
    assert list(texts(ct.onnx.problems(video.model(), [2]))) == [
        "fwd,x=2x3x16x112x112,w=64x3x3x7x7,pad=1x3x3,stride=1x2x2,dilation=1x1x1,groups=1,nchw,f32,acc=f32"
    ]
    audio = Builder(["n", 80, 3000]).conv((384, 80, 3), pads=[1, 1]).conv((384, 384, 3), pads=[2, 2], dilations=[2])
    assert list(texts(ct.onnx.problems(audio.model(), [1], runtime="plain"))) == [
        "fwd,x=1x80x1x3000,w=384x80x1x3,pad=0x1,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32",
        "fwd,x=1x384x1x3000,w=384x384x1x3,pad=0x2,stride=1x1,dilation=1x2,groups=1,nchw,f32,acc=f32",
    ]
    # ONNX Runtime makes two dimensions of one with a 1 behind it.
    assert list(texts(ct.onnx.problems(audio.model(), [1])))[1] == (
        "fwd,x=1x384x3000x1,w=384x384x3x1,pad=2x0,stride=1x1,dilation=2x1,groups=1,nchw,f32,acc=f32"
    )


@pytest.mark.parametrize(
    ("attributes", "pad"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, "0:1x0:1"),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, "1:0x1:0"),
        ({"auto_pad": "SAME_UPPER"}, "1x1"),
        ({"auto_pad": "SAME_UPPER", "dilations": [2, 1]}, "2x1"),
        ({"auto_pad": "VALID"}, "0x0"),
        ({"pads": [0, 1, 2, 3]}, "0:2x1:3"),
    ],
)
def test_pads_that_the_model_leaves_to_the_reader(ct, attributes, pad):
    model = Builder([1, 8, 20, 20]).conv((8, 8, 3, 3), **attributes).model()
    (problem,) = ct.onnx.problems(model)
    assert f",pad={pad}," in str(problem)
    # ONNX's own inference agrees on what comes out.
    inferred = onnx.shape_inference.infer_shapes(model)
    assert problem.y == tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)


@pytest.mark.parametrize(
    "attributes",
    [
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"output_shape": [40, 40], "strides": [2, 2]},
        {"pads": [0, 0, 1, 1], "strides": [2, 2]},
        {"dilations": [2, 2], "group": 4, "pads": [1, 1, 1, 1]},
    ],
)
def test_a_transposed_convolution_reads_what_the_convolution_writes(ct, attributes):
    group = attributes.get("group", 1)
    model = Builder([2, 8, 20, 20]).conv((8, 4, 3, 3), op="ConvTranspose", **attributes).model()
    (problem,) = ct.onnx.problems(model)
    inferred = onnx.shape_inference.infer_shapes(model)
    out = tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)
    assert (problem.operation, problem.x, problem.y) == ("bwd_data", out, (2, 8, 20, 20))
    assert problem.groups == group


def test_backward_adds_both_gradients(ct):
    model = Builder([1, 8, 20, 20]).conv((8, 8, 3, 3)).model()
    assert [p.operation for p in ct.onnx.problems(model, backward=True)] == ["fwd", "bwd_data", "bwd_filter"]


def test_old_opsets_and_bodies_of_if(ct):
    assert len(ct.onnx.problems(residual().model(opset=9), [1], runtime="plain")) == 3
    branch = helper.make_graph([node("Conv", ["x", "w0"], "y", name="inner")], "b", [], [tensor("y", None)])
    b = Builder([1, 8, 20, 20])
    b.weight((8, 8, 3, 3))
    b.inputs.append(tensor("c", [], TensorProto.BOOL))
    b.nodes.append(node("If", ["c"], "out", then_branch=branch, else_branch=branch))
    b.last = "out"
    assert list(texts(ct.onnx.problems(b.model())).values()) == [2]


def test_what_cannot_be_told_is_a_clear_error(ct, tmp_path):
    path = residual().save(tmp_path / "r.onnx")
    whole = path.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.onnx").write_bytes(whole[:length])
        assert "cut.onnx: is no ONNX model, or is cut short" in refusal(ct, tmp_path / "cut.onnx"), length
    (tmp_path / "text.onnx").write_text("this is no model")
    assert "text.onnx: is no ONNX model" in refusal(ct, tmp_path / "text.onnx")
    assert "nowhere.onnx: cannot be read" in refusal(ct, tmp_path / "nowhere.onnx")
    free = Builder(["n", 8, "height", 20]).conv((8, 8, 3, 3)).model()
    assert "needs a size for height" in refusal(ct, free)
    assert [p.x for p in ct.onnx.problems(free, dims={"height": 30})] == [(1, 8, 30, 20)]
    assert "shape inference failed" in refusal(ct, Builder([1, 8, 20, 20]).conv((8, 9, 3, 3, 3)).model())


def test_sizes_of_one_run_and_of_several(ct):
    free = Builder(["n", 8, "height", "width"]).conv((8, 8, 3, 3), pads=[1, 1, 1, 1]).model()

    def sizes(**options):
        return [(p.x[0], *p.x[2:]) for p in ct.onnx.problems(free, **options)]

    assert sizes(dims={"height": [32, 64], "width": range(20, 41, 20)}) == [
        (1, 32, 20), (1, 32, 40), (1, 64, 20), (1, 64, 40),
    ]  # fmt: skip
    together = [{"height": 32, "width": 20}, {"height": 64, "width": 40}]
    assert sizes(dims=together, batch_sizes=[1, 4]) == [(1, 32, 20), (4, 32, 20), (1, 64, 40), (4, 64, 40)]
    for wrong in ([], [32, 0], "32", 1.5):
        assert "dims: height must be a whole number from 1" in refusal(ct, free, dims={"height": wrong, "width": 9})


def test_the_command_reads_ranges_of_sizes_and_refuses(ct, tmp_path, capsys):
    from convtune.__main__ import main

    path = Builder(["n", 8, "height", "width"]).conv((8, 8, 3, 3)).save(tmp_path / "m.onnx")
    assert main(["problems", str(path), "--batch", "1,4..8/4", "--dim", "height,width=32..64/32"]) == 0
    shapes = [line.split(",")[1] for line in capsys.readouterr().out.splitlines()]
    assert shapes == [f"x={n}x8x{size}x{size}" for size in (32, 64) for n in (1, 4, 8)]
    wrong = {"--batch": ["8..1", "0"], "--dim": ["height=8..9/0", "=8", "h"]}
    for option, value, rule in [*((o, v, "must") for o, values in wrong.items() for v in values), ("--dtype", "f8", "invalid choice")]:
        with pytest.raises(SystemExit) as stop:
            main(["problems", str(path), option, value])
        assert stop.value.code == 2
        assert f"argument {option}: {rule}" in capsys.readouterr().err
    (tmp_path / "x.onnx").write_bytes(b"\x00")
    assert main(["problems", str(tmp_path / "x.onnx")]) == 2
    assert "x.onnx: is no ONNX model" in capsys.readouterr().err


def test_the_command_prints_a_line_for_each_run(tmp_path):
    path = residual().save(tmp_path / "r.onnx")
    result = python_package.run("-m", "convtune", "problems", path, "--batch", "1,8", "--dtype", "f16")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 14 and result.stdout.count("f16") == 14


def test_without_onnx_the_command_says_what_to_install(tmp_path):
    path = residual().save(tmp_path / "r.onnx")
    (tmp_path / "onnx.py").touch()  # an onnx that has no inliner, as the releases before 1.15
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{python_package.install()}"}
    result = python_package.run("-m", "convtune", "problems", path, env=env)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: No module named 'onnx.inliner'"), result.stderr
    assert "pip install 'onnx>=1.15'" in result.stderr
    project = (python_package.REPO / "client" / "python" / "pyproject.toml").read_text()
    assert 'onnx = ["onnx>=1.15"]' in project
