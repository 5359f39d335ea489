"""Bundles through the programs: out of one daemon, into another, beneath a third."""

import json
import os
import shutil
import subprocess
import tarfile
import time

import pytest

from harness.certificates import key_pair
from harness.clock import WallClock
from harness.daemon import wait_until

PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in range(1, 6)]


@pytest.fixture
def tuned(fake_daemon, cli):
    """A daemon with tunings of PROBLEMS, and its command line."""
    daemon = fake_daemon().start()
    run = cli(daemon)
    run.ok("tune", *PROBLEMS)
    return daemon, run


def winners(run):
    return {t["problemText"]: (t["winner"], t["evidence"]) for t in run.ok("list", "--json").json()["tunings"]}


def test_export_verify_import_and_again(tuned, bare_daemon, cli, tmp_path):
    _, run = tuned
    bundle = tmp_path / "a.bundle"
    run.ok("export", bundle)
    verified = cli().ok("verify", bundle, "--json").json()["bundles"][0]
    assert (verified["tunings"], verified["signer"], verified["refusals"]) == (5, "", [])

    other = cli(bare_daemon.start())
    first = other.ok("import", bundle, "--json").json()["imports"][0]
    assert first["takenCount"] == "5"
    bare_daemon.kill()
    bare_daemon.start()
    assert winners(other) == winners(run)
    again = other.ok("import", bundle, "--json").json()["imports"][0]
    assert (again.get("takenCount", "0"), again["keptCount"]) == ("0", "5")
    answer = other.ok("get", PROBLEMS[0], "--json").json()["results"][0]["answer"]
    assert answer["origin"] == "ORIGIN_IMPORTED"
    assert len(other.ok("explain", PROBLEMS[0], "--json").json()["tuning"]["candidates"]) > 1

    # What the other daemon exports is the same, byte for byte.
    other.ok("export", tmp_path / "b.bundle")
    assert (tmp_path / "b.bundle").read_bytes() == bundle.read_bytes()
    assert not list(tmp_path.glob("*.part-*"))


def test_export_and_merge_leave_files_of_other_kinds_alone(tuned, cli, tmp_path):
    _, run = tuned
    bundle, thesis = tmp_path / "a.bundle", tmp_path / "thesis.txt"
    run.ok("export", bundle)
    thesis.write_text("years of work")
    for command in (("export", thesis), ("export", thesis, "--jsonl"), ("merge", thesis, bundle)):
        result = run(*command)
        assert result.code == 2 and f"{thesis} is a file that this command did not write" in result.err, result
        assert thesis.read_text() == "years of work"
    run.ok("export", tmp_path / "lines.jsonl")
    for again in (bundle, tmp_path / "lines.jsonl"):
        run.ok("export", again)
    run.ok("merge", bundle, bundle)


def test_what_cannot_be_exported_leaves_no_file(tuned, cli, tmp_path):
    _, run = tuned
    for arguments, code in ((["--environment", "NO NAME"], 2), (["--environment", "no-such"], 3),
                            (["--sign-key", tmp_path / "no-key"], 2)):  # fmt: skip
        result = run("export", tmp_path / "x", *arguments)
        assert result.code == code, result
    assert run("export", tmp_path / "no-folder" / "x").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_bundle_is_refused_with_its_place_and_nothing_is_taken(tuned, bare_daemon, cli, tmp_path):
    _, run = tuned
    run.ok("export", tmp_path / "a")
    other, damaged, sound = cli(bare_daemon.start()), tmp_path / "damaged", (tmp_path / "a").read_bytes()
    middle = len(sound) // 2
    for data in (sound[:-10], sound[:middle] + bytes([sound[middle] ^ 0x10]) + sound[middle + 1 :]):
        damaged.write_bytes(data)
        result = other("import", damaged)
        assert result.code == 2 and "error: bundle: damaged at byte " in result.err, result
        assert f"\n{damaged} was not imported\n" in result.err, result
        assert cli()("verify", damaged).code == 1
    assert winners(other) == {}


def test_merge_takes_every_problem_once(fake_daemon, tuned, cli, tmp_path):
    _, run = tuned
    run.ok("export", tmp_path / "a")
    second = cli(fake_daemon().start())
    second.ok("tune", PROBLEMS[0], "fwd,x=9x64x56x56,w=64x64x3x3,pad=1,nhwc,f16")
    second.ok("export", tmp_path / "b")
    merged = cli().ok("merge", tmp_path / "m", tmp_path / "a", tmp_path / "b", "--json").json()
    assert (merged["read"], merged["written"], merged["superseded"]) == (7, 6, 1)
    cli().ok("verify", tmp_path / "m")


def test_signatures(tuned, daemons, cli, tmp_path):
    _, run = tuned
    private, public = key_pair(tmp_path, "key")
    _, other_public = key_pair(tmp_path, "other")
    run.ok("export", tmp_path / "unsigned")
    run.ok("export", tmp_path / "signed", "--sign-key", private)
    cli().ok("verify", tmp_path / "signed", "--public-key", public)
    result = cli()("verify", tmp_path / "signed", "--public-key", other_public)
    signed = tmp_path / "signed"
    assert result.code == 1 and f"error: {signed}: is signed by " in result.err and "trusted" in result.err, result

    strict = cli(daemons("--devices", "none", "--bundle-key", public).start())
    result = strict("import", tmp_path / "unsigned")
    assert result.code == 1 and "error: bundle: is not signed, and must be" in result.err, result
    nowhere = strict("import", tmp_path / "nowhere")
    assert nowhere.code == 2 and f"error: {tmp_path / 'nowhere'}: cannot be read: No such file" in nowhere.err, nowhere
    assert winners(strict) == {}
    strict.ok("import", tmp_path / "signed")
    assert len(winners(strict)) == 5


def test_json_lines_are_stable_and_complete(tuned, cli, tmp_path):
    _, run = tuned
    run.ok("export", tmp_path / "a.jsonl")
    run.ok("export", tmp_path / "a")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["tuning"]["problemText"] for line in lines if "tuning" in line] == sorted(winners(run))
    assert cli().ok("verify", tmp_path / "a", "--jsonl").out == (tmp_path / "a.jsonl").read_text()


def test_a_base_is_served_and_never_written(tuned, daemons, cli, tmp_path):
    _, run = tuned
    base = tmp_path / "base"
    run.ok("export", base)
    before = base.read_bytes()
    base.chmod(0o444)
    daemon = daemons("--devices", "none", "--base", base).start()
    run_base = cli(daemon)
    assert winners(run_base) == winners(run)
    run_base.ok("get", *PROBLEMS)
    # What a base has cannot be deleted, and the daemon says that nothing was.
    deleted = run_base("delete", PROBLEMS[0], "--json")
    assert (deleted.code, deleted.json()["deleted"]) == (3, 0), deleted
    run_base.ok("get", PROBLEMS[0])
    run_base.ok("pin", PROBLEMS[0], winners(run)[sorted(winners(run))[0]][0], "--reason", "test")
    assert base.read_bytes() == before


@pytest.mark.parametrize("content", [b"no bundle", None])
def test_a_base_that_cannot_be_read_is_said_at_start(daemons, tmp_path, content):
    base = tmp_path / "base"
    if content is not None:
        base.write_bytes(content)
    daemon = daemons("--devices", "none", "--base", base).start(wait=False)
    assert daemon.wait(30) == 1
    assert "--base: " in daemon.log() and str(base) in daemon.log()


def test_warm_restarts(fake_daemon, daemons, cli, tmp_path, short_dir):
    """Tuned once; then a new daemon on the same state, then one on a base bundle alone."""
    models = tmp_path / "model.txt"
    models.write_text("\n".join(PROBLEMS) + "\n")
    first = fake_daemon().start()
    run = cli(first)
    cold = run.ok("warm", models, "--json").json()
    assert (cold["problems"], cold["hits"], cold["tuned"], cold["warm"]) == (5, 0, 5, True)
    run.ok("export", tmp_path / "base")
    first.stop()

    state = short_dir / "again"
    shutil.copytree(first.directory, state, ignore=shutil.ignore_patterns("s", "log"))
    for daemon in (fake_daemon(directory=state), fake_daemon("--base", tmp_path / "base")):
        run = cli(daemon.start())
        warm = run.ok("warm", models, "--json").json()
        assert (warm["hits"], warm["tuned"], warm["warm"]) == (5, 0, True)
        assert run.ok("get", "--file", models).code == 0
        info = daemon.client().info()
        assert (info.worker_starts, info.worker_requests) == (0, 0)
        assert info.hits == info.lookups > 0
        wait_until(lambda d=daemon: not d.workers(), 10, "no worker")
        daemon.stop()


def test_a_row_that_breaks_a_rule_is_named_and_the_others_are_taken(fake_daemon, bare_daemon, cli, tmp_path):
    """One of the tunings was made while the node's clock was a month ahead."""
    clock = WallClock(tmp_path)
    daemon = fake_daemon(env=clock.env).start()
    run = cli(daemon)
    run.ok("tune", *PROBLEMS[:2])
    clock.step(30 * 86400)
    time.sleep(5)  # Abseil looks at the system's clock every two seconds or so
    run.ok("tune", PROBLEMS[2])
    bundle = tmp_path / "node.bundle"
    run.ok("export", bundle)
    other = cli(bare_daemon.start())
    result = other("import", bundle, "--json")
    assert result.code == 1, result
    assert "refused for its time: 1" in result.err and "tune_time: must be a Timestamp from 1970 to now" in result.err
    (left_out,) = set(winners(run)) - set(winners(other))
    assert f", {left_out}: tune_time: " in result.err
    assert "took 2 of 3 tunings" in result.err and "refused 1" in result.err
    assert len(winners(other)) == 2 and left_out.startswith("fwd,x=3x64")


def skopeo(*args):
    subprocess.run(["skopeo", "--insecure-policy", *args], check=True, capture_output=True, text=True)


def test_a_bundle_as_an_oci_image_goes_through_a_registrys_tool(tuned, bare_daemon, cli, tmp_path):
    _, run = tuned
    private, _ = key_pair(tmp_path, "key")
    image = tmp_path / "image"
    run.ok("export", image, "--oci", "--sign-key", private)
    run.ok("export", tmp_path / "plain", "--sign-key", private)
    bundle = (tmp_path / "plain").read_bytes()
    # What skopeo reads: the manifest by its digest, with what the image is of.
    manifest = json.loads(subprocess.run(["skopeo", "inspect", "--raw", f"oci:{image}"], check=True, capture_output=True).stdout)
    assert manifest["artifactType"] == "application/vnd.convtune.bundle.v1"
    said = manifest["annotations"]
    assert (said["convtune.gpus"], said["convtune.cudnns"], said["convtune.tunings"]) == ("NVIDIA H200", "9.19.0", "5")
    assert said["convtune.sha256"] == cli().ok("verify", tmp_path / "plain", "--json").json()["bundles"][0]["sha256"]
    # The file, as a container that mounts the image sees it.
    (layer,) = manifest["layers"]
    with tarfile.open(image / "blobs" / "sha256" / layer["digest"].removeprefix("sha256:")) as tar:
        assert tar.getnames() == ["tunings.bundle"] and tar.extractfile("tunings.bundle").read() == bundle
    # A registry's copy is compressed.
    skopeo("copy", "--dest-compress", f"oci:{image}", f"dir:{tmp_path / 'dir'}")
    skopeo("copy", f"dir:{tmp_path / 'dir'}", f"oci:{tmp_path / 'copy'}:latest")
    copied = json.loads(subprocess.run(["skopeo", "inspect", "--raw", f"oci:{tmp_path / 'copy'}:latest"], check=True, capture_output=True).stdout)
    assert "gzip" in copied["layers"][0]["mediaType"] and copied["annotations"] == said
    other = cli(bare_daemon.start())
    assert other.ok("import", tmp_path / "copy", "--json").json()["imports"][0]["takenCount"] == "5"
    assert other.ok("import", image, "--json").json()["imports"][0]["keptCount"] == "5"
    assert winners(other) == winners(run)
    result = run("export", image, "--oci")
    assert result.code == 2 and f"FILE: with --oci {image} must not exist" in result.err, result
    assert not list(tmp_path.glob("*.part*"))


def test_an_oci_layout_is_on_disk_before_it_has_its_name(tuned, convtune, tmp_path):
    daemon, _ = tuned
    source = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void say(const char* what, const struct stat* of) {
  FILE* log = fopen(getenv("SYNC_LOG"), "a");
  fprintf(log, "%s %lu\\n", what, (unsigned long)of->st_ino);
  fclose(log);
}
int fsync(int fd) {
  struct stat of;
  if (fstat(fd, &of) == 0) say("fsync", &of);
  if (getenv("SYNC_FAILS")) return errno = EIO, -1;
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int rename(const char* from, const char* to) {
  struct stat of;
  if (stat(from, &of) == 0) say("rename", &of);
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""
    shim, log, image = tmp_path / "shim.so", tmp_path / "log", tmp_path / "image"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", shim], input=source, text=True, check=True)
    env = {**os.environ, "CONVTUNE_ADDRESS": daemon.address, "LD_PRELOAD": str(shim), "SYNC_LOG": str(log)}
    subprocess.run([convtune, "export", image, "--oci"], check=True, capture_output=True, env=env)
    said = log.read_text().splitlines()
    named = said.index(f"rename {image.stat().st_ino}")
    written = [image, *image.rglob("*")]
    assert len(written) == 8, written
    assert [p for p in written if f"fsync {p.stat().st_ino}" not in said[:named]] == []
    assert f"fsync {tmp_path.stat().st_ino}" in said[named:]
    # A disk that fails is no daemon that does not answer, which would be 4.
    for path, *options in ((tmp_path / "second", "--oci"), (tmp_path / "bundle",)):
        failed = subprocess.run([convtune, "export", path, *options], capture_output=True, text=True, env={**env, "SYNC_FAILS": "1"})
        assert failed.returncode == 1 and "fsync: Input/output error" in failed.stderr, failed
        assert not path.exists() and list(tmp_path.glob("*.part*")) == []


def test_an_oci_layout_without_a_bundle_is_one_clear_error(tuned, tmp_path):
    _, run = tuned
    good = tmp_path / "good"
    run.ok("export", good, "--oci")
    (digest,) = [m["digest"] for m in json.loads((good / "index.json").read_text())["manifests"]]
    manifest = good / "blobs" / "sha256" / digest.removeprefix("sha256:")
    layer = good / "blobs" / "sha256" / json.loads(manifest.read_text())["layers"][0]["digest"].removeprefix("sha256:")
    whole = layer.read_bytes()
    index = (good / "index.json").read_bytes()

    def refused(words, code=2):
        result = run("import", good)
        assert result.code == code and words in result.err and result.err.count("error:") == 1, result

    for text in (b"", b"[]", b'{"manifests": []}', b'{"manifests": [{"digest": "sha256:../../x"}]}', b'{"manifests": [{"digest": 3}]}', index[:-4]):
        (good / "index.json").write_bytes(text)
        refused(f"{good}: must hold one image")
    (good / "index.json").write_bytes(index)
    layer.write_bytes(whole[:700])
    refused(f"{good}: its layer ends too early", 1)
    layer.write_bytes(whole[:100])
    refused("its layer must be a tar archive")
    layer.write_bytes(whole.replace(b"tunings.bundle", b"tunings.bundlf", 1))
    refused("that begins with tunings.bundle")
    damaged = bytearray(whole)
    damaged[900] ^= 1
    layer.write_bytes(damaged)
    refused("damaged at byte")
    layer.unlink()
    refused("its layer must be a file")
    os.mkfifo(layer)
    refused("its layer must be a file")
    manifest.write_text(json.dumps({"manifests": [{"digest": digest}], "mediaType": "application/vnd.oci.image.index.v1+json"}))
    refused(f"{good}: must hold one image, but {digest} is a list of images")
    manifest.write_text(json.dumps({"layers": []}))
    refused(f"{good}: its image must have one layer")
