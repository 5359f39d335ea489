"""A daemon with the real worker on the simulated GPU: tests/simgpu/README.md."""

import pathlib

from .daemon import wait_until

# Mode A lists engines 62 (most configs), 22, 45 and others for it; each tuning takes about half a second.
PROBLEM = "fwd,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f16"
OTHER = "fwd,x=4x64x28x28,w=64x64x3x3,pad=1,nhwc,f16"
LARGE = "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
F32 = "fwd,x=4x32x14x14,w=32x32x3x3,pad=1,nhwc,f32"
TIMED = "CANDIDATE_STATUS_TIMED"
QUARANTINED = "CANDIDATE_STATUS_QUARANTINED"


class SimulatedGpu:
    """What the GPU is told to do, and what of it it did."""

    def __init__(self, folder, nvml):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.faults = self.folder / "faults"
        self._nvml = nvml
        self.script()

    def env(self, **settings):
        """settings: seed, runs_early, relaunch_blocks, no_sm_0, timer_step_ns, profile."""
        return {
            "SIMGPU_FAULTS": str(self.faults),
            "CONVTUNE_FAKE_CARD": str(self.folder),
            "LD_LIBRARY_PATH": str(self._nvml),
            **{f"SIMGPU_{name.upper()}": str(value) for name, value in settings.items()},
        }

    def script(self, *lines):
        """From now on these faults, in the words of tests/simgpu/faults/faults.h."""
        new = self.folder / "new"
        new.write_text("".join(line + "\n" for line in lines))
        self.fired_before = len(self.fired())
        new.rename(self.faults)

    def fired(self):
        """The lines that fired, as often as they did."""
        log = self.faults.with_suffix(".fired")
        return log.read_text().splitlines() if log.exists() else []

    def forget(self):
        """From now on nothing has fired."""
        self.faults.with_suffix(".fired").unlink(missing_ok=True)
        self.fired_before = 0

    def clock(self, factor):
        """From now on the SM clock is so much of the boost clock."""
        (self.folder / "clock").write_text(str(factor))


def fault_name(candidate):
    """A candidate as lines of faults name it."""
    legacy = candidate.get("legacyAlgorithm")
    if legacy is None:
        return f"config:{candidate['text'].removeprefix('graph:')}"
    return f"legacy:{legacy.get('algorithm', 0)}/{legacy.get('mathType', 0)}"


class Tuning:
    """What `convtune explain` says of a problem."""

    def __init__(self, cli, problem):
        self.told = cli.ok("explain", problem, "--json").json()
        self.tuning = self.told["tuning"]
        self.evidence = self.tuning["evidence"].removeprefix("EVIDENCE_")
        self.candidates = {each["text"]: each for each in self.tuning["candidates"]}
        self.winner = self.tuning.get("winner", "")

    def of_engine(self, number):
        """Candidates of a graph engine, or of a legacy algorithm where it is a text."""
        start = f"legacy:algo{number}" if isinstance(number, str) else f"graph:eng{number}"
        return [each for text, each in self.candidates.items() if text.split(",")[0] == start]

    def statuses(self, number):
        return {each["status"].removeprefix("CANDIDATE_STATUS_") for each in self.of_engine(number)}

    def of_api(self, api):
        return [each for text, each in self.candidates.items() if text.startswith(api)]

    def with_status(self, status):
        return [text for text, each in self.candidates.items() if each["status"] == status]

    def failed_self_check(self):
        return self.tuning["conditions"].get("selfCheck", {}).get("failed", [])


class Bench:
    """A daemon, the command line, and the GPU."""

    def __init__(self, daemon, cli, gpu):
        self.daemon, self.cli, self.gpu = daemon, cli, gpu

    def tune(self, problem=PROBLEM, *args):
        return self.cli("tune", problem, "--budget", "60s", *args)

    def tuned(self, problem=PROBLEM, *args):
        """What came of a tuning that succeeded; of the faults that were scripted last, if any, one has to have fired."""
        result = self.tune(problem, *args)
        assert result.code == 0, result
        assert len(self.gpu.fired()) > self.gpu.fired_before or not self.gpu.faults.read_text(), "no fault fired"
        return Tuning(self.cli, problem)

    def stock(self, api):
        """What cuDNN's heuristic lists first for it, of PROBLEM where nothing is wrong."""
        ranked = [each for each in self.tuned().candidates.values() if each["text"].startswith(api) and each.get("heuristicRank", 0) >= 0]
        return min((each for each in ranked if each["status"] == TIMED), key=lambda each: each.get("heuristicRank", 0))

    def unpublished(self):
        """Waits until the publisher says of a tuning that it is not published; how many choices it has."""
        wait_until(lambda: "not published" in self.cli.ok("release", "list").err, 20, "a tuning that is not published")
        with self.daemon.client() as client:
            return client.release.GetPublication().choice_count

    def device(self):
        (found,) = self.cli.ok("environments", "--json").json()["devices"]
        return found
