"""Libraries of the shape of cuDNN's, and no cuDNN."""

import subprocess
import sys

# The version and the libraries that are named are in the text of the libraries, as in cuDNN's own.
GRAPH = 'const unsigned cudnn_graph_version = {version}; const char *names[] = {{"libcudnn_graph.so.9", {names}}};\n'
MAIN = 'const char *names[] = {"libcudnn.so.9", "libcudnn_graph.so"};\n'
# The second is no library of cuDNN's, which this machine may have.
ENGINES = ("libcudnn_engines_precompiled", "libcudnn_engines_lent")


def library(path, source, *args):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", "-", "-x", "none", "-o", path, *args]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def cudnn(folder, version=0x091400, has=ENGINES, names=ENGINES):
    """A folder with a cuDNN that names `names` and has `has`."""
    ours = ("-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags")
    text = ", ".join(f'"{name}.so"' for name in names)
    library(folder / "libcudnn_graph.so.9", GRAPH.format(version=version, names=text), *ours)
    for name in has:
        library(folder / f"{name}.so.9", "int engine;\n", f"-Wl,-soname,{name}.so.9")
    library(folder / "libcudnn.so.9", MAIN, "-Wl,-soname,libcudnn.so.9", *ours)
    return folder


def venv(folder, **what):
    """A Python in `folder` whose torch loads the cuDNN of its wheel, 9.20.0.48; the folder of that."""
    bare_venv(folder)
    [packages] = folder.glob("lib/python3*/site-packages")
    wheel = cudnn(packages / "nvidia/cudnn/lib", **what)
    info = packages / "nvidia_cudnn_cu13-9.20.0.48.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cudnn-cu13\nVersion: 9.20.0.48\n")
    loads_cudnn(packages / "torch/lib/libtorch_cuda.so", wheel)
    (packages / "torch/__init__.py").write_text("raise SystemExit('torch was imported')\n")
    return wheel


def loads_cudnn(path, folder):
    """A library that loads the cuDNN of a folder, as PyTorch's does."""
    return library(path, "int torch;\n", folder / "libcudnn.so.9", f"-Wl,-rpath,{folder}", "-Wl,--disable-new-dtags")


def bare_venv(folder):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder
