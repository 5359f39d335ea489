"""The study's arithmetic against answers that are known beforehand."""

import random

import pytest

from harness import study  # noqa: F401  puts the study's modules on the path

import stats


def test_medians_and_quantiles():
    assert stats.median([3, 1, 2]) == 2
    assert stats.median([4, 1, 3, 2]) == 2.5
    assert stats.quantile([0, 10, 20, 30, 40], 0.95) == pytest.approx(38)
    assert stats.quantile([7], 0.3) == 7
    with pytest.raises(ValueError, match="nothing"):
        stats.median([])


def test_geometric_mean():
    assert stats.geometric_mean([1, 4, 16]) == pytest.approx(4)
    with pytest.raises(ValueError, match="not above 0"):
        stats.geometric_mean([1, 0])


def test_an_interval_of_equal_values_is_a_point():
    assert stats.median_interval([5.0] * 10) == stats.Estimate(5.0, 5.0, 5.0, 10)


def test_a_ratios_interval_holds_the_true_ratio_about_as_often_as_it_says():
    generator = random.Random(8)
    held = 0
    for _ in range(300):
        a = [generator.gauss(110, 3) for _ in range(12)]
        b = [generator.gauss(100, 3) for _ in range(12)]
        estimate = stats.ratio_of_medians(a, b, level=0.8, resamples=200)
        held += estimate.low <= 1.1 <= estimate.high
    assert 0.72 <= held / 300 <= 0.88


def test_the_same_records_give_the_same_interval():
    values = [random.Random(3).random() + 1 for _ in range(10)]
    assert stats.median_interval(values) == stats.median_interval(values)


def test_few_processes_make_no_interval():
    assert not stats.ratio_of_medians([1.0, 1.1], [1.0, 1.0, 1.0]).known
    assert stats.ratio_of_medians([1.0] * 3, [1.0] * 3).known


def test_a_geometric_mean_of_ratios():
    estimate = stats.geometric_mean_ratio([([2.0] * 5, [1.0] * 5), ([8.0] * 5, [1.0] * 5)])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((4, 4, 4))


@pytest.mark.parametrize("slower, holds", [(1.0, True), (1.005, True), (1.02, False), (0.9, True)])
def test_non_inferiority_at_one_percent(slower, holds):
    generator = random.Random(11)
    reference = [generator.gauss(100, 0.1) for _ in range(12)]
    times = [generator.gauss(100 * slower, 0.1) for _ in range(12)]
    assert stats.non_inferior(times, reference)[0] is holds


def test_noise_alone_does_not_prove_non_inferiority():
    generator = random.Random(12)
    noisy = lambda: [generator.gauss(100, 10) for _ in range(6)]
    assert not stats.non_inferior(noisy(), noisy())[0]


def test_regret_is_of_the_same_rounds():
    """What slows all of a round is in neither; a lost sample costs its round."""
    oracle = [100.0, 200.0, 100.0, None, 100.0]
    choice = [110.0, 220.0, 110.0, 110.0, None]
    assert stats.regret(choice, oracle) == pytest.approx(0.1)
    assert stats.regret(oracle, oracle) == 0
    with pytest.raises(ValueError, match="no round"):
        stats.regret([None], [1.0])


def test_flips_are_counted_by_pairs_and_by_what_they_cost():
    times = {"a": 100.0, "b": 100.5, "c": 103.0}
    assert stats.flips(["a", "a", "a"], times) == (0, 0, 3)
    assert stats.flips(["a", "b", "c"], times) == (3, 2, 3)
    assert stats.flips(["a", "a", "b"], times) == (2, 0, 3)


def test_rank_correlation():
    assert stats.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert stats.spearman([1, 2, 3, 4], [9, 7, 5, 1]) == pytest.approx(-1)
    # Spearman's own form for no ties: 1 - 6 * sum(d^2) / (n * (n^2 - 1)).
    assert stats.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / 120)
    assert stats.ranks([5, 1, 5]) == [2.5, 1.0, 2.5]
    assert stats.spearman([1, 1, 1], [1, 2, 3]) is None


def test_a_bootstrap_of_two_values_has_its_exact_spread():
    """The median of two draws from {0, 1} is 0, 0.5 or 1 with chances 1/4, 1/2, 1/4: both ends are in a 90% interval."""
    estimate = stats.median_interval([0.0, 1.0], level=0.9)
    assert (estimate.low, estimate.value, estimate.high) == (0.0, 0.5, 1.0)
