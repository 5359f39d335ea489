"""A client that knows nothing but server reflection."""

import subprocess
import sys

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from conftest import REPO
from harness.daemon import LIVENESS, READINESS
from harness.problems import numbered


class ReflectedClient:
    """Calls methods by name with message types that the server described."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self._database = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = descriptor_pool.DescriptorPool(self._database)

    def services(self):
        return list(self._database.get_services())

    def call(self, service, method, fields):
        descriptor = self._pool.FindServiceByName(service).FindMethodByName(method)
        request = message_factory.GetMessageClass(descriptor.input_type)(**fields)
        response = message_factory.GetMessageClass(descriptor.output_type)
        make = self.channel.unary_stream if descriptor.server_streaming else self.channel.unary_unary
        invoke = make(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return invoke(request, timeout=60)


@pytest.fixture
def reflected(fake_daemon):
    client = ReflectedClient(fake_daemon().start().address)
    yield client
    client.channel.close()


def test_reflection_lists_the_services(reflected):
    assert {
        "convtune.v1.TuningService",
        "convtune.v1.MaintenanceService",
        "convtune.v1.FleetService",
        "grpc.health.v1.Health",
    } <= set(reflected.services())


@pytest.mark.parametrize("service", ["", LIVENESS, READINESS], ids=["server", "liveness", "readiness"])
def test_health_by_reflection(reflected, service):
    reply = reflected.call("grpc.health.v1.Health", "Check", {"service": service})
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_unknown_health_service_is_not_found(reflected):
    with pytest.raises(grpc.RpcError) as error:
        reflected.call("grpc.health.v1.Health", "Check", {"service": "no-such-service"})
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_batch_get_and_watch_by_reflection(reflected):
    service = "convtune.v1.TuningService"
    problems = [{"text": numbered(i)} for i in range(3)]
    missed = reflected.call(service, "BatchGet", {"problems": problems})
    assert [r.WhichOneof("outcome") for r in missed.results] == ["miss"] * 3

    job = reflected.call(service, "CreateTuningJob", {"problems": problems})
    states = list(reflected.call(service, "WatchTuningJob", {"name": job.name}))
    succeeded = states[-1].DESCRIPTOR.fields_by_name["state"].enum_type.values_by_name["JOB_STATE_SUCCEEDED"]
    assert states[-1].state == succeeded.number
    assert states[-1].succeeded_count == 3

    found = reflected.call(service, "BatchGet", {"problems": problems})
    assert [r.WhichOneof("outcome") for r in found.results] == ["answer"] * 3
    assert [r.problem_text.split(",")[1] for r in found.results] == [p["text"].split(",")[1] for p in problems]


def test_the_example_of_a_first_call_prints_an_answer_and_its_usage(fake_daemon):
    example = [sys.executable, REPO / "deploy" / "examples" / "first_call.py"]
    daemon = fake_daemon().start()
    asked = subprocess.run([*example, daemon.address, numbered(1)], capture_output=True, text=True, timeout=120)
    assert asked.returncode == 0 and "HEURISTIC in " in asked.stdout, asked
    refused = subprocess.run(example, capture_output=True, text=True, timeout=120)
    assert (refused.returncode, refused.stderr) == (2, "usage: first_call.py ADDRESS PROBLEM\n")
