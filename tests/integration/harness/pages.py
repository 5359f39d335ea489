"""The command blocks of the pages, and a machine to type them on."""

import dataclasses
import os
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAMS, REPO

# What a reader types or copies; `text` is what a program prints, a picture, or a grammar.
COPIED = {"sh", "bash", "python", "cpp", "cmake", "dockerfile", "yaml", "toml"}

# Run by root in a mount namespace: everything as the packages install it, and the machine's own folders are not touched.
MACHINE = """
set -e
layers=$(mktemp -d -p {tmp}); mount -t tmpfs none $layers
for folder in /etc /usr/lib; do
  mkdir -p $layers/$folder/upper $layers/$folder/work
  mount -t overlay overlay -o lowerdir=$folder,upperdir=$layers/$folder/upper,workdir=$layers/$folder/work $folder
done
mount -t tmpfs none /var/lib
mount -t tmpfs none /var/tmp
mount -t tmpfs none /run
getent passwd convtune >/dev/null || echo 'convtune:x:64999:64999::/var/lib/convtune:/usr/sbin/nologin' >>/etc/passwd
getent group convtune >/dev/null || echo 'convtune:x:64999:' >>/etc/group
mkdir -m 0750 /var/lib/convtune
mkdir /etc/convtune /etc/convtune-fleet
[ ! -e build/lib/libconvtune_preload.so ] || cp build/lib/libconvtune_preload.so /usr/lib
export PATH="$PWD/build/bin:$PATH"
"""

# What a page starts in a terminal of its own goes on while the next lines are typed.
TERMINALS = """
terminals=()
ended() { for pid in "${terminals[@]}"; do kill $pid 2>/dev/null || true; done; wait; }
trap ended EXIT
end_daemon() {
  for pid in "${terminals[@]}"; do [[ $(readlink /proc/$pid/exe) != */convtuned ]] || { kill $pid; wait $pid; }; done
}
convtuned() {
  # One at a time: a reader would end the other first.
  ./deploy/quickstart --stop >/dev/null
  end_daemon
  command convtuned "$@" & terminals+=($!)
  for ((i = 0; i < 300; ++i)); do convtune environments >/dev/null 2>&1 && return; sleep 0.1; done
  return 1
}
convtune-fleet() {
  if [ "$1" != agent ]; then command convtune-fleet "$@"; return; fi
  command convtune-fleet "$@" & terminals+=($!)
  for ((i = 0; i < 300; ++i)); do command convtune-fleet status --postgres-file /etc/convtune/fleet.conf --json | grep -q '"name"' && return; sleep 0.1; done
  return 1
}
"""


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks(page=None):
    """Of all pages of the repository, or of one."""
    if page:
        paths = [REPO / page]
    else:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, text=True).stdout.split()
        paths = [REPO / name for name in listed] or pytest.skip("the repository's folder is no clone of git")
    found = []
    for path in paths:
        text = path.read_text()
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append(Block(str(path.relative_to(REPO)), line, match[2], match[3]))
    return found


class Machine:
    """A checkout of the repository, without what installs and compiles, on a machine of its own."""

    def __init__(self, directory):
        overlay = f"mount -t tmpfs none {directory} && cd {directory} && mkdir a b && mount -t overlay overlay -o lowerdir=/etc,upperdir=a,workdir=b /etc"
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "sh", "-c", overlay], capture_output=True).returncode != 0:
            pytest.skip("needs root, mount namespaces and overlays")
        self.directory = directory
        self.checkout = directory / "checkout"
        self.tools = directory / "tools"
        self.tools.mkdir(parents=True)
        ignored = shutil.ignore_patterns("build*", ".*", "__pycache__", "*.egg-info")
        for folder in ("client", "deploy", "proto"):
            shutil.copytree(REPO / folder, self.checkout / folder, ignore=ignored, symlinks=True)
        (self.checkout / "build").symlink_to(PROGRAMS.parent)
        (self.checkout / ".venv").symlink_to(REPO / ".venv")
        (self.checkout / "tests").symlink_to(REPO / "tests")
        for name in ("ninja", "nvidia-smi"):
            self.tool(name, "")
        # The checkout is built; what others build with it is not.
        real = shutil.which("cmake")
        self.tool("cmake", f'case "$1 $2" in "--preset "* | "--build "build | "--build "*/checkout/build) ;; *) exec "{real}" "$@" ;; esac')
        self.tool("python", f'exec "{REPO}/.venv/bin/python" "$@"')
        shutil.copy(self.tools / "ninja", self.checkout / "deploy" / "install-deps")

    def tool(self, name, text):
        """A program of this name beside those of the machine, as a shell script."""
        (self.tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.tools / name).chmod(0o755)

    def type(self, script, env=None, terminals=True, check=True):
        """What came of the lines, typed in the checkout one after the other; none may fail, unless `check` is false: then
        the first that fails ends them. Without `terminals` what they start is theirs to put into the background."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("CONVTUNE_", "XDG_"))}
        clean |= {"HOME": str(self.directory / "home"), "CUDA_VISIBLE_DEVICES": ""} | (env or {})
        clean["PATH"] = f"{self.tools}:{clean['PATH']}"
        whole = MACHINE.replace("{tmp}", str(self.directory)) + (TERMINALS if terminals else "") + "set -x\n" + script
        done = subprocess.run(
            ["unshare", "-m", "bash", "-c", whole], cwd=self.checkout, env=clean, capture_output=True, text=True, timeout=300
        )
        assert not check or done.returncode == 0, (done.stdout[-3000:], done.stderr[-5000:])
        return done
