"""Programs of the test's own, as shell scripts."""


def program(path, text):
    """A script of this text that can be run; its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
