"""convtune's API from its .proto files, without generated code."""

import pathlib
import subprocess
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import error_details_pb2, status_pb2

REPO = pathlib.Path(__file__).resolve().parents[3]
PROTO_DIR = REPO / "proto"


class Api:
    """Message classes by short name: api.BatchGetRequest."""

    def __init__(self):
        self._pool = descriptor_pool.DescriptorPool()
        with tempfile.NamedTemporaryFile(suffix=".pb") as out:
            files = sorted(str(p.relative_to(PROTO_DIR)) for p in PROTO_DIR.glob("convtune/*/*.proto"))
            subprocess.run(
                ["protoc", f"-I{PROTO_DIR}", "--include_imports", f"--descriptor_set_out={out.name}"] + files,
                check=True,
            )
            descriptors = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
        for file in descriptors.file:
            self._pool.Add(file)

    def __getattr__(self, name):
        descriptor = self._pool.FindMessageTypeByName(f"convtune.v1.{name}")
        return message_factory.GetMessageClass(descriptor)

    def of_worker(self, name):
        """A message class of the worker's protocol."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"convtune.worker.v1.{name}"))

    def enum_name(self, enum, number):
        return self._pool.FindEnumTypeByName(f"convtune.v1.{enum}").values_by_number[number].name

    def methods(self, service):
        """(name, request class, response class, server streaming) of each method."""
        for method in self._pool.FindServiceByName(f"convtune.v1.{service}").methods:
            yield (
                method.name,
                message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type),
                method.server_streaming,
            )


API = Api()


class Service:
    """Methods of one service: service.BatchGet(problems=[...], timeout=5)."""

    def __init__(self, channel, service):
        for name, request, response, streaming in API.methods(service):
            path = f"/convtune.v1.{service}/{name}"
            make = channel.unary_stream if streaming else channel.unary_unary
            call = make(
                path,
                request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
                response_deserializer=response.FromString,
            )
            setattr(self, name, self._wrap(call, request))
            setattr(self, name + "Raw", call)

    @staticmethod
    def _wrap(call, request):
        def invoke(timeout=60, metadata=None, **fields):
            return call(request(**fields), timeout=timeout, metadata=metadata)

        return invoke


class Client:
    """All services over one channel; usable as a context manager."""

    def __init__(self, address, credentials=None, options=()):
        options = [("grpc.max_receive_message_length", 256 << 20), ("grpc.use_local_subchannel_pool", 1), *options]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options=options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options=options)
        self.tuning = Service(self.channel, "TuningService")
        self.maintenance = Service(self.channel, "MaintenanceService")
        self.release = Service(self.channel, "ReleaseService")
        self.fleet = Service(self.channel, "FleetService")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.channel.close()

    def get(self, *texts, **fields):
        """BatchGet of problems in text form; returns the results."""
        return list(self.tuning.BatchGet(problems=[{"text": t} for t in texts], **fields).results)

    def winners(self, texts):
        """{text: winner} of what is answered."""
        found = zip(texts, self.get(*texts), strict=True)
        return {text: r.answer.winner.text for text, r in found if r.WhichOneof("outcome") == "answer"}

    def get_one(self, text, **fields):
        return self.get(text, **fields)[0]

    def tune(self, *texts, **fields):
        """Queues a tuning and waits for its end; returns the job's last state."""
        job = self.tuning.CreateTuningJob(problems=[{"text": t} for t in texts], **fields)
        for job in self.tuning.WatchTuningJob(name=job.name, timeout=120):
            pass
        return job

    def device(self):
        """The only device."""
        (device,) = self.tuning.ListDevices().devices
        return device

    def info(self):
        return self.maintenance.GetServerInfo(timeout=10)


def violations(error):
    """[(field, rule)] of the google.rpc.BadRequest that an RpcError carries."""
    found = []
    for detail in status_details(error):
        bad_request = error_details_pb2.BadRequest()
        if detail.Unpack(bad_request):
            found += [(v.field, v.description) for v in bad_request.field_violations]
    return found


def status_details(error):
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return list(status_pb2.Status.FromString(value).details)
    return []
