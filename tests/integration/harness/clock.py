"""A wall clock that a test sets while programs run; their steady clock goes on."""

import glob

import pytest

from . import needs

MONTH = 30 * 86400
STEPS = pytest.mark.parametrize(
    "seconds", (-3600, 3600, pytest.param(-MONTH, marks=pytest.mark.ci), pytest.param(MONTH, marks=pytest.mark.ci))
)


class WallClock:
    """Programs that are started with `env` read it, and so do their children."""

    def __init__(self, folder):
        library = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None) or needs.missing("faketime", "faketime")
        self._file = folder / "clock"
        self.step(0)
        self.env = {
            "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def step(self, seconds):
        """To so many seconds from the machine's time. Abseil notices within two seconds or so."""
        new = self._file.with_suffix(".new")  # a program may read it at any moment
        new.write_text(f"{seconds:+d}")
        new.replace(self._file)
