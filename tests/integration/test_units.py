"""The systemd units, as far as they can be had without systemd: their commands with their variables, as processes."""

import contextlib
import os
import re
import subprocess

import pytest

from conftest import PROGRAMS, REPO
from harness.daemon import wait_until

UNITS = REPO / "deploy" / "systemd"


def settings(unit, key):
    return re.findall(rf"^{key}=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)


def variables(unit, root, file=""):
    """What systemd gives the program: Environment=, then the file, which wins; folders are beneath `root`."""
    text = (UNITS / unit).read_text()
    assert settings(unit, "EnvironmentFile")[0].startswith("-/etc/default/")
    found = dict(line.split("=", 1) for line in settings(unit, "Environment"))
    found = {name: re.sub(r"/(run|var)/", rf"{root}/\1/", value) for name, value in found.items()}
    for folder in re.findall(r"^StateDirectory=(\S+)$", text, re.MULTILINE):
        found["STATE_DIRECTORY"] = f"{root}/var/lib/{folder}"
    found |= dict(line.split("=", 1) for line in file.splitlines())
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CONVTUNE", "STATE_"))}
    return {**clean, **found}


def command(unit):
    (line,) = settings(unit, "ExecStart")
    program, *arguments = line.split()
    return [PROGRAMS / program.rpartition("/")[2], *arguments]


def flags(unit):
    return [word for word in command(unit)[1:] if word.startswith("-")]


@contextlib.contextmanager
def running(directory, file=""):
    """convtuned as its unit runs it, until all of it that listens does."""
    assert flags("convtuned.service") == []  # with which this would not stay in `directory`
    env = variables("convtuned.service", directory, "CONVTUNE_DEVICES=none\n" + file)
    process = subprocess.Popen(command("convtuned.service"), env=env, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: process.poll() is not None or " info listening on " in process.stderr.readline(), 60, "it listens")
        yield
    finally:
        process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def test_the_unit_listens_and_keeps_its_state_where_everybody_looks(convtuned, short_dir):
    assert settings("convtuned.service", "RuntimeDirectory") == ["convtune"]
    (short_dir / "run/convtune").mkdir(parents=True)
    with running(short_dir):
        assert (short_dir / "run/convtune/convtune.sock").is_socket()
    assert (short_dir / "var/lib/convtune/convtune.db").exists()


def test_the_file_of_variables_moves_the_sockets_and_the_state(convtuned, short_dir):
    file = f"CONVTUNE_LISTEN=unix:{short_dir}/a.sock,unix:{short_dir}/b.sock\nCONVTUNE_STATE_DIR={short_dir}/elsewhere\n"
    with running(short_dir, file):
        assert (short_dir / "a.sock").is_socket() and (short_dir / "b.sock").is_socket()
    assert (short_dir / "elsewhere/convtune.db").exists()
    assert not (short_dir / "run").exists() and not (short_dir / "var").exists()


def test_an_empty_variable_leaves_the_socket_to_the_configuration_file(convtuned, short_dir):
    config = short_dir / "c.toml"
    config.write_text(f'listen = ["unix:{short_dir}/toml.sock"]\n')
    with running(short_dir, f"CONVTUNE_LISTEN=\nCONVTUNED_CONFIG={config}"):
        assert (short_dir / "toml.sock").is_socket()


def test_the_drivers_modules_are_loaded_before_the_unit_is_allowed_its_devices():
    """systemd.resource-control(5): device groups that are not there when a unit starts are not allowed later either."""
    groups = [value.split()[0] for value in settings("convtuned.service", "DeviceAllow")]
    modules = {f"modprobe@{group.removeprefix('char-').replace('-', '_')}.service" for group in groups}
    # The others are groups of the module nvidia.
    modules -= {"modprobe@nvidia_caps.service", "modprobe@nvidia_frontend.service"}
    assert modules == {"modprobe@nvidia.service", "modprobe@nvidia_uvm.service"}
    for key in ("Wants", "After"):
        assert modules <= {unit for line in settings("convtuned.service", key) for unit in line.split()}, key


@pytest.mark.parametrize("unit", ["convtuned.service", "convtune-fleet.service"])
def test_no_flag_of_a_unit_beats_the_file_of_variables(unit):
    assert flags(unit) == []


def test_the_agents_unit_asks_the_units_daemon():
    listens = variables("convtuned.service", "")["CONVTUNE_LISTEN"]
    assert variables("convtune-fleet.service", "")["CONVTUNE_ADDRESS"] == listens
