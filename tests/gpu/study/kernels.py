"""Kernel times of single launches, out of a profile of many.

A profile is a list of what ran on one stream: (name, start, duration) in
nanoseconds. Every timed launch stands between two ticks, tiny kernels of a
name that nothing else has; what stands between a tick that ends one launch and
the one that begins the next (the flush, the priming) is skipped.
"""

TICK = "erfinv"


class LostEvents(RuntimeError):
    """The profile does not hold what was launched."""


def split(events, launches):
    """One (span_us, busy_us, kernels) for each launch, in order; None for one that ran nothing.

    span is from the begin of the first kernel to the end of the last, gaps
    included; busy is the sum of the kernels' durations. Raises LostEvents if
    there are not two ticks for each launch."""
    spans, ticks, inside = [], 0, []
    for name, start, duration in sorted(events, key=lambda e: e[1]):
        if TICK not in name:
            if ticks % 2:
                inside.append((start, start + duration, duration))
            continue
        ticks += 1
        if ticks % 2 == 0:
            spans.append(_summary(inside))
            inside = []
    if ticks != 2 * launches:
        raise LostEvents(f"{ticks} ticks in the profile, {2 * launches} were launched")
    return spans


def _summary(inside):
    if not inside:
        return None
    span = max(end for _, end, _ in inside) - min(start for start, _, _ in inside)
    return span / 1000, sum(duration for *_, duration in inside) / 1000, len(inside)


def order(count, round_number):
    """Who runs when: rotated by one with every round, and backwards in every second one."""
    rotated = [(i + round_number // 2) % count for i in range(count)]
    return rotated[::-1] if round_number % 2 else rotated
