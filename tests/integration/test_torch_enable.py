"""convtune.torch.enable(): a process that puts the interposer in front of its own cuDNN, or is told why it cannot."""

import json
import os
import sys

import pytest

from harness import python_package
from harness.preload import ALL, Problem, candidates, ids, read_counters, stock_field

# A library that links cuDNN, loaded as torch is by `import torch`: after enable().
PROGRAM = """
import ctypes, sys
import convtune.torch

print(convtune.torch.enable(snapshot=sys.argv[1], policy=sys.argv[2]), file=sys.stderr)
library = ctypes.CDLL(sys.argv[3])
arguments = (ctypes.c_char_p * len(sys.argv[3:]))(*map(str.encode, sys.argv[3:]))
sys.exit(library.raw_main(len(arguments), arguments))
"""
ENABLE = "import convtune\ntry: print(convtune.torch.enable(%s))\nexcept convtune.torch.NotEnabled as why: print(why)"


@pytest.fixture(scope="module")
def served(preload, tmp_path_factory):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    winner = next(c for c in known[1:] if c.workspace <= known[0].workspace)
    folder = tmp_path_factory.mktemp("enable") / "snapshot"
    preload.write_snapshot(folder, preload.choice(Problem(), winner.field(), stock_field(known[0])))
    return winner, folder


def python(preload, *arguments, **env):
    plain = preload.env(None, PYTHONPATH=str(python_package.install()), CONVTUNE_PRELOAD_LIBRARY=str(preload.preload))
    return preload.run([sys.executable, "-c", *map(str, arguments)], {**plain, **env}, check=False)


def test_libraries_that_are_loaded_later_are_served(preload, served, tmp_path):
    winner, folder = served
    counters = tmp_path / "counters"
    calls = preload.lib / "libconvtune_raw_calls.so"
    done = python(preload, PROGRAM, folder, "truncate", calls, *preload.raw_args(Problem(), ALL, "modes=a"),
                  CONVTUNE_PRELOAD_COUNTERS=str(counters))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{preload.preload}\n"
    assert ids(json.loads(done.stdout)["modes"][0])[0] == winner.id
    (counted,) = read_counters(counters)
    assert (counted["policy"], counted["snapshot"], counted["plans_served"]) == ("truncate", "valid", 1)


def test_where_nothing_would_be_served_the_reason_is_said(preload, served, tmp_path):
    _, folder = served
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "current.snapshot").write_bytes((folder / "current.snapshot").read_bytes()[:-1])
    off = tmp_path / "off"
    off.mkdir()
    (off / "disabled").touch()
    cudnn = f"import ctypes; ctypes.CDLL({str(preload.cudnn_library)!r})\n"
    torch = "import sys; sys.modules['torch'] = sys\n"
    for before, arguments, env, why in (
        ("", f"snapshot={str(tmp_path)!r}", {}, f"{tmp_path}/current.snapshot: No such file or directory"),
        ("", f"snapshot={str(damaged)!r}", {}, f"{damaged}/current.snapshot: has another length than it says"),
        ("", f"snapshot={str(off)!r}", {}, f"{off}/disabled is there, which switches the interposer off"),
        ("", "", {"CONVTUNE_SNAPSHOT": str(tmp_path)}, f"{tmp_path}/current.snapshot: No such file or directory"),
        ("", "", {"CONVTUNE_PRELOAD_OFF": "1"}, "CONVTUNE_PRELOAD_OFF is '1', which switches the interposer off"),
        # The interposer takes neither of these, and leaves cuDNN alone.
        ("", f"snapshot={str(folder)!r}", {"CONVTUNE_PRELOAD_POLICY": "fast"}, "CONVTUNE_PRELOAD_POLICY is 'fast', which"),
        ("", "", {"CONVTUNE_SNAPSHOT": os.path.relpath(folder)}, f"CONVTUNE_SNAPSHOT is {os.path.relpath(folder)!r}, which"),
        ("", f"snapshot={str(folder)!r}", {"CONVTUNE_PRELOAD_LIBRARY": "/nonexistent.so"}, "/nonexistent.so: cannot open"),
        (cudnn, "", {}, f"something loaded cuDNN already ({preload.cudnn_library.resolve()}): call enable() before `import torch`"),
        (torch + cudnn, "", {}, "torch has been imported and loaded cuDNN already ("),
        (torch, "", {}, "torch has been imported, without cuDNN: it is a build for the CPU alone"),
    ):
        done = python(preload, before + ENABLE % arguments, **env)
        assert done.returncode == 0 and done.stdout.startswith(why), (why, done.stdout, done.stderr)
    done = python(preload, f"import convtune.torch\nconvtune.torch.enable(policy='fast')")
    assert "ValueError: policy: must be one of observe, reorder, truncate, is 'fast'" in done.stderr


def test_a_snapshot_without_a_choice_is_a_warning(preload, tmp_path):
    folder = tmp_path / "snapshot"
    preload.write_snapshot(folder, f"environment\t{preload.environment}")
    done = python(preload, ENABLE % f"snapshot={str(folder)!r}")
    assert done.stdout == f"{preload.preload}\n"
    assert f"RuntimeWarning: convtune.torch: {folder}/current.snapshot: the snapshot holds 0 choices" in done.stderr


def test_a_second_call_changes_nothing(preload, served):
    _, folder = served
    again = f"import convtune.torch\nconvtune.torch.enable(snapshot={str(folder)!r}, policy='truncate')\n"
    done = python(preload, again + ENABLE % f"snapshot={str(folder)!r}")
    assert done.stdout == f"{preload.preload.resolve()}\n", done.stderr
    done = python(preload, again + ENABLE % "policy='reorder'")
    assert done.stdout == "the interposer is in this process already, with another CONVTUNE_PRELOAD_POLICY\n"
    done = python(preload, ENABLE % "", LD_PRELOAD=str(preload.preload))
    assert done.stdout == f"{preload.preload.resolve()}\n"


def test_torch_is_not_imported_before_its_models_are_read():
    code = "import sys; sys.modules['torch'] = None\nimport convtune.torch\nprint(convtune.torch.ModelError.__name__)"
    done = python_package.run("-c", code + "\nfrom convtune.torch import problems")
    assert done.stdout == "ModelError\n" and "ModuleNotFoundError" in done.stderr
