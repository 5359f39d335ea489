"""The study's arithmetic and its rule, against answers that are known beforehand."""

import pathlib
import random
import re

import pytest

from harness import study  # noqa: F401  puts the study's modules on the path

import peers
import records
import report
import stats
import verdict
from steps import networks
from verdict import Answer, Status


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


def test_an_interval_of_equal_ratios_is_a_point():
    found = stats.pooled([[[2.0] * 5, [2.0] * 5], [[8.0] * 10]])
    assert (found.value, found.low, found.high, found.pairs) == pytest.approx((4, 4, 4, 10))


def test_generations_count_alike_however_many_rounds_they_have():
    assert stats.pooled([[[1.0] * 100, [4.0] * 6]]).value == pytest.approx(2)


def test_an_interval_spans_what_generations_differ_by():
    """Rounds of one generation agree to a thousandth and the generations differ by 4%: the interval knows."""
    generator = random.Random(5)
    generations = [[generator.gauss(centre, 0.001) for _ in range(20)] for centre in (1.00, 1.04)]
    found = stats.pooled([generations])
    assert found.low == pytest.approx(1.00, abs=0.002) and found.high == pytest.approx(1.04, abs=0.002)
    alone = stats.pooled([generations[:1]])
    assert alone.high - alone.low < 0.002


def test_an_interval_holds_the_true_ratio_about_as_often_as_it_says():
    generator = random.Random(8)
    held = 0
    for _ in range(200):
        found = stats.pooled([[[generator.gauss(1.1, 0.02) for _ in range(20)]]])
        held += found.low <= 1.1 <= found.high
    assert 0.89 <= held / 200 <= 0.99


def test_the_same_records_give_the_same_interval():
    values = [[random.Random(3).random() + 1 for _ in range(10)]]
    assert stats.pooled([values]) == stats.pooled([values])


def test_fewer_than_six_pairs_make_no_interval():
    assert not stats.pooled([[[1.0] * 5]]).known
    assert stats.pooled([[[1.0] * 3, [1.0] * 3]]).known
    # The mean of several networks is known as well as the one that has the fewest.
    assert not stats.pooled([[[1.0] * 20], [[1.0] * 5]]).known


def test_an_estimate_turned_round():
    found = stats.Estimate(0.8, 0.5, 1.0, 9).inverse()
    assert (found.value, found.low, found.high, found.pairs) == (1.25, 1.0, 2.0, 9)


def test_regret_is_of_the_same_rounds():
    """What slows all of a round is in neither; a lost sample costs its round."""
    oracle = [100.0, 200.0, 100.0, None, 100.0]
    choice = [110.0, 220.0, 110.0, 110.0, None]
    assert stats.regret(choice, oracle) == pytest.approx(0.1)
    assert stats.regret(oracle, oracle) == 0
    with pytest.raises(ValueError, match="no round"):
        stats.regret([None], [1.0])


def test_flips_are_counted_by_pairs_and_by_what_they_cost():
    times = {"a": 100.0, "b": 101.4, "c": 103.0}
    chose = lambda *winners: [(w, times) for w in winners]
    assert stats.flips(chose("a", "a", "a")) == (0, 0, 3)
    assert stats.flips(chose("a", "b", "c")) == (3, 2, 3)
    assert stats.flips(chose("a", "a", "b")) == (2, 0, 3)
    assert stats.flips([(w, {"a": 100.0, "d": 101.6}) for w in "ad"]) == (1, 1, 1)
    # Two that no tuning timed side by side cannot be said to be equal.
    assert stats.flips([("a", {"a": 1.0}), ("b", {"b": 1.0})]) == (1, 1, 1)


def test_a_flip_costs_something_beyond_what_a_race_calls_equal():
    header = (study.REPO / "proto/model/tuning/ranking.h").read_text()
    assert stats.EQUIVALENCE == float(re.search(r"double kEquivalence = ([0-9.]+);", header)[1])
    made, tuning = Made(), lambda winner: {"p": {"winner": winner, "times": {"a": 100.0, "b": 101.4}}}
    made.add("flips", tunings=tuning("a")).add("flips", tunings=tuning("b"))
    ((_, _, body),) = [part for part in report.tables(made.records) if part[0] == "Flips"]
    assert [cell.strip() for cell in body.splitlines()[0].split("|")[1:-1]] == ["pairs", "chose differently", "by more than 1.5%"]
    assert [cell.strip() for cell in body.splitlines()[2].split("|")[1:-1]] == ["1", "1", "0"]


class Made:
    """Records of a study whose answer is known: times by peer, with noise that all peers of a round share."""

    FACTORS = {"H": 1.0, "H2": 1.0, "B": 0.99, "B10": 0.95, "B10.2": 0.95, "B10.3": 0.95, "B0": 0.96, "W": 0.90}

    def __init__(self, card="GPU-a"):
        self.records = records.Records(pathlib.Path("/nonexistent"))
        self.card, self.generations, self.random = card, 0, random.Random(1)

    def add(self, kind, **fields):
        self.records.all.append({"kind": kind, "card": self.card, **fields})
        return self

    def generation(self, network, rounds=20, served=1.0, error=0.001, card=None, errors=(), counters=None, **factors):
        self.generations += 1
        total = networks()[network].convolutions
        shared = {"network": network, "generation": f"g{self.generations}", "card": card or self.card}
        self.add("peers", **shared, errors={"W": error, "H2": 0.0, **dict(errors)}, first_ms={"H": 100.0}, torch="2.11", cudnn=91900)
        for number in range(rounds):
            slow = self.random.uniform(1, 3)
            known = {**self.FACTORS, **factors}
            us = {p: 1000 * slow * known[p] * self.random.gauss(1, 0.001) for p in peers.names_for(network) if known[p]}
            self.add("round", **shared, round=number, us=us, state={})
        return self.add("served", **shared, convolutions=total, captured=total, captured_served=round(served * total), counters={"captured": total} if counters is None else counters)

    def all_networks(self, only=None, **factors):
        for name in networks() if only is None else list(networks())[:only]:
            self.generation(name, **factors)
        return self

    def all_tuned(self, winner):
        """Every network's bound; H's iterations are as long as their convolutions."""
        for name in networks():
            self.tuned(name, winner=winner)
            for record in self.records.of("round", network=name):
                scale = 100.0 * networks()[name].convolutions / record["us"]["H"]
                record["us"] = {peer: us * scale for peer, us in record["us"].items()}
        return self

    def tuned(self, network, stock=100.0, winner=90.0, evidence="EVIDENCE_MEASURED", broken=()):
        problems = [
            {"problem": p, "count": n, "stock_us": stock, "winner_us": winner, "timed": 3, "candidates": 5, "cut": n == 1, "quarantined": 0, "evidence": evidence}
            for p, n in networks()[network].problems.items()
        ]  # fmt: skip
        return self.add("tuned", network=network, problems=problems, self_check_failed=list(broken))

    def starts(self, later_ms=25.0, count=6, served=53):
        for peer, ms in (("H", 200.0), ("B10", 900.0), ("W", 200.0 + later_ms)):
            for number in range(count):
                self.add(
                    "startup", network="resnet50", peer=peer, round=number, first_ms=ms, from_exec_ms=ms + 3000, peak_bytes=1, card_bytes=None,
                    convolutions=53, served=served,
                )  # fmt: skip
        return self

    def rest(self):
        """Those that have not run run well."""
        for name in networks():
            if not self.records.of("round", network=name):
                self.generation(name)
        return self

    @property
    def verdict(self):
        return verdict.verdict(self.records)

    @property
    def results(self):
        return {(r.network, r.card): r for r in verdict.results(self.records)}


SEARCHES = ("B10", "B10.2", "B10.3")
b10 = lambda factor: dict.fromkeys(SEARCHES, factor)
# Made-up records, and (faster, sooner) of each.
RULE = {
    "all equal": (lambda: Made().all_networks(B=1.0, B0=1.0, W=1.0, **b10(1.0)).starts(), "no", "no"),
    "W is H, and searches find nothing": (lambda: Made().all_networks(B=1.2, B0=1.2, W=1.0, **b10(1.2)).starts(), "no", "no"),
    "one network": (lambda: Made().all_networks(1).starts(), "open", "open"),
    "three networks": (lambda: Made().all_networks(3).starts(), "open", "open"),
    "four networks": (lambda: Made().all_networks(4).starts(), "yes", "yes"),
    "five networks": (lambda: Made().all_networks(5).starts(), "yes", "yes"),
    "all networks": (lambda: Made().all_networks().starts(), "yes", "yes"),
    "B0 is missing": (lambda: Made().all_networks(B0=None).starts(), "yes", "yes"),
    "B10 is missing": (lambda: Made().all_networks(**b10(None)).starts(), "open", "open"),
    "as fast as a search": (lambda: Made().all_networks(W=0.95).starts(), "no", "yes"),
    "slower than a search": (lambda: Made().all_networks(W=0.97).starts(), "no", "no"),
    "starts late": (lambda: Made().all_networks().starts(51), "yes", "no"),
    "start-up is not known": (lambda: Made().all_networks(), "yes", "open"),
    "a low bound": (lambda: Made().all_networks(B=1.0, B0=1.0, W=1.0, **b10(1.0)).starts().all_tuned(99.5), "no", "no"),
    "a low bound, nothing counts": (lambda: Made().all_networks(H2=1.03).all_tuned(99.5), "no", "no"),
    "a low bound and a gain": (lambda: Made().all_networks().starts().all_tuned(99.5), "contradiction", "contradiction"),
    "a bound that is not low": (lambda: Made().all_networks().starts().all_tuned(90.0), "yes", "yes"),
    "starts of five processes": (lambda: Made().all_networks().starts(count=5), "yes", "open"),
    "starts in which W is not served": (lambda: Made().all_networks().starts(served=40), "yes", "open"),
    "A/A of 3%": (lambda: Made().all_networks(H2=1.03).starts(), "open", "open"),
    "W is not served": (lambda: Made().all_networks(served=0.5, W=1.0).starts(), "open", "open"),
    "below 1.02 in two": (lambda: Made().all_networks(2, W=0.99, B=1.0, B0=1.0, **b10(1.0)).rest().starts(), "no", "yes"),
    "below 1.02 in three": (lambda: Made().all_networks(3, W=0.99, B=1.0, B0=1.0, **b10(1.0)).rest().starts(), "no", "no"),
}


@pytest.mark.parametrize("name", RULE)
def test_the_rule(name):
    make, faster, sooner = RULE[name]
    found = make().verdict
    assert (found.faster.value, found.sooner.value) == (faster, sooner)


def killed():
    """A generation that ended before W told how much it was served."""
    made = Made().generation("resnet50")
    made.records.all = [r for r in made.records.all if r["kind"] != "served"]
    return made


# Made-up records of a network, and whether it counts.
STATUS = {
    "W's output differs": (lambda: Made().generation("resnet50", error=0.021), Status.OUTPUTS_DIFFER),
    "W's output is no number": (lambda: Made().generation("resnet50", error=None), Status.OUTPUTS_DIFFER),
    "unmodified peers differ by half of it": (lambda: Made().generation("sd_unet", error=0.05, errors={"B10": 0.03, "B": None}), Status.COUNTED),
    "unmodified peers differ by less": (lambda: Made().generation("sd_unet", error=0.07, errors={"B10": 0.03}), Status.OUTPUTS_DIFFER),
    "A/A beyond 1%": (lambda: Made().generation("resnet50", H2=1.012), Status.NOISY),
    "A/A within 1%": (lambda: Made().generation("resnet50", H2=1.008), Status.COUNTED),
    "five rounds": (lambda: Made().generation("resnet50", rounds=5), Status.TOO_FEW),
    "three rounds twice": (lambda: Made().generation("resnet50", rounds=3).generation("resnet50", rounds=3), Status.COUNTED),
    "killed": (killed, Status.SILENT),
    # That is not the same as not served.
    "counters that were not written": (lambda: Made().generation("resnet50", served=0.0, counters={}), Status.SILENT),
}


@pytest.mark.parametrize("name", STATUS)
def test_whether_a_network_counts(name):
    make, status = STATUS[name]
    (result,) = make().results.values()
    assert result.status is status
    if status in (Status.OUTPUTS_DIFFER, Status.SILENT):
        assert f"Not counted: {result.network}: {status.value}" in report.conclusion(make().verdict)


def test_faster_and_sooner():
    found = Made().all_networks().starts().verdict
    assert found.gain.value == pytest.approx(0.95 / 0.90, rel=2e-3) and found.gain.known
    assert found.over_b10.value == pytest.approx(0.90 / 0.95, rel=2e-3) and found.later_ms == pytest.approx(25)
    assert found.over_w.value == pytest.approx(1 / 0.90, rel=2e-3)
    assert len(found.counted) == 6 and not found.missing and not found.left_out
    assert {r.best for r in found.counted} == {"B10"}


def test_a_no_is_said_with_its_reason():
    equal = {"B": 1.0, "B0": 1.0, "W": 1.0, **b10(1.0)}
    said = lambda made: report.conclusion(made.starts().verdict)[2]
    assert said(Made().all_networks(**equal)).startswith("No product: H / W is below 1.02 in resnet50, ")
    assert said(Made().all_networks(**equal).all_tuned(99.5)) == "No product: the upper bound is below 2% in every network."
    assert said(Made().all_networks().all_tuned(99.5)).startswith("CONTRADICTION: the upper bound is below 2% in every network, and ")
    assert said(Made().all_networks(W=0.97)) == "Neither: by this rule it is not worth it for these networks."


def test_the_first_lines_are_of_the_first_network():
    made = Made()
    assert report.headline(made.records) == [
        "resnet50 in captured graphs: H / W -, A/A -, served - of 53, 0 generations", "resnet50: W / B10 -", "resnet50, first iterations: -",
    ]  # fmt: skip
    made.generation("resnet50")
    first, second, third = report.headline(made.records)
    assert re.fullmatch(r"resnet50 in captured graphs: H / W 1\.11\d \[1\.1\d\d, 1\.1\d\d\], A/A 1\.000 \[.*\], served 53 of 53, 1 generation", first)
    assert re.fullmatch(r"resnet50: W / B10 0\.94\d \[.*\]", second) and third == "resnet50, first iterations: H 100 ms"
    made.generation("resnet50").starts()
    first, _, third = report.headline(made.records)
    assert first.endswith("2 generations") and third == "resnet50, first iterations of fresh processes: H 200 ms, W 225 ms, B10 900 ms"
    page = report.markdown(made.records)
    assert page.index("resnet50 in captured graphs") < page.index("FASTER") < page.index("## Networks")


def test_each_search_counts_as_a_generation():
    """One of three found something slower: the interval knows, though there is one generation."""
    made = Made().generation("resnet50", **{"B10.3": 1.05})
    estimate = made.results["resnet50", "GPU-a"].gains["B10"]
    assert estimate.low == pytest.approx(0.95 / 0.9, abs=5e-3) and estimate.high > 1.08
    assert made.results["resnet50", "GPU-a"].generations == 1


def test_w_that_was_not_served_is_no_w():
    """A wrong environment would read as no gain."""
    made = Made().all_networks()
    made.records.all = [r for r in made.records.all if r.get("network") != "unet"]
    made.generation("unet", served=0.9, W=1.0)
    result = made.results["unet", "GPU-a"]
    assert result.status is Status.NOT_SERVED and "W" not in result.over_h and result.gain is None
    found = made.verdict
    assert found.faster is Answer.YES and [r.network for r in found.left_out] == ["unet"] and len(found.counted) == 5
    assert "Not counted: unet: less than 95% served" in report.conclusion(found)
    # A generation in which it was served counts, and that one alone.
    made.generation("unet", served=0.96, W=0.90)
    assert made.results["unet", "GPU-a"].status is Status.COUNTED
    assert made.results["unet", "GPU-a"].gain.value == pytest.approx(0.95 / 0.90, rel=2e-3)


def test_what_the_interposer_did_not_know_of_was_not_served():
    """It counts nodes of problems that it knows: 10 of 10 is not 10 of 53."""
    assert verdict.served_share({"captured": 10, "captured_served": 10, "convolutions": 53}) == pytest.approx(10 / 53)
    assert verdict.served_share({"captured": 106, "captured_served": 53, "convolutions": 53}) == 0.5


def test_why_w_was_not_served_is_said():
    made = Made().tuned("resnet50", evidence="EVIDENCE_HEURISTIC", broken=["clock", "captures"])
    made.generation("resnet50", served=0.0, counters={"missed": {"no_entry": 53, "refused": 0}})
    (line,) = [line for line in report.conclusion(made.verdict) if line.startswith("Not counted: ")]
    assert line == (
        "Not counted: resnet50: less than 95% served: W was not served: the worker's self-check found that clock, captures do not work; "
        "see gates; 0% of the convolutions have a tuning that may be published (evidence of the others: heuristic 23); the interposer missed "
        "no_entry 53"
    )
    (bound,) = verdict.bounds(made.records)
    assert bound.published == 0.0
    failed = Made().generation("resnet50", served=0.0).add("peer_failed", network="resnet50", peer="W", reason="no symbol")
    assert failed.results["resnet50", "GPU-a"].because == "W failed: no symbol"


@pytest.mark.parametrize("same, line", [(23, True), (22, False)])
def test_mode_b_that_lists_what_h_lists_is_named(same, line):
    """B looks 1% faster than all others and is H: the table says so."""
    made = Made().generation("unet", B=0.94).add("modes", network="unet", convolutions=23, same_list=same, same_first=23)
    assert any(text.startswith("Mode B is H again in unet: ") for text in report.conclusion(made.verdict)) is line
    page = report.markdown(made.records)
    assert ("B (= H)" in page) is line and (f"{round(100 * same / 23)}%, 100%" in page)
    assert Made().generation("unet").results["unet", "GPU-a"].modes is None


@pytest.mark.parametrize("same, line", [(53, False), (52, True)])
def test_mode_b_that_was_left_out_and_is_not_h_is_named(same, line):
    made = Made().generation("resnet50").add("modes", network="resnet50", convolutions=53, same_list=same, same_first=53)
    assert any(text == "Mode B was left out in resnet50, where on this GPU it is not H." for text in report.conclusion(made.verdict)) is line


@pytest.mark.parametrize("missing", [{"H2": None}, b10(None), {"W": None}], ids=["H2", "B10", "W"])
def test_a_network_waits_for_the_peers_that_the_rule_needs(missing):
    made = Made().all_networks(**missing).starts()
    assert {r.status for r in made.results.values()} == {Status.PEER_MISSING}
    found = made.verdict
    assert (found.faster, found.sooner) == (Answer.OPEN, Answer.OPEN) and len(found.missing) == 6 and not found.left_out
    assert report.conclusion(found)[0] == "FASTER so far (0 of 6 networks have run): open: 0 networks count, and 4 are needed; best peer / W - (the rule: at least 1.05)"
    # A later generation in which it ran completes them.
    found = made.all_networks().verdict
    assert (found.faster, found.sooner) == (Answer.YES, Answer.YES) and len(found.counted) == 6 and not found.missing


def test_a_search_without_a_limit_that_did_not_end_is_named():
    """It belongs to two networks, and W may be faster than all others without it."""
    found = Made().all_networks(B0=None).starts().verdict
    assert [line for line in report.conclusion(found) if line.startswith("Without")] == ["Without B0: resnet50", "Without B0: unet"]
    few = Made().generation("resnet50", B0=None).generation("resnet50", rounds=5, B0=0.8)
    (counted,) = few.verdict.counted
    assert counted.best == "B10" and counted.without == ("B0",)
    assert not Made().generation("resnet50").results["resnet50", "GPU-a"].without


def test_what_is_not_complete_says_so():
    found = Made().generation("resnet50").verdict
    assert found.faster is Answer.OPEN and len(found.missing) == 5
    assert report.conclusion(found)[0].startswith("FASTER so far (1 of 6 networks have run): open: 1 networks count, and 4 are needed; best peer / W 1.05")
    empty = Made().verdict
    assert empty.faster is Answer.OPEN and len(empty.missing) == 6


def test_cards_are_never_pooled_as_one():
    made = Made().generation("resnet50", W=0.90).generation("resnet50", W=0.80, card="GPU-b", rounds=30)
    a, b = made.results["resnet50", "GPU-a"], made.results["resnet50", "GPU-b"]
    assert a.gain.value == pytest.approx(0.95 / 0.90, rel=2e-3) and b.gain.value == pytest.approx(0.95 / 0.80, rel=2e-3)
    # The verdict takes the GPU that has more rounds, and says which.
    (counted,) = made.verdict.counted
    assert counted.card == "GPU-b" and made.verdict.gain.value == pytest.approx(b.gain.value)


def test_ratios_are_of_one_round():
    rounds = [{"H": 100.0, "W": 50.0}, {"H": 300.0, "W": 150.0}, {"H": 100.0}]
    assert verdict.ratios(rounds, "H", "W") == [2.0, 2.0]


def test_the_upper_bound():
    made = Made().tuned("resnet50", stock=100.0, winner=90.0)
    (bound,) = verdict.bounds(made.records)
    # Until H has run it is a share of the convolutions' own time.
    assert (bound.saved_us, bound.stock_us, bound.share, bound.measured) == pytest.approx((530, 5300, 0.1, 1.0))
    made.add("round", network="resnet50", generation="g", us={"H": 10600.0}, state={})
    assert verdict.bounds(made.records)[0].share == pytest.approx(0.05)


def test_the_upper_bound_is_of_the_card_that_tuned():
    made = Made().tuned("resnet50", stock=100.0, winner=90.0)
    made.add("round", network="resnet50", generation="g", us={"H": 10600.0}, state={})
    made.card = "GPU-b"
    for _ in range(3):
        made.add("round", network="resnet50", generation="h", us={"H": 5300.0}, state={})
    assert verdict.bounds(made.records)[0].share == pytest.approx(0.05)
    made.tuned("resnet50", stock=100.0, winner=90.0)
    assert [b.share for b in verdict.bounds(made.records)] == pytest.approx([0.1])


def test_the_oracles_table_names_the_card():
    found = {"problem": "fwd,x", "ran": 3, "oracle_us": 1.0, "regret": 0.0, "stock_regret": 0.1, "winner": "a", "oracle": "a"}
    made = Made().add("oracle", **found)
    made.card = "GPU-b"
    made.add("oracle", **found)
    rows = report.oracle_table(made.records.of("oracle"))[1].splitlines()
    assert [row.split("|")[1].strip() for row in (rows[0], *rows[2:])] == ["card", "a", "b"]


def test_an_upper_bound_of_half_of_the_convolutions_is_none():
    made = Made()
    for name in networks():
        made.tuned(name, winner=99.9)
        made.add("round", network=name, generation="bound", us={"H": 1e6}, state={})
    assert made.verdict.bounds_low and made.verdict.faster is Answer.NO
    made.records.of("tuned", network="unet")[0]["problems"][0]["stock_us"] = None
    assert not made.verdict.bounds_low


def test_tables_say_what_is_not_known():
    assert [report.number(v) for v in (0.0123456, None)] == ["0.012", "-"]
    assert report.ratio(stats.Estimate(1.0, 0.9, 1.1, 6)) == "1.000 [0.900, 1.100]"
    assert report.ratio(stats.Estimate(1.0, 0.9, 1.1, 5)) == "1.000 (5 pairs)"
    assert report.table(["a", "b"], [["x", 10]]) == "| a | b  |\n|---|----|\n| x | 10 |"
