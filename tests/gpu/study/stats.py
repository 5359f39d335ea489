"""The study's arithmetic: pure functions of numbers, tested against known answers.

Bootstrap intervals are percentile intervals (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 13). Processes, not samples within
a process, are what is resampled: samples of one process share its conditions
(Kalibera and Jones, Rigorous benchmarking in reasonable time, 2013). All draws
come from a fixed seed, so a report of the same records is the same report.
"""

import dataclasses
import math
import random

RESAMPLES = 2000
SEED = 20261121


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value and its interval; low and high are equal to it where there is only one observation."""

    value: float
    low: float
    high: float
    count: int

    @property
    def known(self):
        """False for an interval of fewer than three observations, which says nothing."""
        return self.count >= 3


def median(values):
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median of nothing")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values, share):
    """Linear between order statistics (Hyndman and Fan's type 7)."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("quantile of nothing")
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def geometric_mean(values):
    values = list(values)
    if not values or min(values) <= 0:
        raise ValueError("geometric mean of nothing, or of what is not above 0")
    return math.exp(sum(math.log(v) for v in values) / len(values))


def _resampled(draw, statistic, level, resamples):
    """Percentile interval of statistic over `resamples` draws."""
    generator = random.Random(SEED)
    values = [statistic(draw(generator)) for _ in range(resamples)]
    tail = (1 - level) / 2
    return quantile(values, tail), quantile(values, 1 - tail)


def median_interval(values, level=0.95, resamples=RESAMPLES):
    """Median over processes and its interval."""
    values = list(values)
    low, high = _resampled(lambda g: g.choices(values, k=len(values)), median, level, resamples)
    return Estimate(median(values), low, high, len(values))


def ratio_of_medians(numerator, denominator, level=0.95, resamples=RESAMPLES):
    """median(numerator) / median(denominator), of two independent sets of processes."""
    a, b = list(numerator), list(denominator)
    draw = lambda g: (g.choices(a, k=len(a)), g.choices(b, k=len(b)))
    low, high = _resampled(draw, lambda pair: median(pair[0]) / median(pair[1]), level, resamples)
    return Estimate(median(a) / median(b), low, high, min(len(a), len(b)))


def paired_ratio(pairs, level=0.95, resamples=RESAMPLES):
    """Median of a/b over pairs that were taken in the same round, and its interval."""
    ratios = [a / b for a, b in pairs]
    return median_interval(ratios, level, resamples)


def geometric_mean_ratio(items, level=0.95, resamples=RESAMPLES):
    """Geometric mean over items of the ratio of medians; items is a list of (numerators, denominators).

    The items are the study's and stay; only each one's processes are drawn anew.
    So the interval says how well the mean of these items is known, not how
    another choice of items would come out."""
    items = [(list(a), list(b)) for a, b in items]
    draw = lambda g: [(g.choices(a, k=len(a)), g.choices(b, k=len(b))) for a, b in items]
    value = lambda sets: geometric_mean(median(a) / median(b) for a, b in sets)
    low, high = _resampled(draw, value, level, resamples)
    return Estimate(value(items), low, high, min(min(len(a), len(b)) for a, b in items))


def non_inferior(times, reference, margin=0.01, confidence=0.95, resamples=RESAMPLES):
    """(holds, upper bound): whether times / reference is below 1 + margin with one-sided confidence.

    The two one-sided form (Schuirmann 1987): the upper end of the interval of
    level 2 * confidence - 1 is the one-sided bound."""
    bound = ratio_of_medians(times, reference, 2 * confidence - 1, resamples).high
    return bound < 1 + margin, bound


def regret(choice, oracle):
    """How much longer the choice takes than the oracle, judged in the same rounds.

    Both are lists of samples, one for each round, None where one failed. The
    median of the ratios less 1; never cut at 0, since the oracle was chosen on
    other rounds and may lose on these."""
    ratios = [c / o for c, o in zip(choice, oracle) if c and o]
    if not ratios:
        raise ValueError("no round has both")
    return median(ratios) - 1


def flips(winners, times, threshold=0.01):
    """(pairs that chose differently, those whose times differ by more than the threshold, pairs).

    winners is what each independent tuning chose, times the referee's time of
    each candidate. Two tunings are one pair."""
    differ = beyond = pairs = 0
    for i, first in enumerate(winners):
        for second in winners[i + 1 :]:
            pairs += 1
            if first == second:
                continue
            differ += 1
            a, b = times[first], times[second]
            beyond += abs(a - b) / min(a, b) > threshold
    return differ, beyond, pairs


def ranks(values):
    """From 1; ties get their mean rank."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            result[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return result


def spearman(xs, ys):
    """Rank correlation; None where one of them does not vary."""
    a, b = ranks(xs), ranks(ys)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    over = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    under = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return over / under if under else None
