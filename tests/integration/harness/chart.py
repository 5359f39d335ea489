"""The Helm chart, rendered."""

import os
import pathlib
import shutil
import subprocess
import sys

import yaml

from .needs import missing

CHART = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "helm" / "convtune"
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "data" / "helm"


def helm():
    own = pathlib.Path(sys.prefix) / "bin" / "helm"  # where install-deps puts it
    found = os.environ.get("CONVTUNE_TEST_HELM") or shutil.which("helm") or (str(own) if own.exists() else None)
    if not found:
        missing("helm")
    return found


def template(*arguments):
    """`helm template` with these arguments: the completed process."""
    return subprocess.run([helm(), "template", "demo", CHART, *arguments], capture_output=True, text=True)


def rendered(*values):
    """The manifests that the chart makes of these values, by kind."""
    made = template(*(word for value in values for word in ("--set", value)))
    assert made.returncode == 0, made.stderr
    return {m["kind"]: m for m in yaml.safe_load_all(made.stdout) if m}


def stored(mode):
    """The manifests of a stored rendering."""
    return [m for m in yaml.safe_load_all((GOLDEN / f"{mode}.yaml").read_text()) if m]


def pod_spec(manifests):
    """Of the workload among them."""
    (workload,) = [m for m in manifests if m["kind"] in ("Deployment", "Job", "DaemonSet")]
    return workload["spec"]["template"]["spec"]
