"""A damaged database: put aside, never believed, and filled again from the base bundles and by tuning."""

import os
import random
import struct

import pytest

from harness.daemon import wait_until
from harness.fakes import script
from harness.problems import numbered_list

BASE, OWN = numbered_list(0, 10), numbered_list(100, 10)
PAGE = 4096


def overwrite(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def page_of(path, text):
    """Where the page begins that has the text first."""
    return path.read_bytes().index(text.encode()) // PAGE * PAGE


# What is done to the file of a daemon that was stopped. The page of a row is read when the daemon
# starts, and nothing before that looks at it.
DAMAGE = {
    "a row's page": lambda path: overwrite(path, page_of(path, OWN[0]), b"\x5a" * PAGE),
    "the first page": lambda path: overwrite(path, 100, b"\x5a" * (PAGE - 100)),
    "no database": lambda path: path.write_bytes(b"the quick brown fox"),
}


def put_aside(daemon):
    """Databases; their logs go with them."""
    return [p for p in daemon.state_dir.glob("convtune.db.corrupt-*") if not p.name.endswith(("-wal", "-shm"))]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_put_aside_and_rebuilt(fake_daemon, cli, tmp_path, damage):
    source = fake_daemon(env=script()).start()
    with source.client() as client:
        client.get(*BASE, on_miss="ON_MISS_TUNE")
        base = client.winners(BASE)
    cli(source).ok("export", tmp_path / "base.bundle")
    source.stop()
    daemon = fake_daemon("--base", tmp_path / "base.bundle", env=script()).start()
    with daemon.client() as client:
        client.get(*OWN, on_miss="ON_MISS_TUNE")
        known = client.winners(BASE + OWN)
        assert len(known) == 20
    daemon.stop()
    database = daemon.state_dir / "convtune.db"
    DAMAGE[damage](database)
    damaged = database.read_bytes()
    daemon.start()
    (aside,) = put_aside(daemon)
    assert aside.read_bytes() == damaged
    assert f"it was kept as {aside}" in daemon.log()
    said = f"notice   the database was damaged and put aside, and a new one began: {aside}"
    doctor = cli(daemon)("doctor").out
    assert said in doctor and "-> import a bundle, or restore a backup" in doctor, doctor
    with daemon.client() as client:
        assert client.winners(BASE + OWN) == base
        assert all(r.answer.persisted for r in client.get(*OWN, on_miss="ON_MISS_TUNE"))
        assert client.maintenance.CheckDatabase().ok
    daemon.stop()
    daemon.start()
    with daemon.client() as client:
        assert client.winners(BASE + OWN) == known
    assert put_aside(daemon) == [aside]
    assert said in cli(daemon)("doctor").out
    for file in daemon.state_dir.glob("convtune.db.corrupt-*"):
        file.rename(tmp_path / file.name)
    assert "put aside" not in cli(daemon)("doctor").out


def published(daemon):
    """The problem keys of a snapshot's first section that has any; see db/snapshot/README.md."""
    data = (daemon.state_dir / "snapshot" / "current.snapshot").read_bytes()
    sections, count = struct.unpack_from("<Q", data, 56)[0], struct.unpack_from("<I", data, 44)[0]
    for section in range(sections, sections + 144 * count, 144):
        entries, entry_count = struct.unpack_from("<QQ", data, section + 128)
        if entry_count:
            return {data[entries + 360 * i : entries + 360 * i + 320] for i in range(entry_count)}
    return set()


def published_or_refused(publication):
    """Where the choices cannot be read at all nothing is published until the next start, which puts the file aside."""
    return publication.HasField("publish_time") or publication.error


CASES = 40 if os.environ.get("CONVTUNE_TEST_LONG") else 6


def test_damage_never_makes_smaller_what_is_published(fake_daemon, cli):
    """40 random bytes in a page of the choices, or of anything else, after an orderly stop."""
    daemon = fake_daemon(env=script()).start()
    texts = numbered_list(0, 44)
    with daemon.client() as client:
        client.get(*texts, on_miss="ON_MISS_TUNE")
    daemon.stop()
    database = daemon.state_dir / "convtune.db"
    sound, snapshot = database.read_bytes(), daemon.state_dir / "snapshot" / "current.snapshot"
    whole, file = published(daemon), snapshot.read_bytes()
    assert len(whole) == 44
    choices = [at for at in range(0, len(sound), PAGE) if b"graph:" in sound[at : at + PAGE]]
    lost = 0
    for seed in range(10 * CASES):
        # Where choices lie depends on SQLite's version: it goes on until one was hurt.
        if seed >= CASES and lost:
            break
        chance = random.Random(seed)
        snapshot.write_bytes(file)
        page = chance.choice(choices) if seed % 3 else chance.randrange(len(sound) // PAGE) * PAGE
        # The header of a page is where damage hides rows without an error.
        at = page + (0 if seed % 2 else chance.randrange(PAGE - 40))
        database.write_bytes(sound)
        overwrite(database, at, chance.randbytes(40))
        for aside in put_aside(daemon):
            aside.unlink()
        daemon.start()
        with daemon.client() as client:
            wait_until(lambda c=client: published_or_refused(c.release.GetPublication()), 20, "a snapshot, or the reason that no snapshot was written")
            publication = client.release.GetPublication()
            carried = publication.carried_count
            assert publication.error or publication.choice_count == 44, (seed, at, daemon.log())
        assert published(daemon) == whole, (seed, at, daemon.log())
        if carried:
            lost += 1
            said = cli(daemon)("doctor")
            assert f"{carried} choices of the snapshot are missing in the database" in said.out, said
        daemon.stop()
        assert published(daemon) == whole, (seed, at, daemon.log())
    assert lost  # else nothing was tried


def test_a_database_that_was_deleted_under_the_daemon_takes_no_results(fake_daemon, cli):
    daemon = fake_daemon(env=script()).start()
    with daemon.client() as client:
        client.get(*OWN, on_miss="ON_MISS_TUNE")
        winner = client.winners(OWN)[OWN[0]]
    database = daemon.state_dir / "convtune.db"
    database.rename(daemon.state_dir / "moved.db")
    pinned = cli(daemon)("pin", OWN[0], winner, "--reason", "x")
    assert pinned.code != 0 and "was moved, deleted or replaced" in pinned.err
    doctor = cli(daemon)("doctor")
    assert doctor.code != 0 and "takes no results" in doctor.out and "was moved" in doctor.out
    (daemon.state_dir / "moved.db").rename(database)
    assert "takes no results" not in cli(daemon)("doctor").out


@pytest.mark.parametrize("damage", [lambda path: os.truncate(path, 100), os.unlink], ids=["truncated", "deleted"])
def test_a_snapshot_that_somebody_damaged_is_published_again(fake_daemon, cli, damage):
    daemon = fake_daemon(env=script()).start()
    with daemon.client() as client:
        client.get(*OWN, on_miss="ON_MISS_TUNE")
        snapshot = daemon.state_dir / "snapshot/current.snapshot"
        wait_until(lambda: client.release.GetPublication().choice_count == len(OWN), 30, "a snapshot of all")
    whole = snapshot.read_bytes()
    damage(snapshot)
    if damage is os.unlink:
        cli(daemon)("doctor")  # whoever asks has it looked at; the daemon itself looks every 10 s
    wait_until(lambda: snapshot.exists() and snapshot.stat().st_size == len(whole), 30, "the snapshot again")
    assert "is not the file that was published any more" in daemon.log()
    assert "is not up to date" not in cli(daemon)("doctor").out
