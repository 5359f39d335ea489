"""The study's arithmetic: pure functions of numbers, tested against known answers.

A ratio is taken within one round, so that what slows a whole round is in
neither. Rounds of one generation of processes share those processes'
addresses, plans and clocks; therefore a bootstrap draws generations first and
rounds within each of them second (Kalibera and Jones, Rigorous benchmarking in
reasonable time, 2013). All draws come from a fixed seed: a report of the same
records is the same report.
"""

import dataclasses
import math
import random

RESAMPLES = 500
SEED = 20261122
LEVEL = 0.95
LEAST_PAIRS = 6
# Times within this share are equal: kEquivalence.
EQUIVALENCE = 0.015


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value, its interval, and the number of pairs that both rest on."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def known(self):
        """Whether the interval may be shown: fewer pairs say too little."""
        return self.pairs >= LEAST_PAIRS

    def inverse(self):
        return Estimate(1 / self.value, 1 / self.high, 1 / self.low, self.pairs)


def median(values):
    return quantile(values, 0.5)


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


def _of_generations(generations):
    """Each generation counts once, however many rounds it has."""
    return geometric_mean(median(ratios) for ratios in generations)


def pooled(items):
    """The geometric mean over items of a ratio; an item is a list of generations, a generation a list of its rounds' ratios.

    With one item: that item's ratio. The items are the study's own and stay; the
    interval says how well the mean of these items is known, not how other items
    would come out. `pairs` is the number of the item that has the fewest."""
    items = [[list(g) for g in generations if g] for generations in items]
    generator = random.Random(SEED)
    draw = lambda values: generator.choices(values, k=len(values))
    drawn = [geometric_mean(_of_generations([draw(g) for g in draw(item)]) for item in items) for _ in range(RESAMPLES)]
    tail = (1 - LEVEL) / 2
    return Estimate(
        geometric_mean(_of_generations(item) for item in items), quantile(drawn, tail), quantile(drawn, 1 - tail),
        min(sum(map(len, item)) for item in items),
    )  # fmt: skip


def regret(choice, oracle):
    """How much longer the choice takes than the oracle, judged in the same rounds.

    Both are lists of samples, one for each round, None where one failed. The
    median of the ratios less 1; never cut at 0, since the oracle was chosen on
    other rounds and may lose on these."""
    ratios = [c / o for c, o in zip(choice, oracle) if c and o]
    if not ratios:
        raise ValueError("no round has both")
    return median(ratios) - 1


def flips(tunings, threshold=EQUIVALENCE):
    """(pairs that chose differently, those whose times differ by more than the threshold, pairs).

    A tuning is (winner, {candidate: time}); two tunings are one pair. How far two
    winners are apart is the median over all tunings that timed both."""
    differ = beyond = pairs = 0
    for i, (first, _) in enumerate(tunings):
        for second, _ in tunings[i + 1 :]:
            pairs += 1
            if first == second:
                continue
            differ += 1
            apart = [abs(math.log(times[first] / times[second])) for _, times in tunings if first in times and second in times]
            beyond += not apart or median(apart) > math.log1p(threshold)
    return differ, beyond, pairs
