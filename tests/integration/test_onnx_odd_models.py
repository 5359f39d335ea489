"""convtune.onnx and models that are not as simple as they look: what is refused, and what is said."""

import sys

import onnx
import pytest
from onnx import TensorProto, helper

from harness import python_package


@pytest.fixture(scope="module")
def ct():
    sys.path.insert(0, str(python_package.install()))
    import convtune.onnx

    return convtune.onnx


def tensor(name, shape, elem_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem_type, shape)


def model(nodes, inputs, *more, output="y"):
    """Weights w are 8x8x3x3; `more` are further initializers."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (8, 8, 3, 3), bytes(8 * 8 * 9 * 4), raw=True)
    graph = helper.make_graph(nodes, "g", inputs, [tensor(output, None)], [weight, *more])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def conv(x="x", y="y", op="Conv", inputs=("w",), **attributes):
    return helper.make_node(op, [x, *inputs], [y], name=f"{op}-{y}", pads=[1, 1, 1, 1], **attributes)


def reshaped(*dims):
    """A network whose first convolution follows the batch, and whose second does not."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(dims)], dims)
    nodes = [conv(y="a"), helper.make_node("Reshape", ["a", "shape"], ["b"]), conv("b", "y")]
    return nodes, shape


def refusal(ct, made, **options):
    from convtune import ModelError

    with pytest.raises(ModelError) as error:
        ct.problems(made, **options)
    return str(error.value)


def test_other_inputs_may_have_a_fixed_first_dimension(ct):
    made = model([conv(), helper.make_node("Identity", ["t"], ["u"])], [tensor("x", ["N", 8, 9, 9]), tensor("t", [1])])
    assert [p.x[0] for p in ct.problems(made, [8, 2])] == [8, 2]
    fixed = model([conv(), helper.make_node("Identity", ["t"], ["u"])], [tensor("x", [4, 8, 9, 9]), tensor("t", [1])])
    assert [p.x[0] for p in ct.problems(fixed, [4])] == [4]
    assert "the model has the fixed batch 4, asked for is 8" in refusal(ct, fixed, batch_sizes=[8])


@pytest.mark.parametrize("batches", [[0], [-1], [1, 0], [1.5], [True], []])
def test_a_batch_that_is_none_is_refused(ct, batches):
    made = model([conv()], [tensor("x", ["N", 8, 9, 9])])
    assert "batch_sizes: must be whole numbers from 1" in refusal(ct, made, batch_sizes=batches)


def test_a_dimension_that_no_input_has_is_refused(ct):
    made = model([conv()], [tensor("x", ["N", 8, "height", 9])])
    message = refusal(ct, made, dims={"hieght": 9})
    assert "dims: no input has a dimension named 'hieght'; those that it has: N, height" in message
    assert "dims: height must be a whole number from 1, is 0" in refusal(ct, made, dims={"height": 0})


def test_a_convolution_without_weights_is_refused(ct):
    for inputs, count in (((), 1), (("",), 1)):
        made = model([conv(inputs=inputs)], [tensor("x", [1, 8, 9, 9])])
        message = refusal(ct, made)
        assert f"node Conv-y (Conv): must have an input and weights, has {count} of the two" in message


@pytest.mark.parametrize("shape", [(1, 8, 9, 9), (1, 8, -1, 9)])
def test_a_batch_that_is_written_into_the_model_is_said(ct, shape):
    nodes, constant = reshaped(*shape)
    found = ct.problems(model(nodes, [tensor("x", ["N", 8, 9, 9])], constant), [4, 8])
    assert [p.x[0] for p in found][0] == 4
    (notice,) = found.notices
    assert "node Conv-y (Conv): its batch is 1 whatever the model's is" in notice and "Reshape" in notice


def test_a_model_that_is_of_one_batch_throughout_is_refused(ct):
    shape = helper.make_tensor("shape", TensorProto.INT64, [4], [1, 8, -1, 9])
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["b"]), conv("b")]
    made = model(nodes, [tensor("x", ["N", 8, 9, 9])], shape)
    message = refusal(ct, made, batch_sizes=[4])
    assert "node Conv-y (Conv): batch_sizes: asked for is 4, but its batch is 1" in message
    # As it is, without a word on the batch, it can be read.
    assert [p.x[0] for p in ct.problems(made)] == [1]


def test_a_batch_that_is_folded_into_windows_follows(ct):
    nodes, constant = reshaped(-1, 8, 3, 3)
    found = ct.problems(model(nodes, [tensor("x", ["N", 8, 9, 9])], constant), [2])
    assert ([p.x[0] for p in found], found.notices) == ([2, 18], [])


def test_onnx_runtimes_fused_convolutions_count_as_what_they_were(ct):
    nodes = [
        conv(y="a", op="FusedConv", domain="com.microsoft", activation="Relu"),
        conv("a", "y", strides=[2, 2]),
    ]
    made = model(nodes, [tensor("x", ["N", 8, 9, 9])])
    before = made.SerializeToString()
    plain = model([conv(y="a"), conv("a", "y", strides=[2, 2])], [tensor("x", ["N", 8, 9, 9])])
    assert dict(ct.problems(made, [2]).items()) == dict(ct.problems(plain, [2]).items())
    assert made.SerializeToString() == before, "the caller's model was changed"


def test_other_domains_convolutions_are_left_out_with_a_notice(ct):
    nodes = [conv(y="a", op="NhwcConv", domain="com.microsoft"), conv()]
    found = ct.problems(model(nodes, [tensor("x", [1, 8, 9, 9])]))
    assert len(found) == 1
    assert found.notices == [
        "model: node NhwcConv-a (NhwcConv): left out, it is no operator of ONNX but of com.microsoft"
    ]
    behind = model([nodes[0], conv("a")], [tensor("x", [1, 8, 9, 9])])
    message = refusal(ct, behind)
    assert "the shape of a is not known: NhwcConv writes it, of which only com.microsoft knows" in message
