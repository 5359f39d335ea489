r"""Asks a running convtuned for one convolution, knowing nothing but its address.

The message types come from the daemon itself, by server reflection:
    .venv/bin/python deploy/examples/first_call.py unix:/run/convtune/convtune.sock \
        "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
"""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

if len(sys.argv) != 3:
    print("usage: first_call.py ADDRESS PROBLEM", file=sys.stderr)
    sys.exit(2)
address, problem = sys.argv[1:]
channel = grpc.insecure_channel(address)
pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
method = pool.FindServiceByName("convtune.v1.TuningService").FindMethodByName("BatchGet")
request_type = message_factory.GetMessageClass(method.input_type)
response_type = message_factory.GetMessageClass(method.output_type)

batch_get = channel.unary_unary(
    "/convtune.v1.TuningService/BatchGet",
    request_serializer=request_type.SerializeToString,
    response_deserializer=response_type.FromString,
)
on_miss = pool.FindEnumTypeByName("convtune.v1.OnMiss").values_by_name
response = batch_get(
    request_type(
        problems=[{"text": problem}],
        constraints={"max_workspace_bytes": 64 << 20, "deterministic": True},
        on_miss=on_miss["ON_MISS_HEURISTIC"].number,
    ),
    timeout=60,
)
for result in response.results:
    print(result.problem_text)
    if result.WhichOneof("outcome") == "miss":
        print("  miss:", result.miss.message)
        continue
    evidence = result.answer.DESCRIPTOR.fields_by_name["evidence"].enum_type
    for candidate in result.answer.portfolio:
        print(f"  {candidate.text}  workspace {candidate.workspace_bytes} B")
    print(" ", evidence.values_by_number[result.answer.evidence].name, "in", result.answer.environment)
