"""Answers from the snapshot file that a daemon publishes, where no daemon answers.

The layout is that of db/snapshot/README.md. A file is taken whole or not at all: both checksums are verified, and whatever
lies outside of it is an error."""

from __future__ import annotations

import dataclasses
import os
import struct
import threading

import xxhash

from convtune import defaults, problem_key
from convtune.answers import EVIDENCE, Answer, Ask, Candidate, Constraints, Environment, Result
from convtune.program import fits, known_text

_HEADER = struct.Struct("<8sIIQQQIIqQQQQQQQ")
_SECTION = struct.Struct("<BBBBIII64s32sIIQQQ")
_SLOT = struct.Struct("<II")
_ENTRY = struct.Struct("<320sIHBBQ24s")
_CANDIDATE = struct.Struct("<BBBBiqIIqfI")
_KNOB = struct.Struct("<iIq")
assert (_HEADER.size, _SECTION.size, _ENTRY.size, _CANDIDATE.size) == (112, 144, 360, 40)

_EVIDENCE = {number: name for name, number in EVIDENCE.items()}
_LIBRARY = ("unknown", "full", "graph_jit_only")
_F32 = 2
# Bits of cuDNN's numerical notes, and of the behaviour note that a plan can be captured.
_TENSOR_CORE, _DOWN_CONVERT, _REDUCED, _FFT = 1 << 1, 1 << 2, 1 << 3, 1 << 4
_WINOGRAD = 0b1111 << 6
_CAPTURABLE = 1 << 4
_PORTFOLIO = 3


class SnapshotError(ValueError):
    """No snapshot can be used; the message names the path and says why."""


class OtherEnvironment(SnapshotError):
    """The program fits none of the snapshot's environments."""


@dataclasses.dataclass(frozen=True)
class _Section:
    environment: Environment
    slots: int
    slots_at: int
    entries_at: int
    entries: int


@dataclasses.dataclass(frozen=True)
class Choice:
    """A candidate, and what constraints ask of it."""

    graph: bool  # a graph-API engine config
    numerical_notes: int
    behavior_notes: int
    candidate: Candidate


class Snapshot:
    """One file, read and verified as a whole. Immutable: thread-safe.

    `folder` is where the daemon publishes. Raises SnapshotError."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, defaults.SNAPSHOT)
        try:
            with open(self._path, "rb") as file:
                self._bytes = file.read()
            self._sections = self._read()
        except OSError as error:
            raise SnapshotError(f"{self._path}: {error.strerror}") from None
        except (struct.error, UnicodeDecodeError):
            raise SnapshotError(f"{self._path}: its layout is not sound") from None

    @property
    def choices(self) -> int:
        """How many problems it has a choice for, in all environments."""
        return sum(section.entries for section in self._sections)

    def choose(self, environment: str, program: Environment) -> _Section:
        """The part of the environment with this name or text, any if that is empty,
        which `program` fits. Raises OtherEnvironment, and SnapshotError if there is
        none of the name or several are left."""
        named = [s for s in self._sections if environment in ("", s.environment.name, s.environment.text)]
        fitting = [s for s in named if fits(program, s.environment)]
        if len(fitting) == 1:
            return fitting[0]
        if not self._sections:
            raise self._refuse(
                "has no environment: convtuned has no device and nothing that it publishes; `convtune doctor` says why"
            )
        texts = "; ".join(s.environment.text for s in fitting or named or self._sections)
        if named and not fitting:
            raise OtherEnvironment(f"other environment: the program has {known_text(program)}; {self._path} has {texts}")
        raise self._refuse(
            f"the environment must be one of: {texts}; " + (f"is {environment!r}" if environment else "none is named")
        )

    def _refuse(self, what: str) -> SnapshotError:
        return SnapshotError(f"{self._path}: {what}")

    def _read(self) -> list[_Section]:
        header = _HEADER.unpack_from(self._bytes)
        if header[0] != b"CVTSNAP\n":
            raise self._refuse("is no snapshot")
        if header[1] != 2:
            raise self._refuse("of another format version")
        checksum, body = header[15], memoryview(self._bytes)[_HEADER.size :]
        if xxhash.xxh3_64_intdigest(self._bytes[: _HEADER.size - 8]) != checksum:
            raise self._refuse("the checksum does not match")
        if header[2] != _HEADER.size or header[3] != len(self._bytes):
            raise self._refuse("has another length than it says")
        if xxhash.xxh3_64_intdigest(body) != header[14]:
            raise self._refuse("the checksum does not match")
        self._candidates_at, self._knobs_at = header[10], header[12]
        sections = [self._section_at(header[9] + i * _SECTION.size) for i in range(header[7])]
        return [s for s in sections if s is not None]

    def _section_at(self, at: int) -> _Section | None:
        (profile, library, major, minor, sms, cudnn, _, model, mig, channel, slots, slots_at, entries_at, entries) = (
            _SECTION.unpack_from(self._bytes, at)
        )
        if channel != 0:  # what a canary gets; answers are the promoted release's
            return None
        if slots == 0 or slots & (slots - 1) or entries >= slots or library >= len(_LIBRARY):
            raise self._refuse("its layout is not sound")
        gpu, part = (field.rstrip(b"\0").decode("ascii") for field in (model, mig))
        prefix = "profile:" if profile else ""
        version = f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
        text = f"{prefix}{gpu},cc={major}.{minor},sms={sms},{f'mig={part},' if part else ''}cudnn={version}"
        environment = Environment(
            name=f"{prefix}{gpu}{f'-{part}' if part else ''}",
            text=f"{text},lib={_LIBRARY[library]}",
            profile=bool(profile),
            gpu_model=gpu,
            compute_capability=f"{major}.{minor}",
            sm_count=sms,
            mig_profile=part,
            cudnn_version=version,
            library_configuration=_LIBRARY[library],
        )
        return _Section(environment, slots, slots_at, entries_at, entries)

    def find(self, section: _Section, problem: str, ask: Ask = Ask()) -> Result:
        """As the daemon would answer, of the promoted release. A miss says why."""
        environment = section.environment

        def miss(reason: str, why: str) -> Result:
            return Result(problem, None, reason, why, "snapshot", environment)

        try:
            key = problem_key.parse(problem)
        except ValueError as error:
            return miss("refused", str(error))
        problem = problem_key.text(key)
        try:
            entry = self._entry(section, key)
            if entry is None:
                return miss("not_found", f"not in the snapshot for {environment.name}")
            _, begin, count, evidence, pinned, _, _ = entry
            if evidence < EVIDENCE.get(ask.min_evidence, 0):
                return miss("insufficient_evidence", "the snapshot's choice has less evidence than asked for")
            if ask.max_age_s is not None and not pinned:
                return miss("too_old", "the snapshot does not say how old its choices are, so none keeps to max_age_s")
            choices = [self._choice(begin + i) for i in range(count)]
        except struct.error:
            raise self._refuse("its layout is not sound") from None
        kept = [c for c in choices if satisfies(c, ask.constraints, key[1])]
        if not kept:
            why = "none of the snapshot's choices keeps to the constraints"
            if ask.constraints.max_error is not None:
                why += "; it has no errors, so none keeps to max_error"
            return miss("no_candidate", why)
        # Each API's are in the order in which they are to be offered. Of two
        # first ones, the faster; untimed ones stay as they are.
        other = next((c for c in kept if c.graph != kept[0].graph), None)
        first_us, other_us = kept[0].candidate.median_us, other.candidate.median_us if other else None
        if other is not None and first_us and other_us and other_us < first_us:
            kept.remove(other)
            kept.insert(0, other)
        return Result(
            problem,
            Answer(
                winner=kept[0].candidate,
                portfolio=tuple(c.candidate for c in kept[:_PORTFOLIO]),
                evidence=_EVIDENCE.get(evidence, ""),
                origin="",
                pinned=bool(pinned),
                note="",
            ),
            source="snapshot",
            environment=environment,
        )

    def _entry(self, section: _Section, key: bytes) -> tuple[bytes, int, int, int, int, int, bytes] | None:
        bare, alignment = problem_key.without_alignment(key), problem_key.alignment_of(key)
        value = xxhash.xxh3_64_intdigest(bare)
        best, place = None, value & (section.slots - 1)
        for _ in range(section.slots):
            tag, number = _SLOT.unpack_from(self._bytes, section.slots_at + place * _SLOT.size)
            if number == 0:
                break
            place = (place + 1) & (section.slots - 1)
            if tag != value >> 32 or number > section.entries:
                continue
            entry = _ENTRY.unpack_from(self._bytes, section.entries_at + (number - 1) * _ENTRY.size)
            own = problem_key.alignment_of(entry[0])
            if problem_key.without_alignment(entry[0]) != bare or own > alignment:
                continue
            if best is None or own > problem_key.alignment_of(best[0]):
                best = entry
        return best

    def _choice(self, number: int) -> Choice:
        (api, knob_count, flags, _, math_type, own_number, numerical, behavior, workspace, time_us, begin) = (
            _CANDIDATE.unpack_from(self._bytes, self._candidates_at + number * _CANDIDATE.size)
        )
        knobs = []
        for i in range(knob_count):
            type_, _, setting = _KNOB.unpack_from(self._bytes, self._knobs_at + (begin + i) * _KNOB.size)
            knobs.append((type_, setting))
        graph = api == 2
        text = f"graph:eng{own_number}" + "".join(f",k{type_}={setting}" for type_, setting in knobs)
        return Choice(
            graph,
            numerical,
            behavior,
            Candidate(
                text=text if graph else f"legacy:algo{own_number},math{math_type}",
                workspace_bytes=workspace,
                deterministic=bool(flags & 1),
                median_us=time_us or None,
                engine_index=own_number if graph else None,
                knobs=tuple(knobs),
                algorithm=None if graph else own_number,
                math_type=None if graph else math_type,
            ),
        )


def satisfies(choice: Choice, constraints: Constraints, data_type: int) -> bool:
    notes, c = choice.numerical_notes, constraints
    return not (
        # The file has no errors: nothing in it is known to have been compared.
        c.max_error is not None
        or (c.max_workspace_bytes is not None and choice.candidate.workspace_bytes > c.max_workspace_bytes)
        or (c.deterministic and not choice.candidate.deterministic)
        # Tensor cores take f32 inputs only after narrowing them.
        or (c.forbid_tf32 and data_type == _F32 and notes & (_TENSOR_CORE | _DOWN_CONVERT))
        or (c.forbid_down_convert and notes & _DOWN_CONVERT)
        or (c.forbid_winograd and notes & _WINOGRAD)
        or (c.forbid_fft and notes & _FFT)
        or (c.forbid_reduced_precision_reduction and notes & _REDUCED)
        or (c.api == "graph" and not choice.graph)
        or (c.api == "legacy" and choice.graph)
        or (c.launch == "graph_capture" and not choice.behavior_notes & _CAPTURABLE)
    )


class Current:
    """The file that is there now; read again only when it was replaced. Thread-safe.

    `folder` None: where a daemon has its own, looked for each time."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._identity: tuple[int, int] | None = None

    def find(self, problems: list[str], environment: str, program: Environment, ask: Ask) -> list[Result]:
        """One for each; without a file that can be used, misses that say why."""
        try:
            snapshot = self._read()
            section = snapshot.choose(environment, program)
            return [snapshot.find(section, problem, ask) for problem in problems]
        except SnapshotError as error:
            miss = "other_environment" if isinstance(error, OtherEnvironment) else ""
            return [Result(problem_key.canonical(problem), None, miss, str(error)) for problem in problems]

    def _read(self) -> Snapshot:
        folder = self._folder or defaults.snapshot_folder()
        with self._lock:
            try:
                status = os.stat(os.path.join(folder, defaults.SNAPSHOT))
                # One of the two differs where a file took another's place.
                now = status.st_ino, status.st_mtime_ns
            except OSError:
                now = None
            if self._snapshot is None or now is None or now != self._identity:
                self._snapshot = None
                self._snapshot = Snapshot(folder)
                self._identity = now
            return self._snapshot
