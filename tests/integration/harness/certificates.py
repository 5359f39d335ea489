"""A small authority of the tests: certificates of a server, of clients, of a stranger."""

import subprocess

import grpc


class Certificates:
    def __init__(self, directory):
        self.directory = directory
        for authority in ("ca", "stranger-ca"):
            self._openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 refuses an authority without it
            )  # fmt: skip
        self.make("server")
        self.make("client")
        self.make("stranger", authority="stranger-ca")

    def make(self, name, authority="ca", names="DNS:localhost,IP:127.0.0.1"):
        """A certificate with the common name `name` and, if any, alternative names."""
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        (self.directory / "ext").write_text(f"subjectAltName={names}\n" if names else "")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}.pem",
        )  # fmt: skip

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.directory, check=True, capture_output=True)

    def path(self, name):
        return self.directory / name

    def server_flags(self):
        return ("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"),
                "--tls-client-ca", self.path("ca.pem"))  # fmt: skip

    def credentials(self, name=None):
        def read(file):
            return self.path(file).read_bytes()

        if name is None:
            return grpc.ssl_channel_credentials(read("ca.pem"))
        return grpc.ssl_channel_credentials(read("ca.pem"), read(f"{name}.key"), read(f"{name}.pem"))
