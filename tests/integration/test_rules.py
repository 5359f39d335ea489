"""The Python package, and the report's page, have the rules that C++ has: the tables of tests/data/rules."""

import dataclasses
import json
import pathlib
import re
import subprocess

import pytest
import xxhash

from conftest import REPO


def cases(table):
    lines = (REPO / "tests" / "data" / "rules" / table).read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    assert len(rows) > 5
    return rows


def key_of(ct, text):
    try:
        key = ct.problem_key.parse(text)
    except ValueError:
        return "refused"
    bare = ct.problem_key.without_alignment(key)
    return f"{ct.problem_key.alignment_of(key)} {xxhash.xxh3_64_intdigest(bare):016x}"


def test_a_problems_key_is_that_of_the_table(ct):
    for text, key in cases("problem_keys.txt"):
        assert key_of(ct, text) == key, text


def expansion_of(ct, text):
    try:
        return " ; ".join(ct.expand(text))
    except ValueError as error:
        return f"refused: {str(error).partition(':')[0]}"


def test_open_sizes_stand_for_what_the_table_says(ct):
    for text, stands_for in cases("sizes.txt"):
        assert expansion_of(ct, text) == stands_for, text


def mask(enum, prefix, names):
    numbers = dict(enum.items())
    return sum(1 << numbers[prefix + name.upper()] for name in names.split(",") if prefix + name.upper() in numbers)


def constraints_of(ct, text):
    name, _, value = text.partition("=")
    if name == "-":
        return ct.Constraints()
    kinds = {"": lambda _: True, "max_workspace_bytes": int, "max_error": float, "api": str, "launch": str}
    return ct.Constraints(**{name: kinds[name if value else ""](value)})


def test_a_candidate_satisfies_what_the_table_says(ct):
    from convtune.v1 import record_pb2

    for text, dtype, notes, workspace, constraint, keeps in cases("constraints.txt"):
        choice = ct.snapshot.Choice(
            graph=text.startswith("graph:"),
            numerical_notes=mask(record_pb2.NumericalNote, "NUMERICAL_NOTE_", notes),
            behavior_notes=mask(record_pb2.BehaviorNote, "BEHAVIOR_NOTE_", notes),
            candidate=ct.Candidate(text, int(workspace), "nondeterministic" not in notes.split(","), 1.0),
        )
        data_type = ct.problem_key.parse(f"fwd,x=1x1x9x9,w=1x1x3x3,{dtype}")[1]
        kept = ct.snapshot.satisfies(choice, constraints_of(ct, constraint), data_type)
        assert kept == (keeps == "yes"), (text, dtype, notes, constraint)


def demand_of(ct, text):
    """What Snapshot.find is asked for in the table's words."""
    name, _, value = text.partition("=")
    for field in dataclasses.fields(ct.answers.Ask):
        if field.name.removesuffix("_s") == name:
            return ct.answers.Ask(**{field.name: int(value) if value.isdigit() else value})
    if name == "cache_state":
        return ct.answers.Ask(ct.Constraints(cache_state=value))
    return ct.answers.Ask(constraints_of(ct, text))


def test_a_snapshot_answers_what_the_table_says(ct, convtuned, tmp_path):
    from convtune.v1 import record_pb2

    environment, problem = "a,cc=9.0,sms=132,cudnn=9.19.0,lib=full", "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
    notes = mask(record_pb2.NumericalNote, "NUMERICAL_NOTE_", "nondeterministic")
    candidates = [
        f"candidate=graph:eng5,k2=1;notes={notes};workspace=4096;time=10",
        "candidate=graph:eng7;notes=0;workspace=0;time=12",
        "candidate=legacy:algo1,math1;notes=0;workspace=64;time=9",
    ]
    for evidence, pinned, asked, outcome in cases("snapshot_answers.txt"):
        line = ["choice", environment, "stable", problem, f"evidence={evidence};pinned={pinned}", *candidates]
        maker = [pathlib.Path(convtuned).parent / "convtune-make-snapshot", tmp_path / "current.snapshot"]
        subprocess.run(maker, input="\t".join(line) + "\n", text=True, check=True)
        snapshot = ct.snapshot.Snapshot(tmp_path)
        found = snapshot.find(snapshot.choose("", ct.Environment()), problem, demand_of(ct, asked))
        assert (found.winner.text if found.winner else found.miss) == outcome, (evidence, pinned, asked)


@pytest.mark.parametrize("case", cases("snapshot_folders.txt"), ids=" ".join)
def test_the_snapshots_folder_is_that_of_the_table(ct, case, tmp_path, monkeypatch):
    *variables, there, chosen = (column.replace("@", str(tmp_path)) for column in case)
    monkeypatch.delenv("CONVTUNE_SNAPSHOT", raising=False)
    monkeypatch.setattr(ct.defaults, "SYSTEM_SNAPSHOT", str(tmp_path / "nowhere"))
    for name, value in zip(("STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"), variables):
        monkeypatch.delenv(name, raising=False) if value == "-" else monkeypatch.setenv(name, value)
    for path in there.split(",") if there != "-" else ():
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            (folder / ct.defaults.SNAPSHOT).touch()
    assert ct.defaults.snapshot_folder() == chosen


def test_the_reports_page_names_evidence_as_the_api_does(ct):
    page = (REPO / "client" / "report" / "page" / "data.js").read_text(encoding="utf-8")
    names = re.search(r"const EVIDENCE = \{(.*)\};", page)[1]
    named = json.loads("{" + re.sub(r"(\d+):", r'"\1":', names) + "}")
    assert {name: int(number) for number, name in named.items()} == ct.answers.EVIDENCE


def test_every_variable_that_a_program_reads_is_known(convtune, convtuned):
    """Variables are named in the sources, and in the daemon's help, which makes a name of each flag."""
    named = re.compile(r"CONVTUNE_[A-Z0-9_]*[A-Z0-9]")
    sources = [p for folder in ("server", "client", "proto", "db") for p in (REPO / folder).rglob("*") if p.suffix in (".cc", ".h", ".py")]
    names = {name for p in sources for quoted in re.findall(r'"(CONVTUNE_[A-Z0-9_]+)"', p.read_text()) for name in named.findall(quoted)}
    help_text = subprocess.run([convtuned, "--help"], capture_output=True, text=True, check=True).stdout
    names |= set(named.findall(help_text))
    assert len(names) > 60
    typed = dict.fromkeys(names, "1") | {"CONVTUNE_ADDRES": "1"}
    done = subprocess.run([convtune, "list", "--address", "unix:/nonexistent"], env=typed, capture_output=True, text=True, timeout=60)
    warnings = [line for line in done.stderr.splitlines() if "no program of convtune reads this" in line]
    assert warnings == ["warning: CONVTUNE_ADDRES: no program of convtune reads this; did you mean CONVTUNE_ADDRESS?"], done.stderr
