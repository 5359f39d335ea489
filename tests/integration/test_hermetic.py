"""The tests themselves: what this machine's user has set, who that is, and what runs here do not reach them; tests/run."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import PROGRAMS, REPO, program

UNITS = ("base_test", "convtuned_test", "convtune_cli_test", "resolver_test")
INTEGRATION = ("test_python_defaults.py", "test_rules.py", "test_security_defaults.py")
NOBODY = 65534
NONSENSE = {
    "CONVTUNE_ADDRESS": "unix:/nonsense", "CONVTUNE_CONFIG": "/nonsense.toml", "CONVTUNE_ENVIRONMENT": "nonsense",
    "CONVTUNE_SNAPSHOT": "/nonsense", "CONVTUNE_PYTHON": "/nonsense", "CONVTUNE_STATE_DIR": "/proc/nonsense",
    "CONVTUNE_LISTEN": "nonsense", "CONVTUNE_DEVICES": "nonsense", "CONVTUNE_TIMEOUT": "nonsense", "CONVTUNE_ROLE": "nonsense",
    "CONVTUNE_WORKER": "/nonsense", "CONVTUNE_PRELOAD_OFF": "1", "CONVTUNE_PRELOAD_POLICY": "nonsense",
    "CONVTUNED_CONFIG": "/nonsense", "STATE_DIRECTORY": "/nonsense", "NOTIFY_SOCKET": "/nonsense", "PGHOST": "nonsense",
    "XDG_RUNTIME_DIR": "/run",
}  # fmt: skip

# In a mount namespace of its own: a daemon on root's default socket, and this checkout where its path has a space.
MACHINE = """
set -e
convtuned=$1 checkout=$2 folder=$3
shift 3
mount -t tmpfs none /run
mkdir -p /run/convtune "$folder/a clone"
env -i "$convtuned" --state-dir "$folder/state" --listen unix:/run/convtune/convtune.sock --devices none 2>"$folder/log" &
daemon=$!
until [ -S /run/convtune/convtune.sock ]; do kill -0 $daemon; sleep 0.05; done
chmod 666 /run/convtune/convtune.sock
mount --rbind "$checkout" "$folder/a clone"
cd "$folder/a clone"
status=0
"$@" || status=$?
kill $daemon
exit $status
"""
# Two at a time; what fails is printed.
SUITE = f"""
suite() {{
  for unit in {" ".join(UNITS)}; do build/bin/$unit --gtest_brief=1 || return; done
  # Of another user's Python, perhaps in /root, nothing can be said.
  ! .venv/bin/python -c "import grpc" 2>"$HOME/python" ||
    .venv/bin/python -m pytest -q -p no:cacheprovider {" ".join(f"tests/integration/{name}" for name in INTEGRATION)}
}}
suite >"$HOME/first" 2>&1 & first=$!
suite >"$HOME/second" 2>&1 || {{ cat "$HOME/second"; exit 1; }}
wait $first || {{ cat "$HOME/first"; exit 1; }}
cat "$HOME/first" "$HOME/second"
"""


@pytest.mark.ci
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_units_pass_whoever_runs_them_whatever_is_set_and_two_at_a_time(user, convtuned, short_dir):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount namespaces")
    if PROGRAMS != REPO / "build" / "bin":
        pytest.skip("another build is tested than this checkout's")
    for unit in UNITS:
        program(unit)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if user == "nobody" else []
    if become and subprocess.run([*become, "bash", "-c", f"exec '{PROGRAMS / UNITS[0]}' --gtest_list_tests"], capture_output=True).returncode:
        pytest.skip("another user cannot read this checkout")
    home = short_dir / "home"
    variables = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home), **NONSENSE}
    for variable, folder in (("HOME", home / ".config"), ("XDG_CONFIG_HOME", home / "nonsense")):
        variables.setdefault(variable, str(folder))
        (folder / "convtune").mkdir(parents=True)
        (folder / "convtune" / "config.toml").write_text("nonsense = [\n")
    short_dir.chmod(0o755)
    if become:
        shutil.chown(home, NOBODY)
    command = ["unshare", "-m", "bash", "-c", MACHINE, "bash", convtuned, REPO, short_dir, *become, "bash", "-c", SUITE]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count("[  PASSED  ]") == 2 * len(UNITS), done.stdout
    if not become:
        assert done.stdout.count(" passed in ") == 2, done.stdout


@pytest.mark.parametrize(("ci", "end"), [("0", 0), ("1", 1)])
def test_a_skip_that_install_deps_could_have_prevented_fails_ci_alone(ci, end, tmp_path):
    skipped = "".join(f'<testcase name="{n}"><skipped message="{m}"/></testcase>' for n, m in (
        ("a", "helm is not there (deploy/install-deps --tests brings it)"), ("b", "needs root"), ("c", "needs root"),
    ))  # fmt: skip
    (tmp_path / "pytest.xml").write_text(f'<testsuites><testsuite><testcase name="d"/>{skipped}</testsuite></testsuites>')
    (summary,) = re.findall(r"<<'END'\n(.*?)\nEND\n", (REPO / "tests" / "run").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", summary, tmp_path, "0", ci], capture_output=True, text=True)
    assert done.returncode == end, done
    assert done.stdout.splitlines() == [
        "skipped 2: needs root",
        f"{('skipped', 'failed')[end]} 1: helm is not there (deploy/install-deps --tests brings it)",
        f"total: 1 passed, {end} failed, {3 - end} skipped",
    ]


@pytest.mark.ci
def test_one_unit_is_built_and_run_alone():
    if PROGRAMS != REPO / "build" / "bin":
        pytest.skip("another build is tested than this checkout's")
    command = [REPO / "tests" / "run", "--unit", "base_test", "--filter"]
    done = subprocess.run([*command, "^DefaultPathsTest.*Socket"], capture_output=True, text=True)
    assert done.returncode == 0 and "[  PASSED  ]" in done.stdout, done
    assert 0 < int(re.search(r"PASSED  \] (\d+) test", done.stdout)[1]) < 6, done.stdout
    nothing = subprocess.run([*command, "NoSuchTest"], capture_output=True, text=True)
    assert nothing.returncode == 1 and nothing.stderr == "tests/run: no test of base_test matches NoSuchTest\n", nothing
