"""Answers that are asked for again and again, beside the program."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from convtune.answers import Result

_log = logging.getLogger("convtune")


def _sign(result: Result) -> tuple[str, str]:
    """Two results with the same one do not differ."""
    return (result.answer.winner.text, result.answer.evidence) if result.answer else ("", result.miss)


class Refresh(threading.Thread):
    """A thread that asks every `period_s` seconds and says what changed. It
    keeps no program from ending."""

    def __init__(
        self, ask: Callable[[], list[Result]], changed: Callable[[list[Result]], None], period_s: float
    ) -> None:
        if not (period_s > 0 and math.isfinite(period_s)):
            raise ValueError(f"period_s: must be above 0, is {period_s!r}")
        super().__init__(name="convtune-refresh", daemon=True)
        self._ask = ask
        self._changed = changed
        self._period_s = period_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        if self is not threading.current_thread():
            self.join()

    def run(self) -> None:
        last: dict[int, tuple[str, str]] = {}  # by place
        while not self._stopping.is_set():
            try:
                # A problem that could not be asked for keeps its last answer.
                now = {place: result for place, result in enumerate(self._ask()) if result.source}
                differ = [result for place, result in now.items() if _sign(result) != last.get(place)]
                last |= {place: _sign(result) for place, result in now.items()}
                if differ and not self._stopping.is_set():
                    self._changed(differ)
            except Exception:  # the callback's, or a closed channel's: the next round may go better
                _log.exception("a refresh failed")
            self._stopping.wait(min(self._period_s, threading.TIMEOUT_MAX))
