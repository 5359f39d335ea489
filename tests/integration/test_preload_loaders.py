"""Every way in which a program comes to call cuDNN."""

import os
import re
import subprocess
import sys

import pytest

from harness.cudnn_shapes import library
from harness.preload import ALL, Problem, ids, neutral, read_counters


@pytest.fixture(scope="module")
def served(preload, tmp_path_factory):
    known = preload.known(Problem())
    winner = neutral(known)[0]
    return winner, preload.store(tmp_path_factory.mktemp("loaders") / "snapshot", Problem(), winner, stock=known[0])


# The program, how it loads which library, and how it is reached.
WAYS = {
    "linked": ("convtune-raw-linked", [], "linked"),
    "dlopen_global": ("convtune-raw-loader", ["global", "raw_calls"], "linked"),
    "dlopen_local": ("convtune-raw-loader", ["local", "raw_calls"], "linked"),
    "dlopen_deepbind": ("convtune-raw-loader", ["deepbind", "raw_calls"], None),
    "dlsym": ("convtune-raw-dlsym", [], "dlsym"),
    # As ONNX Runtime's provider since 1.28: a library without cuDNN among its needs, loaded RTLD_LOCAL, that opens
    # cuDNN by its name and looks each function up when it is first called.
    "dlsym_in_a_local_library": ("convtune-raw-loader", ["local", "raw_lookups"], "dlsym"),
}


@pytest.mark.parametrize("way", WAYS)
def test_way(preload, served, counters, way):
    winner, folder = served
    program, prefix, reached = WAYS[way]
    if prefix:
        prefix = [prefix[0], str(preload.lib / f"libconvtune_{prefix[1]}.so")]
    env = preload.env(folder, counters=counters)
    got = preload.raw(Problem(), ALL, "modes=a", env=env, program=program, prefix=prefix)
    stock = preload.stock(Problem(), ALL)["modes"][0]
    if reached:
        assert ids(got["modes"][0]) == [winner.id, *ids(stock)]
        (line,) = read_counters(counters)
        assert (line["plans_served"], line["reached"]) == (1, reached)
        assert program.startswith(line["name"])
    else:
        assert got["modes"][0] == stock
        assert not counters.exists()


def test_other_programs_do_not_notice(preload, served):
    _, folder = served
    done = preload.run(["/bin/sh", "-c", "echo fine; true"], preload.env(folder))
    assert (done.stdout, done.stderr) == ("fine\n", "")


# A library that is preloaded behind convtune's and counts a function's calls, as profilers and allocators do.
COUNTS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
pid_t getppid(void) {
  pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "getppid");
  if (next == getppid) puts("itself");
  return next == getppid ? -1 : 4321 + 0 * next();
}
"""
ASKS = """
import ctypes, os
libc = ctypes.CDLL(None)
print(os.getppid())
print(ctypes.CDLL("libc.so.6").getpid() == os.getpid())
print(hasattr(ctypes.CDLL("libc.so.6"), "cudnnBackendFinalize"))
"""


def test_dlsym_is_the_c_librarys_for_everything_else(preload, served, tmp_path):
    """RTLD_NEXT means the library behind the caller, which the C library tells by the return address."""
    _, folder = served
    env = preload.env(folder)
    env["LD_PRELOAD"] += f" {library(tmp_path / 'counts.so', COUNTS)}"
    done = preload.run([sys.executable, "-c", ASKS], env)
    assert done.stdout.splitlines() == ["4321", "True", "False"]


# As a manylinux wheel, whose dlsym is that of glibc 2.28 and earlier.
OLD_REFERENCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
asm(".symver dlsym, dlsym@GLIBC_2.2.5");
int main(int argc, char** argv) {
  void* cudnn = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  for (int i = 1; cudnn != NULL && i < argc; ++i) {
    Dl_info info;
    puts(dladdr(dlsym(cudnn, argv[i]), &info) != 0 ? info.dli_fname : "nowhere");
  }
}
"""


def test_a_program_that_was_linked_with_an_older_glibc_is_reached(preload, served, tmp_path):
    _, folder = served
    program = tmp_path / "program"
    subprocess.run(["cc", "-x", "c", "-", "-o", program], input=OLD_REFERENCE, text=True, check=True)
    env = preload.env(folder, LD_LIBRARY_PATH=preload.cudnn_folder)
    done = preload.run([str(program), "cudnnBackendFinalize", "cudnnCreate"], env)
    hooked, passed = done.stdout.splitlines()
    assert hooked == str(preload.preload) and "libcudnn" in passed


# A preloaded library with a dlsym of its own, as layers have that share a GPU, and with a strncmp that looks the next one up.
LAYER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static int answer(void) { return 4242; }
void* dlsym(void* handle, const char* name) {
  static void* (*next)(void*, const char*);
  if (!next) next = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  return strcmp(name, "answer_of_the_layer") == 0 ? (void*)answer : next(handle, name);
}
int strncmp(const char* a, const char* b, size_t n) {
  static int (*next)(const char*, const char*, size_t);
  if (!next) next = (int (*)(const char*, const char*, size_t))dlsym(dlopen("libc.so.6", RTLD_LAZY), "strncmp");
  return next(a, b, n);
}
"""
ASKS_LAYER = """
import ctypes
print(ctypes.CDLL(None).answer_of_the_layer(), ctypes.CDLL(None).strncmp(b"a", b"a", 1))
"""


def test_another_librarys_dlsym_is_still_asked(preload, served, tmp_path):
    _, folder = served
    env = preload.env(folder)
    env["LD_PRELOAD"] += f" {library(tmp_path / 'layer.so', LAYER, '-fno-builtin')}"
    assert preload.run([sys.executable, "-c", ASKS_LAYER], env).stdout.split() == ["4242", "0"]


# A cuDNN of another version has functions of the same names.
OTHER = "int cudnnBackendCreateDescriptor(int type, void** descriptor) { *descriptor = (void*)8; return 0 * type; }"
ASKS_OTHER = """
import ctypes, sys
descriptor = ctypes.c_void_p()
other = ctypes.CDLL(sys.argv[1])
print(other.cudnnBackendCreateDescriptor(15, ctypes.byref(descriptor)), descriptor.value)
"""


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside_cudnn_9"])
def test_another_version_of_cudnn_is_left_alone(preload, served, tmp_path, beside):
    _, folder = served
    other = library(tmp_path / "libcudnn.so.8", OTHER, "-Wl,-soname,libcudnn.so.8")
    script = f"import ctypes; ctypes.CDLL({str(preload.cudnn_library)!r})\n" * beside + ASKS_OTHER
    done = preload.run([sys.executable, "-c", script, str(other)], preload.env(folder))
    assert done.stdout.split() == ["0", "8"]


HOOKS = {
    "dlsym",
    "cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute",
    "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnBackendExecute",
    *(f"cudnnGetConvolution{op}Algorithm_v7" for op in ("Forward", "BackwardData", "BackwardFilter")),
    *(f"cudnnFindConvolution{op}Algorithm{ex}"
      for op in ("Forward", "BackwardData", "BackwardFilter") for ex in ("", "Ex")),
}  # fmt: skip


def readelf(preload, option):
    return subprocess.check_output(["readelf", "-W", option, preload.lib / "libconvtune_preload.so"], text=True)


def test_only_the_hooks_are_exported(preload):
    symbols = readelf(preload, "--dyn-syms")
    exported = set(re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+(?!UND)\w+\s+(\S+)", symbols))
    assert exported == HOOKS


def test_libc_alone_is_needed(preload):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", readelf(preload, "--dynamic"))
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2"}


def test_glibc_2_34_is_enough(preload):
    built_with = tuple(int(n) for n in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2])
    if built_with > (2, 36):
        pytest.skip("a newer glibc than Debian 12's: what is for other machines is built on Debian 12")
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf(preload, "--version-info"))
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 34)


def test_nothing_runs_when_it_is_loaded(preload):
    """Constructors: the compiler's own frame_dummy at most."""
    sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", readelf(preload, "--dynamic"))
    assert all(int(size) <= 8 for size in sizes)
