#!/usr/bin/env python3
"""Writes schema_vN.sql, N the newest schema version: a database with rows, as SQL.

    tests/data/db/write_dump.py [BUILD_DIR]    (after `ninja -C BUILD_DIR convtune-golden-rows`; default build)

To be run once, when a migration is added; a released dump is never written again.
"""
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[2] / "build")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build / "bin/convtune-golden-rows", folder], check=True)
        database = sqlite3.connect(pathlib.Path(folder) / "convtune.db")
        version, = database.execute("PRAGMA user_version").fetchone()
        application, = database.execute("PRAGMA application_id").fetchone()
        lines = "\n".join(database.iterdump())
        database.close()
    path = HERE / f"schema_v{version}.sql"
    path.write_text(
        f"-- A database of schema version {version} with rows; see write_dump.py.\n"
        f"PRAGMA application_id={application}; PRAGMA user_version={version};\n"
        f"PRAGMA foreign_keys=OFF;\n{lines}\n")
    print(path)


if __name__ == "__main__":
    main()
