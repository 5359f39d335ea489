"""The simulated GPU is for this tree alone."""

import re


def simulators(text):
    """What of the simulated GPU a text, or the paths of a folder or a package, names."""
    return re.findall(r"worker-sim\b|simgpu", text if isinstance(text, str) else "\n".join(map(str, text)))
