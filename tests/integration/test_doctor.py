"""convtune doctor, and the database's care, beside a daemon that serves."""

import signal
import subprocess
import threading

import pytest

from harness.daemon import free_port
from harness.fakes import script
from harness.look_ups import LookUps
from harness.problems import numbered


def findings(result):
    """{severity: [what and advice]} of its JSON."""
    found = {}
    for each in result.json()["findings"]:
        found.setdefault(each["severity"], []).append(each["what"] + " -> " + each["advice"])
    return found


def has(lines, *words):
    return any(all(word in line for word in words) for line in lines)


def test_a_sound_installation_is_looked_at_all_over(fake_daemon, cli):
    daemon = fake_daemon(env=script(driver="13.0")).start()
    result = cli(daemon)("doctor", "--json")
    assert result.code == 0, result
    found = findings(result)
    assert "problem" not in found
    for words in (["socket"], ["readiness"], ["this program"], ["database in"], ["the disk of", " free"], ["gpu:0"],
                  ["driver for CUDA 13.0", "CUDA 13.0", "cuDNN 9."], ["snapshot in"], ["can read", "current.snapshot"],
                  ["fleet"]):  # fmt: skip
        assert has(found["ok"], *words), (words, found)
    assert has(found["ok"] + found.get("notice", []), "clock")


def test_what_keeps_programs_from_being_served_is_found(fake_daemon, cli, tmp_path):
    daemon = fake_daemon().start()
    switch = daemon.state_dir / "snapshot" / "disabled"
    switch.touch()
    assert has(findings(cli(daemon)("doctor", "--json"))["notice"], "served nothing", str(switch), "take it away")
    switch.unlink()
    # As in a container without the mount.
    elsewhere = cli(daemon, env={"CONVTUNE_SNAPSHOT": str(tmp_path / "nowhere")})
    notices = findings(elsewhere("doctor", "--json"))["notice"]
    assert has(notices, "programs here cannot read", "nowhere", "mount the daemon's folder read-only")


@pytest.mark.parametrize("care", ["check", "backup", "compact"])
def test_the_database_is_cared_for_while_it_serves(fake_daemon, cli, tmp_path, care):
    daemon = fake_daemon().start()
    with daemon.client() as client:
        client.tune(*(numbered(i) for i in range(20)))
        stopping, tuned = threading.Event(), []

        def tune():
            with daemon.client() as other:
                while not stopping.is_set():
                    tuned.append(other.tune(numbered(20 + len(tuned))).succeeded_count)

        tuner = threading.Thread(target=tune)
        with LookUps(daemon, numbered(0)) as look_ups:
            tuner.start()
            cli(daemon).ok("db", care, *(["copy.db"] if care == "backup" else []))
            stopping.set()
            tuner.join()
        assert look_ups.errors == [] and look_ups.count > 0 and tuned and all(tuned)
    if care == "backup":
        assert cli(daemon)("db", "backup", "copy.db").code == 1  # it is there already
        restored = fake_daemon()
        restored.state_dir.mkdir(parents=True)
        (name,) = [p.name for p in daemon.state_dir.iterdir() if p.suffix == ".db"]
        (restored.state_dir / name).write_bytes((daemon.state_dir / "backup/copy.db").read_bytes())
        restored.start()
        with restored.client() as client:
            assert all(r.WhichOneof("outcome") == "answer" for r in client.get(*(numbered(i) for i in range(20))))
            assert client.maintenance.CheckDatabase().ok


@pytest.mark.parametrize("over", ["unix", "tcp"])
def test_a_daemon_that_is_there_and_does_not_answer_is_not_to_be_started(daemons, convtune, certificates, over):
    where = f"localhost:{free_port()}"
    daemon = daemons("--devices", "none", "--listen", where, *certificates.server_flags()).start()
    tls = [f"--tls-{name}={certificates.path(file)}" for name, file in (("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key"))]
    address = [f"--address={daemon.address}"] if over == "unix" else [f"--address={where}", *tls]

    def run(verb):
        return subprocess.run([convtune, verb, *address, "--timeout=1s"], capture_output=True, text=True)

    daemon.process.send_signal(signal.SIGSTOP)
    for verb, words in (("list", "somebody listens there and does not answer: see what its process does"),
                        ("doctor", "somebody listens there and does not answer\n         -> see what its process does")):  # fmt: skip
        said = run(verb)
        assert said.returncode == 4 and words in said.stdout + said.stderr and "start a daemon" not in said.stdout + said.stderr, said
    daemon.process.send_signal(signal.SIGCONT)
    assert run("list").returncode == 0
    assert "does not answer" not in run("doctor").stdout
