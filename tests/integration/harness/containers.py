"""What manifests and the compose file say, run as processes: the same arguments, variables and volumes."""

import json
import os
import pathlib
import re
import shlex
import subprocess

import yaml

DOCKER = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "docker"


def stages(text):
    """Name of each stage of a Dockerfile to its lines."""
    found, name = {}, None
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if match := re.match(r"FROM (\S+)(?: AS (\S+))?", line):
            name = match[2]
            found[name] = [line]
        elif name and line and not line.startswith("#"):
            found[name].append(line)
    return found


def image(name):
    """Entrypoint and variables of a stage of ours, with those of the stages below it."""
    found = stages((DOCKER / "Dockerfile").read_text())
    entrypoint, variables, below = [], {}, []
    while name in found:
        below.append(name)
        name = found[name][0].split()[1]
    for stage in reversed(below):
        for line in found[stage]:
            if line.startswith("ENV "):
                variables.update(word.split("=", 1) for word in shlex.split(line[4:]))
            elif line.startswith("ENTRYPOINT "):
                entrypoint = json.loads(line[11:])
    return entrypoint, variables


class Mounts:
    """Where the folders of a container are on this machine: {path in the container: path here}."""

    def __init__(self, folders):
        self._folders = {str(inside): str(here) for inside, here in folders.items()}

    def __call__(self, text):
        """A path, or a text with one, as this machine has it."""
        for inside in sorted(self._folders, key=len, reverse=True):
            text, replaced = re.subn(rf"(?<![\w./-]){re.escape(inside)}(?=/|$)", self._folders[inside], str(text))
            if replaced:
                break
        return text


def pod_mounts(container, volumes):
    """Of a container of a manifest; `volumes` are the pod's: {name: folder here}."""
    return Mounts({
        mount["mountPath"]: pathlib.Path(volumes[mount["name"]]) / mount.get("subPath", "")
        for mount in container["volumeMounts"]
    })  # fmt: skip


class Compose:
    """Services of the compose file; their volumes are folders of `directory`, which outlive them. `env` goes before theirs."""

    def __init__(self, programs, directory, env=None):
        self._env = env or {}
        self._programs = programs
        self._directory = pathlib.Path(directory)
        self._services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
        self._running = {}
        self._made = 0

    def mounts(self, name):
        service = self._services[name]
        folders = {}
        for volume in service.get("volumes", []):
            source, inside = volume.split(":")[:2]
            folders[inside] = DOCKER / source if source.startswith(".") else self._folder(source)
        for mount in service.get("tmpfs", []):
            self._made += 1
            folders[mount.split(":")[0]] = self._folder(f"tmpfs{self._made}")
        return Mounts(folders)

    def _folder(self, name):
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        return folder

    def _command(self, name, extra):
        service, mounts = self._services[name], self.mounts(name)
        target = {s["image"]: s["build"]["target"] for s in self._services.values() if "build" in s}[service["image"]]
        entrypoint, variables = image(target)
        variables |= service.get("environment", {})
        env = {k: v for k, v in os.environ.items() if not k.startswith("CONVTUNE_")}
        for key, value in variables.items():
            if key.startswith(("CONVTUNE_", "PG")):
                env[key] = mounts(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value))
        env |= self._env
        program, *arguments = service.get("entrypoint", entrypoint) + service.get("command", []) + extra
        return [str(self._programs / program), *map(mounts, arguments)], env

    def up(self, name):
        command, env = self._command(name, [])
        with open(self._directory / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, name, *extra):
        """To its end; what it printed."""
        command, env = self._command(name, list(extra))
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (command, done)
        return done.stdout

    def remove(self, name):
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(60) == 0, (self._directory / f"{name}.log").read_text()[-2000:]

    def close(self):
        for process in self._running.values():
            process.kill()
            process.wait()
