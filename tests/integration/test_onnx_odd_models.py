"""convtune.onnx and models that are not as simple as they look: what is refused, and what is said."""

import onnx
import pytest
from onnx import TensorProto, helper

from harness import onnx_models, python_package
from harness.onnx_models import conv, node, refusal, tensor, zeros


def model(nodes, inputs, *constants):
    """w is 8x8x3x3."""
    return onnx_models.model(nodes, inputs, zeros("w", (8, 8, 3, 3)), *constants)


def reshaped(*dims):
    """A network whose first convolution follows the batch, and whose second does not."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(dims)], dims)
    nodes = [conv(y="a"), node("Reshape", ["a", "shape"], "b"), conv("b", "y")]
    return nodes, shape


def test_other_inputs_may_have_a_fixed_first_dimension(ct):
    made = model([conv(), node("Identity", ["t"], "u")], [tensor("x", ["N", 8, 9, 9]), tensor("t", [1])])
    assert [p.x[0] for p in ct.onnx.problems(made, [8, 2])] == [8, 2]
    fixed = model([conv(), node("Identity", ["t"], "u")], [tensor("x", [4, 8, 9, 9]), tensor("t", [1])])
    assert [p.x[0] for p in ct.onnx.problems(fixed, [4])] == [4]
    assert "the model has the fixed batch 4, asked for is 8" in refusal(ct, fixed, batch_sizes=[8])


def test_a_weight_that_is_an_input_gets_no_batch(ct):
    nodes = [conv(y="a", inputs=("k", "b")), conv("a")]
    inputs = [tensor("x", ["N", 8, 9, 9]), tensor("k", ["K", 8, 3, 3]), tensor("b", ["K"])]
    made = model(nodes, inputs)
    message = refusal(ct, made, batch_sizes=[2])
    assert message == "model: dims: input k needs a size for K: it is no data, and the batch is not for it"
    found = ct.onnx.problems(made, batch_sizes=[2], dims={"K": 8})
    assert [(p.x[0], p.w[0]) for p in found] == [(2, 8)]
    # Weights that are computed of an input are none of the data either.
    turned = node("Transpose", ["k"], "t", perm=[1, 0, 2, 3])
    made = model([turned, conv(inputs=("t",))], [tensor("x", ["N", 8, 9, 9]), tensor("k", [8, "K", 3, 3])])
    assert [p.w for p in ct.onnx.problems(made, [4], dims={"K": 16})] == [(16, 8, 3, 3)]


def test_a_dimension_without_a_name_is_given_by_its_place(ct, tmp_path, capsys):
    made = model([conv()], [tensor("x", [None, 8, None, None])])
    assert refusal(ct, made).startswith("model: dims: input x needs a size for x:2")
    assert "those that it has: x:0, x:2, x:3" in refusal(ct, made, dims={"H": 9})
    found = ct.onnx.problems(made, [4], dims={"x:2": 9, "x:3": [7, 8]})
    assert [p.x for p in found] == [(4, 8, 9, 7), (4, 8, 9, 8)]
    from convtune.__main__ import main

    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert main(["problems", str(path), "--dim", "x:2,x:3=9"]) == 0
    assert capsys.readouterr().out.startswith("fwd,x=1x8x9x9,")


def test_what_no_convolution_depends_on_needs_no_size(ct):
    nodes = [conv(), node("Relu", ["tokens"], "u")]
    made = model(nodes, [tensor("x", ["N", 8, 9, 9]), tensor("tokens", ["sequence", "width"])])
    assert [p.x[0] for p in ct.onnx.problems(made, [4])] == [4]


def integer_convolution():
    weight, x = zeros("w8", (8, 8, 3, 3), TensorProto.UINT8), tensor("x", ["N", 8, 9, 9], TensorProto.UINT8)
    return onnx_models.model([node("ConvInteger", ["x", "w8"], "y")], [x], weight, elem_type=TensorProto.INT32)


def deformable_convolution():
    deform = node("DeformConv", ["x", "w", "o"], "y", kernel_shape=[3, 3])
    inputs = [tensor("x", ["N", 8, 9, 9]), tensor("o", ["N", 18, 7, 7])]
    return onnx_models.model([deform], inputs, zeros("w", (8, 8, 3, 3)), opset=19)


def no_convolution():
    return model([node("Relu", ["x"], "y")], [tensor("x", ["N", 8])])


@pytest.mark.parametrize(
    ("make", "reasons", "verdict"),
    [
        (integer_convolution, ["cuDNN's 8-bit convolutions have no zero points"], "0 of 1 convolutions can be tuned"),
        (deformable_convolution, ["cuDNN has no deformable convolution"], "0 of 1 convolutions can be tuned"),
        (no_convolution, [], "it has no convolution"),
    ],
)
def test_a_model_of_which_nothing_can_be_tuned_is_not_warm(ct, make, reasons, verdict, fake_daemon, tmp_path):
    found = ct.onnx.problems(make(), [2])
    assert len(found) == 0 and found.left_out == len(reasons)
    assert [notice.partition(": left out, ")[2] for notice in found.notices[:-1]] == reasons
    assert found.notices[-1] == f"model: there is nothing to tune: {verdict}"
    daemon = fake_daemon().start()
    with ct.Client(daemon.address) as client:
        summary = ct.warm(make(), client, batch_sizes=[2])
        assert not summary.is_warm and verdict in str(summary)
    none, good = tmp_path / "none.onnx", tmp_path / "good.onnx"
    onnx.save(make(), none)
    onnx.save(model([conv()], [tensor("x", ["N", 8, 9, 9])]), good)
    # Nor is it beside a model that becomes warm.
    options = ("--batch", "2", "--address", daemon.address)
    done = python_package.run("-m", "convtune", "warm", none, good, *options)
    assert done.returncode == 1 and f"none.onnx: there is nothing to tune: {verdict}" in done.stderr, done
    assert python_package.run("-m", "convtune", "warm", good, *options).returncode == 0


def test_dequantized_convolutions_are_said(ct):
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])
    nodes = [
        node("QuantizeLinear", ["x", "s"], "q"), node("DequantizeLinear", ["q", "s"], "d"),
        conv("d", "a"), conv("a", "b"), node("QuantizeLinear", ["b", "s"], "r"),
        node("DequantizeLinear", ["r", "s"], "e"), conv("e"),
    ]  # fmt: skip
    found = ct.onnx.problems(model(nodes, [tensor("x", ["N", 8, 9, 9])], scale), [2])
    assert [(p.dtype, count) for p, count in found.items()] == [("f32", 3)]
    (notice,) = found.notices
    assert notice.startswith("model: node Conv-a (Conv) and 1 more: counted as convolutions of the dequantized type")


def test_an_empty_batch_is_a_clear_error(ct):
    made = model([conv()], [tensor("x", [0, 8, 9, 9])])
    assert refusal(ct, made) == "model: node Conv-y (Conv): x: must not be empty, has the shape 0x8x9x9"
    with pytest.raises(ValueError, match="x: must be at least 1 in every dimension, is 0x3x9x9"):
        ct.Problem("fwd", (0, 3, 9, 9), (8, 3, 3, 3), (0, 0), (0, 0), (1, 1), (1, 1))


@pytest.mark.parametrize("batches", [[0], [-1], [1, 0], [1.5], [True], []])
def test_a_batch_that_is_none_is_refused(ct, batches):
    made = model([conv()], [tensor("x", ["N", 8, 9, 9])])
    assert "batch_sizes: must be whole numbers from 1" in refusal(ct, made, batch_sizes=batches)


def test_a_dimension_that_no_input_has_is_refused(ct):
    made = model([conv()], [tensor("x", ["N", 8, "height", 9])])
    message = refusal(ct, made, dims={"hieght": 9})
    assert "dims: no input has a dimension named 'hieght'; those that it has: N, height" in message


def test_a_convolution_without_weights_is_refused(ct):
    for inputs, count in (((), 1), (("",), 1)):
        made = model([conv(inputs=inputs)], [tensor("x", [1, 8, 9, 9])])
        message = refusal(ct, made)
        assert f"node Conv-y (Conv): must have an input and weights, has {count} of the two" in message


@pytest.mark.parametrize("shape", [(1, 8, 9, 9), (1, 8, -1, 9)])
def test_a_batch_that_is_written_into_the_model_is_said(ct, shape):
    nodes, constant = reshaped(*shape)
    found = ct.onnx.problems(model(nodes, [tensor("x", ["N", 8, 9, 9])], constant), [4, 8])
    assert [p.x[0] for p in found][0] == 4
    (notice,) = found.notices
    assert "node Conv-y (Conv): its batch is 1 whatever the model's is" in notice and "Reshape" in notice


def test_a_model_that_is_of_one_batch_throughout_is_refused(ct):
    shape = helper.make_tensor("shape", TensorProto.INT64, [4], [1, 8, -1, 9])
    nodes = [node("Reshape", ["x", "shape"], "b"), conv("b")]
    made = model(nodes, [tensor("x", ["N", 8, 9, 9])], shape)
    message = refusal(ct, made, batch_sizes=[4])
    assert "node Conv-y (Conv): batch_sizes: asked for is 4, but its batch is 1" in message
    # As it is, without a word on the batch, it can be read.
    assert [p.x[0] for p in ct.onnx.problems(made)] == [1]


def test_a_batch_that_is_folded_into_windows_follows(ct):
    nodes, constant = reshaped(-1, 8, 3, 3)
    found = ct.onnx.problems(model(nodes, [tensor("x", ["N", 8, 9, 9])], constant), [2])
    assert ([p.x[0] for p in found], found.notices) == ([2, 18], [])


def test_onnx_runtimes_fused_convolutions_count_as_what_they_were(ct):
    nodes = [
        conv(y="a", op="FusedConv", domain="com.microsoft", activation="Relu"),
        conv("a", "y", strides=[2, 2]),
    ]
    made = model(nodes, [tensor("x", ["N", 8, 9, 9])])
    before = made.SerializeToString()
    plain = model([conv(y="a"), conv("a", "y", strides=[2, 2])], [tensor("x", ["N", 8, 9, 9])])
    assert dict(ct.onnx.problems(made, [2], runtime="plain").items()) == dict(ct.onnx.problems(plain, [2]).items())
    assert made.SerializeToString() == before, "the caller's model was changed"


def test_other_domains_convolutions_are_left_out_with_a_notice(ct):
    nodes = [conv(y="a", op="NhwcConv", domain="com.microsoft"), conv()]
    found = ct.onnx.problems(model(nodes, [tensor("x", [1, 8, 9, 9])]))
    assert len(found) == 1
    assert found.notices == [
        "model: node NhwcConv-a (NhwcConv): left out, it is no operator of ONNX but of com.microsoft"
    ]
    behind = model([nodes[0], conv("a")], [tensor("x", [1, 8, 9, 9])])
    message = refusal(ct, behind)
    assert "the shape of a is not known: NhwcConv writes it, of which only com.microsoft knows" in message


def test_what_one_node_cannot_leaves_the_others(ct):
    """Both are legal ONNX: an output_shape beyond what the input reaches, and a convolution of whole numbers."""
    nodes = [
        node("ConvTranspose", ["x", "w"], "a", name="grown", strides=[2, 2], output_shape=[19, 20]),
        node("Cast", ["x"], "i", to=TensorProto.INT32), node("Cast", ["w"], "k", to=TensorProto.INT32),
        node("Conv", ["i", "k"], "b", name="whole"), conv(),
    ]  # fmt: skip
    made = model(nodes, [tensor("x", ["N", 8, "H", 9])])
    found = ct.onnx.problems(made, [1, 2], dims={"H": [9, 8]})
    assert (len(found), found.left_out) == (4, 2)
    for option in ("dtype", "layout"):
        assert refusal(ct, made, dims={"H": 9}, **{option: "bogus"}).startswith(f"model: {option}: must be one of ")
    assert found.notices == [
        "model: node grown (ConvTranspose): left out, pads: cuDNN has no negative ones, are [0, 0] and [0, -1]",
        "model: node whole (Conv): left out, no cuDNN convolution has inputs of type INT32",
    ]


def test_pads_that_nodes_compute_from_constants_are_known(ct):
    """As torch.onnx.export writes torch.nn.functional.pad."""
    ints = lambda name, *values: helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    nodes = [
        node("ConstantOfShape", ["four"], "zeros"),
        node("Concat", ["ones", "zeros"], "low_and_high", axis=0),
        node("Reshape", ["low_and_high", "pairs"], "by_end"),
        node("Slice", ["by_end", "last", "first", "zero", "back"], "turned"),
        node("Transpose", ["turned"], "columns", perm=[1, 0]),
        node("Reshape", ["columns", "flat"], "row"),
        node("Cast", ["row"], "pads", to=TensorProto.INT64),
        node("Pad", ["x", "pads"], "padded", mode="edge"),
        conv("padded", "y"),
    ]
    constants = [ints("four", 4), ints("ones", 0, 1, 0, 1), ints("pairs", -1, 2), ints("last", -1), ints("first", -(2**63) + 1),
                 ints("zero", 0), ints("back", -1), ints("flat", -1)]  # fmt: skip
    problems = ct.onnx.problems(model(nodes, [tensor("x", ["n", 8, 16, 16])], *constants), batch_sizes=[4])
    assert [str(p) for p in problems][0].startswith("fwd,x=4x8x17x17,w=8x8x3x3"), list(problems)


def test_a_large_tensor_of_sizes_is_not_computed(ct):
    """A shape of 2^40 elements is refused as unknown, and takes no memory."""
    size = helper.make_tensor("size", TensorProto.INT64, [1], [2**40])
    nodes = [node("ConstantOfShape", ["size"], "zeros"), node("Pad", ["x", "zeros"], "p"), conv("p", "y")]
    with pytest.raises(ct.ModelError, match="not known|shape inference failed"):
        ct.onnx.problems(model(nodes, [tensor("x", ["n", 8, 16, 16])], size), batch_sizes=[4])


def test_weights_are_not_copied_into_the_inference_of_shapes(ct, monkeypatch):
    made = model([conv(y="a"), conv("a", inputs=("large",))], [tensor("x", ["n", 8, 16, 16])], zeros("large", (1024, 8, 3, 3)))
    before, sizes, infer = made.SerializeToString(), [], onnx.shape_inference.infer_shapes
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda m, **kw: sizes.append(m.ByteSize()) or infer(m, **kw))
    problems = ct.onnx.problems(made, batch_sizes=[4])
    assert len(problems) == 2
    assert sizes and max(sizes) < 10_000 < len(before)
    assert made.SerializeToString() == before
