"""Every way in which a program comes to call cuDNN."""

import os
import re
import subprocess

import pytest

from harness.preload import ALL, Problem, candidates, ids, read_counters, stock_field


@pytest.fixture(scope="module")
def served(preload, tmp_path_factory):
    known = candidates(preload.stock(Problem(), ALL)["modes"][0])
    winner = next(c for c in known[1:] if c.workspace <= known[0].workspace)
    folder = tmp_path_factory.mktemp("loaders") / "snapshot"
    preload.write_snapshot(folder, preload.choice(Problem(), winner.field(), stock_field(known[0])))
    return winner, folder


# How, and whether LD_PRELOAD alone reaches it.
WAYS = {
    "linked": ("convtune-raw-linked", [], True),
    "dlopen_global": ("convtune-raw-loader", ["global"], True),
    "dlopen_local": ("convtune-raw-loader", ["local"], True),
    "dlopen_deepbind": ("convtune-raw-loader", ["deepbind"], False),
    "dlsym": ("convtune-raw-dlsym", [], False),
}


@pytest.mark.parametrize("audit", [False, True], ids=["preload", "preload_and_audit"])
@pytest.mark.parametrize("way", WAYS)
def test_way(preload, served, tmp_path, way, audit):
    winner, folder = served
    program, prefix, reached = WAYS[way]
    if prefix:
        prefix = [*prefix, str(preload.lib / "libconvtune_raw_calls.so")]
    counters = tmp_path / "counters"
    env = preload.env(folder, audit=audit, counters=counters)
    got = preload.raw(Problem(), ALL, "modes=a", env=env, program=program, prefix=prefix)
    stock = preload.stock(Problem(), ALL)["modes"][0]
    if reached or audit:
        assert ids(got["modes"][0]) == [winner.id, *ids(stock)]
        assert read_counters(counters)[0]["plans_served"] == 1
    else:
        assert got["modes"][0] == stock
        assert not counters.exists()


def test_audit_alone_changes_nothing(preload, served):
    _, folder = served
    env = preload.env(folder, audit=True)
    del env["LD_PRELOAD"]
    assert preload.raw(Problem(), ALL, env=env) == preload.stock(Problem(), ALL)


def test_other_programs_do_not_notice(preload, served):
    _, folder = served
    done = preload.run(["/bin/sh", "-c", "echo fine; true"], preload.env(folder, audit=True))
    assert (done.stdout, done.stderr) == ("fine\n", "")


HOOKS = {
    "cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute",
    "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnBackendExecute",
    *(f"cudnnGetConvolution{op}Algorithm_v7" for op in ("Forward", "BackwardData", "BackwardFilter")),
    *(f"cudnnFindConvolution{op}Algorithm{ex}"
      for op in ("Forward", "BackwardData", "BackwardFilter") for ex in ("", "Ex")),
}  # fmt: skip
EXPORTS = {
    "libconvtune_preload.so": HOOKS,
    "libconvtune_audit.so": {"la_version", "la_objopen", "la_symbind64"},
}


def readelf(option, path):
    return subprocess.check_output(["readelf", "-W", option, str(path)], text=True)


@pytest.mark.parametrize("library", EXPORTS)
def test_only_the_hooks_are_exported(preload, library):
    symbols = readelf("--dyn-syms", preload.lib / library)
    exported = set(re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+(?!UND)\w+\s+(\S+)", symbols))
    assert exported == EXPORTS[library]


@pytest.mark.parametrize("library", EXPORTS)
def test_libc_alone_is_needed(preload, library):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", preload.lib / library))
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2"}


@pytest.mark.parametrize("library", EXPORTS)
def test_glibc_2_34_is_enough(preload, library):
    built_with = tuple(int(n) for n in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2])
    if built_with > (2, 36):
        pytest.skip("a newer glibc than Debian 12's: what is for other machines is built on Debian 12")
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf("--version-info", preload.lib / library))
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 34)


@pytest.mark.parametrize("library", EXPORTS)
def test_nothing_runs_when_it_is_loaded(preload, library):
    """Constructors: the compiler's own frame_dummy at most."""
    sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", readelf("--dynamic", preload.lib / library))
    assert all(int(size) <= 8 for size in sizes)
