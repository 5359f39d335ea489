"""The cuDNN and the GPU that this process has, as far as it has loaded them."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
from typing import Any

from convtune.answers import Environment

_FIELDS = ("gpu_model", "compute_capability", "sm_count", "mig_profile")
_LIBRARIES = ("", "full", "graph_jit_only", "unknown")
# CUdevice_attribute
_MULTIPROCESSOR_COUNT, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 75, 76


def check(program: Environment) -> None:
    """Raises ValueError, naming the field and the rule."""

    def require(holds: object, field: str, rule: str) -> None:
        if not holds:
            raise ValueError(f"program.{field}: must be {rule}, is {getattr(program, field)!r}")

    version, capability = program.cudnn_version, program.compute_capability
    require(version == "" or re.fullmatch(r"\d{1,9}\.\d{1,9}\.\d{1,9}", version), "cudnn_version", "3 numbers separated by '.'")
    require(capability == "" or re.fullmatch(r"\d{1,9}\.\d{1,9}", capability), "compute_capability", "2 numbers separated by '.'")
    require(isinstance(program.sm_count, int) and 0 <= program.sm_count < 2**31, "sm_count", "from 0 to 2^31-1")
    require(program.library_configuration in _LIBRARIES, "library_configuration", f"one of {', '.join(_LIBRARIES[1:])}")


def find(given: Environment) -> Environment:
    """`given`, and of its two parts that say nothing what is found: the cuDNN
    (version, library configuration), and the GPU (all else), which is that of the
    calling thread's context, else the only kind that the process sees. Loads and
    initialises nothing."""
    found: dict[str, object] = {}
    if not given.cudnn_version and not given.library_configuration:
        found.update(_cudnn())
    return dataclasses.replace(find_gpu(given), **found)  # type: ignore[arg-type]


def find_gpu(given: Environment) -> Environment:
    """The same for the GPU alone."""
    if given.profile or any(getattr(given, field) for field in _FIELDS):
        return given
    return dataclasses.replace(given, **_gpu())  # type: ignore[arg-type]


def fits(program: Environment, environment: Environment) -> bool:
    """True if all that is known of the program's is the same in `environment`.
    `profile` counts where the model is known."""
    if program.gpu_model and (
        program.profile != environment.profile or _slug(program.gpu_model) != _slug(environment.gpu_model)
    ):
        return False
    for field in ("compute_capability", "sm_count", "mig_profile", "cudnn_version"):
        if getattr(program, field) and getattr(program, field) != getattr(environment, field):
            return False
    library = program.library_configuration
    return library in ("", "unknown") or library == environment.library_configuration


def known_text(program: Environment) -> str:
    """All that is known of it, as in Environment.text."""
    tokens = [f"{'profile:' * program.profile}{_slug(program.gpu_model)}"] if program.gpu_model else []
    named = {
        "cc": program.compute_capability, "sms": program.sm_count, "mig": program.mig_profile,
        "cudnn": program.cudnn_version, "lib": program.library_configuration,
    }  # fmt: skip
    return ",".join(tokens + [f"{key}={value}" for key, value in named.items() if value and value != "unknown"])


def _slug(model: str) -> str:
    return re.sub("[^a-z0-9]+", "-", model.lower()).strip("-")


class _Place(ctypes.Structure):  # Dl_info
    _fields_ = [("file", ctypes.c_char_p), ("_1", ctypes.c_void_p), ("_2", ctypes.c_char_p), ("_3", ctypes.c_void_p)]


def _loaded(name: str) -> ctypes.CDLL | None:
    """A library that is loaded already, however it was."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _cudnn() -> dict[str, object]:
    libraries = [ctypes.CDLL(None)]
    libraries += filter(None, map(_loaded, ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn.so.8")))
    get_version = next((library["cudnnGetVersion"] for library in libraries if hasattr(library, "cudnnGetVersion")), None)
    if get_version is None:
        return {}
    get_version.restype = ctypes.c_size_t
    number = get_version()
    # Up to 8 it was 1000 times the major version.
    major, rest = divmod(number, 1000 if number < 10000 else 10000)
    library = _library_beside(get_version) if major >= 9 else ""
    return {"cudnn_version": f"{major}.{rest // 100}.{rest % 100}", "library_configuration": library}


def _library_beside(function: Any) -> str:
    """Beside its libraries a whole cuDNN 9 has the precompiled engines."""
    place = _Place()
    if not ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place)) or not place.file:
        return ""
    folder, file = os.path.split(os.path.realpath(os.fsdecode(place.file)))
    if not file.startswith("libcudnn"):
        return ""  # a program that cuDNN is a part of does not tell
    engines = os.path.join(folder, "libcudnn_engines_precompiled.so.9")
    return "full" if os.access(engines, os.R_OK) else "graph_jit_only"


def _gpu() -> dict[str, object]:
    driver = _loaded("libcuda.so.1")
    if driver is None:
        return {}
    device = ctypes.c_int()
    try:
        if driver.cuCtxGetDevice(ctypes.byref(device)) == 0:
            return _ask(driver, device)
        count = ctypes.c_int()
        if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return {}
        kinds: list[dict[str, object]] = []
        for ordinal in range(count.value):
            if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
                return {}
            kinds.append(_ask(driver, device))
        return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else {}
    except AttributeError:
        return {}  # a driver without these functions


def _ask(driver: ctypes.CDLL, device: ctypes.c_int) -> dict[str, object]:
    name = ctypes.create_string_buffer(256)
    if driver.cuDeviceGetName(name, len(name) - 1, device) != 0:
        return {}
    values = []
    for attribute in (_MULTIPROCESSOR_COUNT, _CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
            return {}
        values.append(value.value)
    sms, major, minor = values
    return {"gpu_model": name.value.decode(errors="replace"), "compute_capability": f"{major}.{minor}", "sm_count": sms}
