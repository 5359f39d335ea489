"""The pages' commands: every block is typed here as it stands, or the table below says which test runs it, or why none can.

A reader's machine is a checkout in a mount namespace (harness/pages.py). What stands in for something else is said with it: `cmake`
does not build the checkout, `docker`, `helm` and `kubectl` do on this machine what they would do in a cluster.
"""

import os
import re
import socket
import subprocess

import pytest

from conftest import REPO
from harness import cudnn_versions, python_package
from harness.certificates import Certificates
from harness.chart import helm
from harness.fakes import script
from harness.needs import missing
from harness.pages import COPIED, Machine, blocks
from harness.problems import numbered_list

# A program that knows nothing of convtune: two convolutions, by the raw program of the interposer's tests.
SERVE = """
import json, subprocess
properties = json.load(open("deploy/profiles/nvidia-h200.json"))["properties"]
open("h200.json", "w").write(json.dumps(properties, separators=(",", ":")))
for size in (56, 57):
    command = ["convtune-raw-linked", "profile=h200.json", "op=fwd", f"x=32,64,{size},{size}", "w=64,64,3,3", "pad=1,1",
               "stride=1,1", "dilation=1,1", "type=f16", "align=16", "nhwc", "build=all"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
"""
QUICKSTART = "./deploy/quickstart >/dev/null\n"
# The versions of cuDNN that the tests have already.
CACHED_CUDNN = f'mkdir -p "{cudnn_versions.cache()}" "$HOME/.cache/convtune"; ln -s "{cudnn_versions.cache()}" "$HOME/.cache/convtune/cudnn"\n'
STOP = "./deploy/quickstart --stop\n"
MODEL = "\n".join(numbered_list(0, 4)) + "\n"

# Pages that a test below types, all blocks of them but those of ELSEWHERE.
TYPED = {
    "client/cpp/README.md", "client/python/README.md", "db/bundle/README.md", "deploy/docs/alternatives.md", "deploy/docs/containers.md",
    "deploy/docs/fleet.md", "deploy/docs/getting-started.md", "deploy/docs/operations.md", "deploy/docs/programs.md",
    "deploy/docs/reports.md", "deploy/docs/symptoms.md", "deploy/docs/upgrades.md", "server/worker/TRACE.md",
    "tests/data/recordings/README.md",
}  # fmt: skip

# (page, how the block begins): the test that runs it, or why none does.
ELSEWHERE = {
    ("README.md", "./deploy/quickstart"): "getting-started begins with it; tests/run is what runs this",
    ("client/cpp/README.md", "find_package"): "test_install.py builds such a project",
    ("client/cpp/README.md", "#include <convtune/resolver.h>"): "test_install.py builds and runs it",
    ("client/python/README.md", "import sys, convtune"): "test_python_client.py runs it",
    ("client/python/README.md", "import convtune\n\nconvtune.torch"): "test_torch_enable.py does it; a torch for CUDA is not here",
    ("client/python/README.md", "pip install build-wheel"): "test_wheel.py does it; cuDNN's wheels need a network",
    ("deploy/docs/containers.md", "cd deploy/docker"): "no Docker here: test_containers.py runs the services as processes",
    ("deploy/docs/containers.md", "FROM "): "no Docker here: test_containers.py compares them with the image",
    ("deploy/docs/containers.md", "CONVTUNE_CUDA_FROM=wheels12"): "needs a network and builds for minutes; test_wheel.py tries the wheel",
    ("deploy/docs/concepts.md", "convtuned --cudnn-of"): "test_cudnn_of.py does it; torch's wheels need a network",
    ("deploy/docs/contributing.md", "./tests/run"): "what runs this test",
    ("deploy/docs/contributing.md", "ninja -C build"): "what runs this test; test_site.py builds the site",
    ("deploy/docs/upgrades.md", "convtune upgrade-check deploy/examples/resnet50.csv --op fwd --dtype f16 --layout nhwc --from torch"): "test_upgrade_check.py does it; torch's and cuDNN's wheels need a network",
    ("deploy/docs/recipes.md", "convtune warm model.onnx"): "test_warm.py does the first, test_preload_loaders.py the second for both ways",
    ("deploy/docs/recipes.md", "docker run"): "no Docker here",
    ("deploy/docs/recipes.md", "cd deploy/examples"): "test_recipes.py does it without a server",
    ("deploy/docs/recipes.md", "ComfyUI/venv"): "no ComfyUI here: test_recipes.py loads the folder as ComfyUI does",
    ("deploy/docs/symptoms.md", "convtune doctor --program"): "test_doctor_program.py does it; torch's wheels need a network",
    ("deploy/docs/operations.md", "cmake --preset release"): "test_packages.py makes the packages and installs them",
    ("tests/gpu/README.md", "mkdir -p /tmp/k"): "test_kit.py types it twice; it needs a GPU",
    ("tests/gpu/study/STUDY.md", "python3 tests/gpu/study"): "test_study_simulated.py runs the steps, tables and reports",
    ("tests/integration/README.md", "CONVTUNE_BUILD_DIR=build"): "what runs this test",
    ("tests/unit/decision/simulation/README.md", "CONVTUNE_TEST_SIMULATED_TUNINGS"): "ctest runs the same with less; these numbers take hours",
}  # fmt: skip


def elsewhere(block):
    return next((key for key in ELSEWHERE if key[0] == block.page and block.text.startswith(key[1])), None)


def test_every_block_is_typed_here_or_named_with_its_reason():
    found = blocks()
    assert len(found) > 60
    assert [b.place for b in found if not b.language] == [], "blocks without a language: text, if nobody types it"
    copied = [b for b in found if b.language in COPIED]
    assert {b.language for b in found} <= COPIED | {"text"}
    assert [b.place for b in copied if b.page not in TYPED and not elsewhere(b)] == []
    assert ELSEWHERE.keys() == {elsewhere(b) for b in copied} - {None}, "rows without a block"


def typed(page, before=None, replace=None):
    """The blocks of a page as one script. `before`: {how a block begins: what is done before it is typed}."""
    lines, before = [], dict(before or {})
    for block in blocks(page):
        if block.language not in COPIED or elsewhere(block):
            continue
        assert block.language in ("sh", "bash", "python"), block.place
        begin = next((key for key in before if block.text.startswith(key)), None)
        lines.append(before.pop(begin) if begin else "")
        text = block.text if block.language != "python" else f"cat >typed.py <<'END'\n{block.text}END\nvenv/bin/python typed.py\n"
        for placeholder, value in (replace or {}).items():
            text = text.replace(placeholder, value)
        lines.append(text)
    assert not before, before
    return "\n".join(lines) + "\n"


@pytest.fixture
def machine(short_dir, worker, convtune):
    made = Machine(short_dir)
    (made.checkout / "serve.py").write_text(SERVE)
    (made.checkout / "model.txt").write_text(MODEL)
    python_package.one_convolution(made.checkout / "model.onnx")
    return made


@pytest.fixture
def python_env():
    """An interpreter that has the Python package, for `convtune warm model.onnx`."""
    return {"PYTHONPATH": str(python_package.install()), "CONVTUNE_PYTHON": str(REPO / ".venv/bin/python")}


@pytest.fixture
def database(postgres_server):
    """The variables of a reader who has a PostgreSQL server; without the database `fleet`."""
    variables = {"PGHOST": str(postgres_server.folder), "PGUSER": "postgres"}
    env = {**os.environ, **variables}

    def forget():
        subprocess.run(["dropdb", "--if-exists", "--force", "fleet"], env=env, check=True)
        # Roles are the server's, not the database's: those that a page makes.
        subprocess.run(["psql", "-q", "-d", "postgres", "-c", "DROP ROLE IF EXISTS node, ann"], env=env, check=True)

    forget()
    yield variables
    forget()


def fleet_conf(database):
    return (
        f"echo 'host={database['PGHOST']} user=postgres dbname=fleet' >/etc/convtune/fleet.conf\n"
        "chmod 600 /etc/convtune/fleet.conf; export CONVTUNE_POSTGRES_FILE=/etc/convtune/fleet.conf\n"
    )


def gpu(seed, **keys):
    """A daemon with a GPU that is not there; another seed has other winners."""
    fake = script(seed=seed, measure_delay_ms=0, **keys)["CONVTUNE_FAKE_SCRIPT"]
    return f"CONVTUNE_FAKE_SCRIPT='{fake}' convtuned --devices 0 --worker \"$PWD/build/bin/convtune-fake-worker\"\n"


WARM = r"\d+ had an answer, \d+ were tuned, \d+ have none"


@pytest.mark.ci
def test_getting_started_does_what_it_prints(machine):
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode != 0:
        missing("torch", "python3-torch")
    page = (REPO / "deploy/docs/getting-started.md").read_text()
    # pip finds what it would fetch: the packages of this machine.
    machine.tool("python3", f'/usr/bin/python3 "$@"; [ "$1 $2" != "-m venv" ] || '
                 f'printf "%s\\n" "{REPO}"/.venv/lib/python3*/site-packages /usr/lib/python3/dist-packages '
                 '>"$(echo "$3"/lib/python3*/site-packages)/here.pth"')  # fmt: skip
    env = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = machine.type(typed("deploy/docs/getting-started.md"), env, terminals=False)
    printed = re.findall(WARM, page)
    assert [line for line in re.findall(WARM, done.stderr) if line in printed] == printed
    answered = re.findall(r"answered from the database: (\d+ of \d+); worker starts: (\d)", done.stdout)
    assert answered == [("0 of 46", "1"), ("46 of 46", "0")]
    assert re.findall(r"answered from the database: (\d+ of \d+); worker starts: (\d)", page) == answered
    for problem, winner in re.findall(r"^(fwd,\S+) +(graph:\S+) ", page, re.MULTILINE):
        assert re.search(f"^{re.escape(problem)} +{re.escape(winner)} ", done.stdout, re.MULTILINE), problem


@pytest.mark.ci
def test_symptoms(machine, preload, python_env):
    done = machine.type(CACHED_CUDNN + QUICKSTART + typed("deploy/docs/symptoms.md") + STOP, python_env)
    assert "23 had an answer, 0 were tuned, 0 have none" in done.stderr
    assert len(re.findall(r"convtune: \d+ served, \d+ missed", done.stderr)) == 5
    assert re.search(r"cuDNN 9\.19\.\d+ > 9\.28\.\d+: 1 problem; the first choice changes", done.stderr), done.stderr


@pytest.mark.ci
def test_reports(machine, database):
    before = {"convtune report --html": "createdb fleet\n" + fleet_conf(database) + "convtune-fleet migrate\n"}
    done = machine.type(QUICKSTART + typed("deploy/docs/reports.md", before) + "wc -c *.html report.json rows.csv\n" + STOP, database)
    sizes = dict(reversed(line.split()) for line in re.findall(r"^ *\d+ \S+$", done.stdout, re.MULTILINE))
    assert all(int(sizes[name]) > 200 for name in ("report.html", "report.json", "rows.csv", "fleet.html")), sizes
    assert re.search(r"^faster than stock +1\.\d+x", done.stdout, re.MULTILINE), "the simulated fleet has gains"


@pytest.mark.ci
def test_unmodified_programs(machine, preload):
    change = QUICKSTART.replace("quickstart", "quickstart --stop") + gpu(100) + f"convtune tune --file model.txt\n{gpu(101)}" + (
        "convtune tune --force --file model.txt\nsleep 2\n"
    )
    # The frontend takes the daemon's cuDNN, whatever else is installed.
    before = {"convtune release diff": change, "cat >plans.py": f"export LD_LIBRARY_PATH={preload.cudnn_folder}\n"}
    # Publishing comes within a second of the answer, where the machine has a second to spare.
    run = "convtune run --policy truncate --snapshot"
    published = {run: "until convtune release list | grep promoted >promoted; do sleep 0.1; done\nsleep 1\n" + run}
    done = machine.type(QUICKSTART + typed("deploy/docs/programs.md", before, published))
    assert re.search(r"^43 plans\n2 plans$", done.stdout, re.MULTILINE), done.stdout
    assert "convtune: 1 served, 0 missed, 0 learned" in done.stderr, done.stderr
    assert len(re.findall(r"convtune: 0 served, \d+ missed", done.stderr)) >= 1, "the line of the page"
    assert "is promoted" in done.stderr and "has the choices of release" in done.stderr


@pytest.mark.ci
def test_upgrades(machine, database):
    old, new = (f"nvidia-test,cc=9.0,sms=132,cudnn={version},lib=full" for version in ("9.19.0", "9.20.0"))
    before = {"convtune fleet upgrade": "createdb fleet\n" + fleet_conf(database) + "convtune-fleet migrate\n" + (
        gpu(1, environment=old) + "convtune tune --file model.txt\nconvtune-fleet agent --node a\nsleep 2\n"
        + gpu(3, environment=new) + "convtune-fleet agent --node b\nsleep 2\n"
    )}  # fmt: skip
    # Something is wanted: what a program missed.
    prelude = QUICKSTART + "convtune run -- python serve.py\nsleep 1\n"
    replace = {"--from OLD --to NEW": f"--from '{old}' --to '{new}'", "--from E ": f"--from '{new}' "}
    env = {**database, "CONVTUNE_PYTHON": str(REPO / ".venv/bin/python")}
    done = machine.type(CACHED_CUDNN + prelude + typed("deploy/docs/upgrades.md", before, replace), env)
    assert re.search(r"\b4 (of 4|problems)", done.stdout + done.stderr), done


@pytest.mark.ci
def test_a_fleet(machine, database):
    # A release before the page's own, to which it can go back.
    machine.tool("systemctl", '[ "$*" = "enable --now convtune-fleet" ] && grep -q "^CONVTUNE_POSTGRES_FILE=" /etc/default/convtune-fleet')
    first = "convtune tune --file model.txt\nsleep 3\nconvtune fleet release promote --author ann --reason first\n"
    second = gpu(2) + "convtune tune --force --file model.txt\nsleep 3\n"
    prelude = gpu(1) + fleet_conf(database) + "cp /etc/convtune/fleet.conf .\n"
    # The nodes that the page forgets and does not believe.
    others = """psql -q fleet -c "INSERT INTO convtune.nodes (name, last_seen) SELECT n, now() - interval '1 day' FROM unnest('{node7,node8}'::text[]) n"\n"""
    before = {"convtune fleet release diff": first + second, "convtune fleet node forget": others}
    done = machine.type(prelude + typed("deploy/docs/fleet.md", before), database)
    assert "4 of 4" in done.stdout + done.stderr, done


@pytest.mark.ci
def test_containers_and_kubernetes(machine, database):
    machine.tool("docker", 'case "$1" in build) grep -q "AS $5$" "$3" ;; push) ;; *) exit 9 ;; esac')
    # A cluster: a folder for each namespace, with a file for its label and for each secret.
    cluster = machine.directory / "cluster"
    (cluster / "default").mkdir(parents=True)
    namespace = 'namespace=default; for ((i = 1; i < $#; ++i)); do [ "${!i}" != --namespace ] || { ((++i)); namespace=${!i}; }; done'
    machine.tool("helm", f"""
[ "$1" = install ] && shift || exit 9
{namespace}; here={cluster}/$namespace
[ -d "$here" ] || {{ echo "namespaces \\"$namespace\\" not found" >&2; exit 1; }}
made=$("{helm()}" template "$@") || exit
for secret in $(sed -n "s/^ *secretName: //p" <<<"$made"); do
  [ -e "$here/$secret" ] || {{ echo "secret \\"$secret\\" not found" >&2; exit 1; }}
done
if [ $namespace != default ] && grep -q "hostPath:" <<<"$made"; then
  grep -q "pod-security.kubernetes.io/enforce=privileged" "$here/label" || {{ echo "forbidden: violates PodSecurity" >&2; exit 1; }}
fi
echo "$made"
""")
    machine.tool("kubectl", f"""
{namespace}; here={cluster}/$namespace
case "$1 $2" in
  "create namespace") mkdir {cluster}/$3 ;;
  "label namespace") echo "$4" >{cluster}/$3/label ;;
  "create secret") : >"$here/$4"; for word; do case "$word" in --from-file=*) cp "${{word##*=}}" /etc/convtune-fleet/ || exit ;; esac; done ;;
  exec\\ *) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
  *) exit 9 ;;
esac""")
    prelude = "createdb fleet\n" + fleet_conf(database) + "cp /etc/convtune/fleet.conf .\n: >ca.pem; chmod 600 fleet.conf\n"
    prelude += "touch tls.crt tls.key client.crt client.key ca.crt\n"
    done = machine.type(prelude + typed("deploy/docs/containers.md"), database)
    assert len(re.findall(r"^kind: (?:Deployment|DaemonSet)$", done.stdout, re.MULTILINE)) >= 2


@pytest.mark.ci
def test_operations(machine):
    daemon = "chown convtune: /var/lib/convtune\nmkdir /run/convtune\nCONVTUNE_STATE_DIR=/var/lib/convtune convtuned --devices none\n"
    made = Certificates(machine.checkout)
    for old, new in {"ca.pem": "clients.pem servers.pem", "client.pem": "me.pem", "client.key": "me.key"}.items():
        for name in new.split():
            made.path(name).write_bytes(made.path(old).read_bytes())
    # systemd's part: the daemon gets the file's variables, the last of a name, here as flags, since a client reads variables
    # of the same names; and the unit's files say what is done before.
    service = """echo CONVTUNE_STATE_DIR=/var/lib/convtune >/etc/default/convtuned
echo 'serving:x:64998:' >>/etc/group
systemctl() {
  case "$1" in stop) end_daemon; return ;; start | restart) ;; *) return 0 ;; esac
  local args=() name value one before
  for before in /etc/systemd/system/convtuned.service.d/*.conf; do eval "$(sed -n 's/^ExecStartPre=+//p' "$before")"; done
  while IFS='=' read -r name value; do
    name=${name#CONVTUNE_}; name=${name,,}
    for one in ${value//,/ }; do args+=("--${name//_/-}=$one"); done
  done < <(tac /etc/default/convtuned | awk -F= '!seen[$1]++')
  convtuned --devices none "${args[@]}"
}
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
    page = typed("deploy/docs/operations.md", replace={"node7.example:7070": address})
    # The page's own caller may read, and nothing else.
    refused = f"! convtune db compact --address {address} --tls-ca servers.pem --tls-cert me.pem --tls-key me.key\n"
    done = machine.type(daemon + service + page + refused + "ls /var/lib/convtune/backup /var/lib/convtune/convtune.db.old\n")
    assert "takes the role admin, and this caller has read" in done.stderr, done.stderr[-2000:]
    assert re.search(r"^before-the-upgrade\.db\nconvtune-\d{8}T\d{6}Z\.db$", done.stdout, re.MULTILINE)


@pytest.mark.ci
def test_the_python_package(machine, python_env):
    # Its own lines say what becomes of the answer: an engine with knobs, of which programs build plans.
    done = machine.type(QUICKSTART + typed("client/python/README.md") + "cat model.txt\n" + STOP, python_env)
    assert re.search(r"^(profile:)?nvidia-h200 heuristic \d+ .*\d", done.stdout, re.MULTILINE), done.stdout
    assert "fwd,x=32x8x16x16" in done.stdout


@pytest.mark.ci
def test_the_cpp_library(machine):
    done = machine.type(QUICKSTART + typed("client/cpp/README.md") + STOP)
    rows = re.findall(r"^fwd,x=32x64x56x56\S*\t.*$", done.stdout, re.MULTILINE)
    assert len(rows) == 2 and all(re.search(r"\tgraph:eng\S+\t\d+$", row) for row in rows), done.stdout
    assert "heuristic:" not in done.stdout, done.stdout


@pytest.mark.ci
def test_bundles(machine):
    done = machine.type(QUICKSTART + typed("db/bundle/README.md", {"openssl": ""}))
    assert "signed" in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("page", ["server/worker/TRACE.md", "tests/data/recordings/README.md", "deploy/docs/alternatives.md"])
def test_small_pages(machine, page):
    machine.type(gpu(1) + "convtune tune --file model.txt\n" + typed(page))
