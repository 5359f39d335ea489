"""Takes away what this machine's user has set, when it is imported: tests meet the same environment wherever they run.

Variables that begin with CONVTUNE_TEST_, and those that say what was built, tell the tests themselves what to do."""

import atexit
import os
import pathlib
import shutil
import tempfile

KEPT = ("CONVTUNE_TEST_", "CONVTUNE_BUILD_DIR", "CONVTUNE_OTHER_BUILD_DIR")
TAKEN = ("CONVTUNE", "SIMGPU_", "XDG_", "PG", "STATE_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_", "KUBERNETES_", "NO_COLOR", "CLICOLOR")


def _clean():
    for name in list(os.environ):
        if name.startswith(TAKEN) and not name.startswith(KEPT):
            del os.environ[name]
    # A short path: sockets lie below it.
    home = pathlib.Path(tempfile.mkdtemp(prefix="ct-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name, folder in (("CONFIG", "config"), ("STATE", "state"), ("CACHE", "cache"), ("RUNTIME", "run")):
        (home / folder).mkdir(mode=0o700)
        os.environ[f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}"] = str(home / folder)


_clean()
