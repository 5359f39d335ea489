"""What deploy/build-site writes out of the sources."""

import importlib.util
from importlib.machinery import SourceFileLoader

from conftest import REPO


def module():
    """deploy/build-site, as a module."""
    loader = SourceFileLoader("build_site", str(REPO / "deploy/build-site"))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader("build_site", loader))
    loader.exec_module(made)
    return made
