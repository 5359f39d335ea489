"""Recordings: the daemon from end to end on times that were taken before.

The recordings of real GPUs are in tests/data/recordings. That a replay is true
to what it replays is shown with a recording of the fake worker, made here.
"""

import gzip
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "recordings"
RECORDINGS = sorted(FOLDER.glob("*.bundle.gz"))
PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in range(1, 5)]


@pytest.fixture
def replay(fake_daemon, tmp_path):
    """replay(bundle) is a daemon whose worker answers from it."""
    return lambda bundle: fake_daemon(env={"CONVTUNE_FAKE_SCRIPT": f"recording={bundle}"}).start()


def tunings(run):
    """By problem: the winner and how the race ended, and the candidates in order with their figures."""
    found = {}
    for row in run.ok("list", "--json").json()["tunings"]:
        tuning = run.ok("explain", row["problemText"], "--json").json()["tuning"]
        said = [row["winner"], tuning["stopReason"], tuning["rounds"]]
        said += [(c["text"], c["status"], c.get("workspaceBytes")) for c in tuning["candidates"]]
        figures = {c["text"]: [c.get(k, 0) for k in ("medianUs", "lowUs", "highUs")] for c in tuning["candidates"]}
        found[row["problemText"]] = (said, figures)
    return found


def test_the_same_samples_give_the_same_tunings(fake_daemon, replay, cli, tmp_path):
    recorded = cli(fake_daemon(env={"CONVTUNE_FAKE_SCRIPT": "seed=7;candidates=12;unsupported=2"}).start())
    recorded.ok("tune", *PROBLEMS)
    recorded.ok("export", tmp_path / "r.bundle")
    replayed = cli(replay(tmp_path / "r.bundle"))
    replayed.ok("tune", *PROBLEMS)
    before, after = tunings(recorded), tunings(replayed)
    assert len(after) == len(PROBLEMS)
    for problem, (said, figures) in before.items():
        assert after[problem][0] == said
        for candidate, times in figures.items():
            # Samples are kept in single precision.
            assert after[problem][1][candidate] == pytest.approx(times, rel=1e-6)


def test_what_was_not_recorded_is_refused(fake_daemon, replay, cli, tmp_path):
    recorded = cli(fake_daemon().start())
    recorded.ok("tune", PROBLEMS[0])
    recorded.ok("export", tmp_path / "r.bundle")
    result = cli(replay(tmp_path / "r.bundle"))("tune", PROBLEMS[1], "--json")
    assert result.code == 1 and "was not recorded" in result.out + result.err, result


NONE_YET = [pytest.param(None, marks=pytest.mark.skip("nothing has been recorded on a GPU yet"), id="none")]


@pytest.mark.parametrize("path", RECORDINGS or NONE_YET, ids=lambda path: path.name)
def test_a_real_recording_gives_its_winners_again(path, replay, bare_daemon, cli, tmp_path):
    bundle = tmp_path / "r.bundle"
    bundle.write_bytes(gzip.decompress(path.read_bytes()))
    recorded = cli(bare_daemon.start())
    recorded.ok("import", bundle)
    before = tunings(recorded)
    replayed = cli(replay(bundle))
    replayed.ok("tune", "--api", "any", *before, timeout=600)
    after = tunings(replayed)
    for problem, (said, figures) in before.items():
        # Another rule may break a tie in another way; beyond the intervals it may not.
        _, low, _ = figures[after[problem][0][0]]
        _, _, high = figures[said[0]]
        assert low <= high, problem
