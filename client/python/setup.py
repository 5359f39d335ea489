"""Makes convtune.v1 from the .proto files when the package is built."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"


class BuildWithMessages(build_py):
    def run(self):
        if not PROTO.is_dir():
            raise SystemExit(f"{PROTO} is not there: convtune is built in a checkout of the whole repository")
        super().run()
        from grpc_tools import protoc

        # The files' own package is ours: convtune/v1/x.proto becomes convtune/v1/x_pb2.py.
        arguments = ["protoc", f"-I{PROTO}", f"-I{protoc._get_resource_file_name('grpc_tools', '_proto')}"]
        arguments += [f"--{what}_out={self.build_lib}" for what in ("python", "pyi", "grpc_python")]
        arguments += sorted(str(file.relative_to(PROTO)) for file in PROTO.glob("convtune/v1/*.proto"))
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed")
        (pathlib.Path(self.build_lib) / "convtune" / "v1" / "__init__.py").touch()


setup(cmdclass={"build_py": BuildWithMessages})
