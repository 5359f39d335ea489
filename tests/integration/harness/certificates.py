"""A small authority of the tests: certificates of a server, of clients, of a stranger."""

import datetime
import subprocess

import grpc

# x509 of openssl 3.0 has no date to begin on; ca has, and wants a folder's books.
CA_SETTINGS = """[ca]
default_ca=d
[d]
database=issued
new_certs_dir=.
rand_serial=yes
unique_subject=no
default_md=sha256
policy=p
[p]
commonName=supplied
"""


class Certificates:
    def __init__(self, directory):
        self.directory = directory
        self.path("ca.cnf").write_text(CA_SETTINGS)
        self.path("issued").touch()
        for authority in ("ca", "stranger-ca"):
            self._openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 refuses an authority without it
            )  # fmt: skip
        self.make("server")
        self.make("client")
        self.make("stranger", authority="stranger-ca")

    def make(self, name, authority="ca", names="DNS:localhost,IP:127.0.0.1", begins=-60, ends=2 * 86400):
        """A certificate with the common name `name` and, if any, alternative names; it holds from and until so many
        seconds after now. Returns its last second."""
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        (self.directory / "ext").write_text(f"subjectAltName={names}\n" if names else "")
        now = datetime.datetime.now(datetime.timezone.utc)
        start, end = (now + datetime.timedelta(seconds=seconds) for seconds in (begins, ends))
        self._openssl(
            "ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", f"{authority}.pem", "-keyfile", f"{authority}.key",
            "-startdate", f"{start:%Y%m%d%H%M%SZ}", "-enddate", f"{end:%Y%m%d%H%M%SZ}", "-extfile", "ext",
            "-in", f"{name}.csr", "-out", f"{name}.pem",
        )  # fmt: skip
        return end.replace(microsecond=0)

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


def key_pair(folder, name):
    """Files of an Ed25519 key that signs, and of its public part."""
    private, public = folder / name, folder / f"{name}.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return private, public
