"""A disk that is full, or that cannot be written: what is known is served, what cannot be kept says so."""

import contextlib
import os
import re
import subprocess

import grpc
import pytest

from harness.cudnn_shapes import library
from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered, numbered_list


def fill(path):
    """Takes all the space there is, to the last byte."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_degrades_and_recovers_without_a_restart(fake_daemon, mounts, short_dir, cli, tmp_path):
    disk = short_dir / "disk"
    disk.mkdir()
    mounts("-t", "tmpfs", "-o", "size=16m", "none", disk)
    daemon = fake_daemon(f"--backup-dir={short_dir / 'copies'}", "--backup-every=1s", env=script())
    daemon.state_dir = disk / "state"
    daemon.start()
    assert cli(daemon).ok("db", "backup", "before.db").err.startswith("wrote ")
    wait_until(lambda: re.search(r" info .*backup: wrote \S+\n", daemon.log()), 30, "a backup of the schedule")
    before, during, after = numbered_list(0, 20), numbered_list(100, 20), numbered_list(200, 20)
    with daemon.client() as client:
        for result in client.get(*before, on_miss="ON_MISS_TUNE"):
            assert result.answer.persisted
        known = client.winners(before)
        fill(disk / "filler")
        unkept = client.get(*during, on_miss="ON_MISS_TUNE")
        assert [(r.answer.persisted, r.answer.stands_in) for r in unkept] == [(False, False)] * 20
        assert not client.info().writable
        job = client.tune(numbered(300))
        assert job.succeeded_count == 1 and not job.persisted
        got = cli(daemon)("get", numbered(100), numbered(302), "--on-miss", "heuristic", "--csv")
        assert got.code == 1 and "error: 2 results are not on disk, and lost with the daemon" in got.err, got
        assert cli(daemon).ok("get", before[0]).err == ""
        # 20, of the job and of the heuristic.
        wait_until(lambda: re.search(r" warn(ing)? .*backup: wrote \S+ without 22 results", daemon.log()), 30, "a warning of the schedule")
        model = tmp_path / "model.txt"
        model.write_text("\n".join([numbered(300), numbered(301)]))
        for tuned in (1, 0):
            result = cli(daemon)("warm", model, "--json")
            assert result.code == 1 and "the model is not warm" in result.err, result
            summary = result.json()
            assert (summary["tuned"], summary["notOnDisk"], summary["warm"]) == (tuned, 2, False)
        backup = cli(daemon)("db", "backup", "during.db")
        assert backup.code == 1 and "error: the database takes no results: 23 are in memory only" in backup.err, backup
        check = cli(daemon)("db", "check")
        assert check.code == 1 and "sound" in check.err and "23 are in memory only" in check.err, check
        assert "takes no results; 23 wait" in cli(daemon)("doctor").out
        known.update({t: r.answer.winner.text for t, r in zip(during, unkept, strict=True)})
        for _ in range(100):
            assert client.winners(before + during) == known
        (disk / "filler").unlink()
        wait_until(lambda: client.info().writable, 30, "the disk taken back into use")
        for result in client.get(*after, on_miss="ON_MISS_TUNE"):
            assert result.answer.persisted
        known.update(client.winners(after))
        pid = client.info().pid
    assert daemon.pid == pid
    daemon.kill()
    daemon.start()
    with daemon.client() as client:
        assert client.winners(before + during + after) == known
        assert client.maintenance.CheckDatabase().ok


@pytest.mark.parametrize("left", ["pending_log", "closed", "nothing"])
def test_a_read_only_volume_serves(fake_daemon, mounts, left):
    texts = numbered_list(0, 20)
    daemon = fake_daemon(env=script())
    known = {}
    if left == "nothing":
        daemon.state_dir.mkdir()
    else:
        daemon.start()
        with daemon.client() as client:
            client.get(*texts, on_miss="ON_MISS_TUNE")
            known = client.winners(texts)
        daemon.kill() if left == "pending_log" else daemon.stop()
        assert (daemon.state_dir / "convtune.db-wal").exists() == (left == "pending_log")
    mounts("--bind", daemon.state_dir, daemon.state_dir)
    subprocess.run(["mount", "-o", "remount,ro,bind", daemon.state_dir], check=True)
    with pytest.raises(OSError):
        (daemon.state_dir / "probe").write_text("")
    daemon.start()
    with daemon.client() as client:
        assert not client.info().writable
        assert re.search(r" error .*the database takes no results", daemon.log(), re.IGNORECASE), daemon.log()
        assert client.winners(texts) == known
        answer = client.get_one(numbered(100), on_miss="ON_MISS_TUNE").answer
        assert answer.winner.text and not answer.persisted
        assert client.winners([numbered(100)]) == {numbered(100): answer.winner.text}
        assert not client.info().writable
        with pytest.raises(grpc.RpcError) as error:
            client.tuning.Pin(problem={"text": numbered(100)}, candidate=answer.winner.text, reason="x")
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert daemon.stop() == 0
    assert re.search(r" error .*: 1 results are lost", daemon.log()) or "1 results are lost" in daemon.log(), daemon.log()


def test_a_network_file_system_is_refused_and_can_be_allowed(fake_daemon, tmp_path):
    """The daemon is told a file system's type by a library in front of statfs."""
    nfs = library(
        tmp_path / "nfs.so",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <sys/vfs.h>\n"
        "int statfs(const char* path, struct statfs* out) {\n"
        '  int (*real)(const char*, struct statfs*) = dlsym(RTLD_NEXT, "statfs");\n'
        "  const int result = real(path, out);\n  out->f_type = 0x6969;\n  return result;\n}\n",
        "-ldl",
    )
    env = {"LD_PRELOAD": str(nfs), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    daemon = fake_daemon(env=script())
    daemon.start(wait=False, env=env)
    assert daemon.process.wait(20) != 0
    daemon.process = None
    assert "network file system (NFS)" in daemon.log() and str(daemon.state_dir) in daemon.log()
    assert "--allow-network-fs" in daemon.log()
    daemon.args.append("--allow-network-fs")
    daemon.start(env=env)
    assert os.path.exists(daemon.state_dir / "convtune.db")
