"""The programs of the portable preset: building them, and what they need of a machine."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_MIB = 60
MOST_GLIBC = (2, 34)
# glibc's, and libgcc_s, which every machine with glibc has. The worker alone needs cuDNN, too, which PyTorch brings.
GLIBC_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
                   "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # fmt: skip
LIBRARIES = {"bin/convtune-worker": GLIBC_LIBRARIES | {"libcudnn.so.9"}}


def say(text):
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, **more)
    if done.returncode != 0:
        say(f"{' '.join(map(str, command[:3]))} …: exit code {done.returncode}")
        sys.exit(1)
    return done


def add_build_options(parser):
    parser.add_argument("--build", type=pathlib.Path, help="take the programs of this build folder, and build nothing")


def parse(parser):
    """(what was parsed, the -D options)."""
    parsed, definitions = parser.parse_known_args()
    if unknown := [d for d in definitions if not d.startswith("-D")]:
        parser.error(f"unknown option {unknown[0]}")
    if parsed.build and definitions:
        parser.error("-D has no effect with --build")
    return parsed, definitions


def build(targets, definitions):
    """The portable build's folder."""
    # The compiler cache knows the dev build's objects: most are the same.
    env = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    run(ROOT / "deploy/install-deps")
    run("cmake", "--preset", "portable", "--log-level=WARNING", "-DCONVTUNE_WORKER=ON", *definitions, env=env)
    run("cmake", "--build", "--preset", "portable", "--target", *targets, env=env)
    return ROOT / "build-portable"


def needs(program):
    """(libraries, highest GLIBC, RUNPATH or RPATH or None) of an ELF file."""
    said = run("readelf", "--wide", "--dynamic", "--version-info", program, capture_output=True, text=True).stdout
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"\bGLIBC_([0-9.]+)", said)]
    path = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)), max(versions, default=(0,)), path[1] if path else None


def dotted(version):
    return ".".join(map(str, version))


def check(folder, names):
    """(what no other machine can be expected to have, a line each; highest GLIBC); prints what each program needs."""
    wrong, highest = [], (0,)
    for name in names:
        libraries, glibc, path = needs(folder / name)
        highest = max(highest, glibc)
        print(f"{name}: {(folder / name).stat().st_size / 2**20:.1f} MiB, {', '.join(sorted(libraries))}, GLIBC {dotted(glibc)}")
        if unexpected := sorted(libraries - LIBRARIES.get(name, GLIBC_LIBRARIES)):
            wrong.append(f"{name} needs {', '.join(unexpected)}")
        if glibc > MOST_GLIBC:
            wrong.append(f"{name} needs GLIBC {dotted(glibc)}, more than {dotted(MOST_GLIBC)}")
        if path is not None:
            wrong.append(f"{name} has a RUNPATH: {path}")
    return wrong, highest
