"""A PostgreSQL server of our own, from Debian's packages."""

import contextlib
import os
import pathlib
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading


def programs():
    """The folder of initdb and pg_ctl, or None."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return pathlib.Path(path).resolve().parent if path else None


def why_not():
    """Why there can be no server here, or None."""
    if programs() is None or shutil.which("psql") is None:
        return "PostgreSQL is not installed (deploy/install-deps --tests brings it)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "PostgreSQL does not run as root, and there is no user postgres"
        if shutil.which("setpriv") is None:
            return "PostgreSQL does not run as root, and setpriv is missing"
    return None


class Server:
    """On a unix socket alone; everybody who reaches its folder may log in."""

    def __init__(self, settings=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ct-pg-"))
        self._settings = "".join(f" -c {setting}" for setting in settings)
        self.as_user = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.folder.chmod(0o755)
        self._databases = 0
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def data(self):
        return self.folder / "data"

    def _run(self, name, *args):
        done = subprocess.run(
            [*self.as_user, str(programs() / name), *map(str, args)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout.decode()

    def start(self):
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=200" + self._settings
        # pg_ctl's server keeps its output open: to a file, not to our pipe.
        done = subprocess.run(
            [*self.as_user, str(programs() / "pg_ctl"), "-D", str(self.data), "-w", "-t", "60", "-o", options,
             "-l", str(self.folder / "log"), "start"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, (self.folder / "log").read_text()

    def stop(self, mode="fast"):
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    @contextlib.contextmanager
    def hung(self):
        """Every process of the server stopped, as on a machine that is stuck; they go on at the end."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        children = pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split()
        everybody = [first, *map(int, children)]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in everybody:
                os.kill(pid, signal.SIGCONT)

    def close(self):
        subprocess.run([*self.as_user, str(programs() / "pg_ctl"), "-D", str(self.data), "-m", "immediate", "stop"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self):
        """Makes an empty database; returns its connection string."""
        self._databases += 1
        name = f"fleet{self._databases}"
        psql(f"host={self.folder} user=postgres dbname=postgres", f"CREATE DATABASE {name}")
        return f"host={self.folder} user=postgres dbname={name}"


class Proxy:
    """Stands before a server's socket; once it swallows, no byte passes any more, and nobody is told."""

    def __init__(self, server):
        self._target = str(server.folder / ".s.PGSQL.5432")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ct-px-"))
        self._swallows = threading.Event()
        self._ends = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / ".s.PGSQL.5432"))
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def conninfo(self, conninfo):
        return " ".join([f"host={self.folder}", *(w for w in conninfo.split() if not w.startswith("host="))])

    def swallow(self):
        self._swallows.set()

    def pass_on(self):
        """For new connections; those from before stay dead."""
        self._swallows.clear()

    def _accept(self):
        while not self._ends.is_set():
            if not select.select([self._listener], [], [], 0.1)[0]:
                continue
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            thread = threading.Thread(target=self._carry, args=(client, server), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _carry(self, client, server):
        with client, server:
            while not self._ends.is_set():
                for source in select.select([client, server], [], [], 0.1)[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if not self._swallows.is_set():
                        (server if source is client else client).sendall(data)
                if self._swallows.is_set():
                    self._ends.wait()  # not even the end of one side gets to the other

    def close(self):
        self._ends.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Pooler:
    """PgBouncer before a server; a client has its name in a connection string in place of the server's."""

    def __init__(self, server, mode):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ct-pb-"))
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "ini").write_text(
            f"[databases]\n* = host={server.folder}\n[pgbouncer]\nlisten_addr =\nlisten_port = 5432\nauth_type = trust\n"
            f"unix_socket_dir = {self.folder}\nauth_file = {self.folder}/users\npool_mode = {mode}\nserver_round_robin = 1\n"
        )  # fmt: skip
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.folder.chmod(0o755)
        self._process = subprocess.Popen(
            [*server.as_user, shutil.which("pgbouncer"), "-q", str(self.folder / "ini")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip

    def conninfo(self, conninfo):
        return " ".join([f"host={self.folder}", *(w for w in conninfo.split() if not w.startswith("host="))])

    def close(self):
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def psql(conninfo, sql):
    """Rows of the statement as lists of texts."""
    done = subprocess.run(
        ["psql", "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "ON_ERROR_STOP=1", "-c",
         f"SET search_path TO convtune; {sql}" if "CREATE DATABASE" not in sql else sql, conninfo],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split("\x1f") for line in done.stdout.splitlines() if line]


class Session:
    """A connection that stays open, so that transactions can overlap."""

    def __init__(self, conninfo):
        self._process = subprocess.Popen(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", conninfo],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
        )  # fmt: skip
        self("SET search_path TO convtune;")

    def send(self, sql):
        """Without waiting for its end."""
        self._process.stdin.write(sql + "\n\\echo ::end\n")
        self._process.stdin.flush()

    def result(self):
        """Lines of the statement that was sent."""
        lines = []
        while (line := self._process.stdout.readline()) != "::end\n":
            assert line, "psql ended"
            lines.append(line.rstrip("\n"))
        return lines

    def __call__(self, sql):
        self.send(sql)
        return self.result()

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
