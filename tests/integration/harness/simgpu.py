"""A daemon with the real worker on the simulated GPU: tests/simgpu/README.md."""

import pathlib


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
        new.rename(self.faults)

    def fired(self):
        """The lines that fired, as often as they did."""
        log = self.faults.with_suffix(".fired")
        return log.read_text().splitlines() if log.exists() else []

    def clock(self, factor):
        """From now on the SM clock is so much of the boost clock."""
        (self.folder / "clock").write_text(str(factor))
