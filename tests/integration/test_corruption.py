"""A damaged database: put aside, never believed, and filled again from the base bundles and by tuning."""

import pytest

from harness.api import Service
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


def winners(client, texts):
    return {t: r.answer.winner.text for t, r in zip(texts, client.get(*texts), strict=True)
            if r.WhichOneof("outcome") == "answer"}  # fmt: skip


def put_aside(daemon):
    """Databases; their logs go with them."""
    return [p for p in daemon.state_dir.glob("convtune.db.corrupt-*") if not p.name.endswith(("-wal", "-shm"))]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_put_aside_and_rebuilt(fake_daemon, tmp_path, damage):
    source = fake_daemon(env=script()).start()
    with source.client() as client:
        client.get(*BASE, on_miss="ON_MISS_TUNE")
        base = winners(client, BASE)
        pieces = Service(client.channel, "BundleService").ExportBundle(timeout=30)
        (tmp_path / "base.bundle").write_bytes(b"".join(piece.chunk for piece in pieces))
    source.stop()
    daemon = fake_daemon("--base", tmp_path / "base.bundle", env=script()).start()
    with daemon.client() as client:
        client.get(*OWN, on_miss="ON_MISS_TUNE")
        known = winners(client, BASE + OWN)
        assert len(known) == 20
    daemon.stop()
    database = daemon.state_dir / "convtune.db"
    DAMAGE[damage](database)
    damaged = database.read_bytes()
    daemon.start()
    (aside,) = put_aside(daemon)
    assert aside.read_bytes() == damaged
    assert f"it was kept as {aside}" in daemon.log()
    with daemon.client() as client:
        assert winners(client, BASE + OWN) == base
        assert all(r.answer.persisted for r in client.get(*OWN, on_miss="ON_MISS_TUNE"))
        assert client.maintenance.CheckDatabase().ok
    daemon.stop()
    daemon.start()
    with daemon.client() as client:
        assert winners(client, BASE + OWN) == known
    assert put_aside(daemon) == [aside]
