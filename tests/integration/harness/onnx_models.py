"""ONNX models that are made node by node; weights have shapes and zeros."""

import math

import pytest
from onnx import TensorProto, helper

WIDTH = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.UINT8: 1}


def tensor(name, shape, elem_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem_type, shape)


def zeros(name, shape, elem_type=TensorProto.FLOAT):
    return helper.make_tensor(name, elem_type, shape, bytes(WIDTH[elem_type] * math.prod(shape)), raw=True)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


def conv(x="x", y="y", op="Conv", inputs=("w",), **attributes):
    """Of a kernel of 3x3; its output is as large as its input."""
    return node(op, [x, *inputs], y, name=f"{op}-{y}", pads=[1, 1, 1, 1], **attributes)


def model(nodes, inputs, *constants, outputs=("y",), elem_type=TensorProto.FLOAT, opset=17):
    graph = helper.make_graph(nodes, "g", inputs, [tensor(name, None, elem_type) for name in outputs], constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def refusal(ct, made, **options):
    """Why the package says that it cannot tell the problems of a model."""
    with pytest.raises(ct.ModelError) as error:
        ct.onnx.problems(made, **options)
    return str(error.value)
