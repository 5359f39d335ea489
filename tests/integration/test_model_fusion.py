"""Operations that runtimes fuse with a convolution: as problems of a model, and as the interposer sees them."""

import dataclasses

import pytest
from onnx import TensorProto, helper

from harness import onnx_models
from harness.onnx_models import node, tensor, zeros
from harness.preload import Problem as RawProblem


def network(nodes, *constants, elem_type=TensorProto.FLOAT, outputs=("y",)):
    """Nodes behind x, of 64 channels; w is 64x64x3x3 and b a bias."""
    weights = [zeros("w", (64, 64, 3, 3), elem_type), zeros("b", (64,), elem_type)]
    inputs = [tensor("x", ["n", 64, 14, 14], elem_type)]
    return onnx_models.model(nodes, inputs, *weights, *constants, outputs=outputs, elem_type=elem_type)


def conv(x, y, bias=True, more=(), **attributes):
    return onnx_models.conv(x, y, inputs=["w", *(["b"] if bias else []), *more], **attributes)


def relu(**options):
    return network([conv("x", "a", **options), node("Relu", ["a"], "y")])


def residual(conv_first=True):
    """A convolution whose output is added to its input."""
    return network([conv("x", "a"), node("Add", ["a", "x"] if conv_first else ["x", "a"], "s"), node("Relu", ["s"], "y")])


def normalised():
    constants = [zeros(name, (64,)) for name in ("scale", "shift", "mean", "var")]
    norm = node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], "c")
    return network([conv("x", "a", bias=False), norm, node("Relu", ["c"], "y")], *constants)


def shifted(shape):
    """A constant is added, which runtimes make a bias if it is one for each channel."""
    return network([conv("x", "a", bias=False), node("Add", ["a", "k"], "s"), node("Relu", ["s"], "y")], zeros("k", shape))


def broadcast():
    """The added tensor has one value for each channel, and is no constant."""
    nodes = [conv("x", "a"), node("GlobalAveragePool", ["x"], "p"), node("Add", ["a", "p"], "s"), node("Relu", ["s"], "y")]
    return network(nodes)


def read_twice():
    return network([conv("x", "a"), node("Relu", ["a"], "y"), node("Sigmoid", ["a"], "z")], outputs=("y", "z"))


def epilogues(ct, model, **options):
    return [p.epilogue for p in ct.onnx.problems(model, [2], **options)]


PLAIN, ADDED, RELU, BIAS = "", "add+bias+relu", "bias+relu", "bias"


@pytest.mark.parametrize(
    ("model", "onnxruntime", "fused"),
    [
        (relu(), [ADDED, PLAIN], [RELU]),
        (relu(bias=False), [ADDED, PLAIN], [PLAIN]),
        (network([conv("x", "y")]), [PLAIN], [BIAS]),
        (residual(), [ADDED, PLAIN], [ADDED]),
        (residual(conv_first=False), [ADDED, PLAIN], [ADDED]),
        (normalised(), [ADDED, PLAIN], [RELU]),
        (shifted((1, 64, 1, 1)), [ADDED, PLAIN], [RELU]),
        (shifted((64, 1, 1)), [ADDED, PLAIN], [RELU]),
        (shifted(()), [ADDED, PLAIN], [RELU]),
        (shifted((14, 14)), [PLAIN], [PLAIN]),
        (broadcast(), [PLAIN], [BIAS]),
        (read_twice(), [PLAIN], [BIAS]),
        (network([conv("x", "a"), node("Sigmoid", ["a"], "y")]), [PLAIN], [BIAS]),
        (network([conv("x", "y"), node("Relu", ["y"], "z")], outputs=("y", "z")), [PLAIN], [BIAS]),
        (network([conv("x", "y", op="FusedConv", domain="com.microsoft", activation="Relu")]), [ADDED, PLAIN], [RELU]),
        (network([conv("x", "y", op="FusedConv", domain="com.microsoft", activation="Relu", more=["x"])]),
         [ADDED, PLAIN], [ADDED]),
    ],
)  # fmt: skip
def test_each_runtimes_forms(ct, model, onnxruntime, fused):
    assert epilogues(ct, model) == onnxruntime
    assert epilogues(ct, model, runtime="fused") == fused
    assert epilogues(ct, model, runtime="plain") == [PLAIN]


def test_onnx_runtime_fuses_by_type_and_layout(ct):
    assert epilogues(ct, relu(), layout="nhwc") == [RELU, PLAIN]
    assert epilogues(ct, residual(), layout="nhwc") == [ADDED, PLAIN]
    assert epilogues(ct, relu(), dtype="f16") == [PLAIN]
    single, half = (network([conv("x", "y")], elem_type=t) for t in (TensorProto.FLOAT, TensorProto.FLOAT16))
    assert epilogues(ct, single, layout="nhwc", runtime="onnxruntime-fuse-bias") == [BIAS, PLAIN]
    assert epilogues(ct, single, runtime="onnxruntime-fuse-bias") == [PLAIN]
    # cuDNN has no engine for the graph that it would be.
    assert epilogues(ct, half, layout="nhwc", runtime="onnxruntime-fuse-bias") == [PLAIN]


def test_a_fused_problem_is_counted_once_for_each_run_and_gradients_are_not_fused(ct):
    twice = network([conv("x", "a"), node("Relu", ["a"], "c"), conv("c", "d"), node("Relu", ["d"], "y")])
    found = ct.onnx.problems(twice, [2], backward=True)
    assert [(p.operation, p.epilogue, count) for p, count in found.items()] == [
        ("fwd", "add+bias+relu", 2), ("fwd", "", 2), ("bwd_data", "", 2), ("bwd_filter", "", 2),
    ]  # fmt: skip


def test_what_is_behind_a_body_or_read_in_one_is_not_fused(ct):
    inner = helper.make_graph([node("Relu", ["a"], "r")], "b", [], [tensor("r", None)])
    nodes = [conv("x", "a"), node("If", ["c"], "y", then_branch=inner, else_branch=inner)]
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    assert epilogues(ct, network(nodes, condition)) == [PLAIN]
    # Nor where a body reads it as well.
    made = network([*nodes[:1], node("Relu", ["a"], "z"), nodes[1]], condition, outputs=("y", "z"))
    assert epilogues(ct, made) == [PLAIN]


def test_a_problem_says_its_epilogue(ct):
    plain = ct.Problem("fwd", (1, 64, 14, 14), (64, 64, 1, 1), (0, 0), (0, 0), (1, 1), (1, 1), dtype="f16", layout="nhwc")
    fused = dataclasses.replace(plain, epilogue="bias", mid="f16", acc="f16")
    assert "epilogue=bias" in str(fused) and "mid=f16" in str(fused) and "acc=f16" in str(fused)
    text = "fwd,x=1x64x14x14,w=64x64x1x1,nhwc,f16,acc=f16,epilogue=bias,mid=f16"
    assert ct.problem_key.parse(str(fused)) == ct.problem_key.parse(text) != ct.problem_key.parse(str(plain))
    for wrong, field in (
        ({"epilogue": "relu"}, "epilogue"), ({"mid": "f16"}, "mid"), ({"operation": "bwd_data", "epilogue": "bias"}, "epilogue"),
        ({"out": "f8"}, "out"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{field}: must be"):
            dataclasses.replace(plain, **wrong)


def test_a_fused_problem_is_the_one_that_the_interposer_sees(ct):
    """As the program that builds ONNX Runtime's graph and PyTorch's says it: see harness/preload.py."""
    (fused, _) = ct.onnx.problems(residual(), [32])
    raw = RawProblem(x=(32, 64, 14, 14), type="f32", nhwc=False, epilogue="add+bias+relu")
    assert ct.problem_key.parse(str(fused)) == ct.problem_key.parse(raw.text)
