"""Scripts for convtune-fake-worker: the keys are those of tests/fakes/fake_script.proto."""


def script(**keys):
    """The environment variable that tells the worker what to be and to do wrong."""
    return {"CONVTUNE_FAKE_SCRIPT": ";".join(f"{key}={value}" for key, value in keys.items())}
