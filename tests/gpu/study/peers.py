"""The peers, side by side: who they are, one generation of them, their start-up, and the soak."""

import contextlib
import time

from lab import NotReady, StepFailed, TimeIsUp, counted, served_env

ROUNDS = 12
TURN_S = 0.03
STARTS, STARTS_AT_ONCE, B10_STARTS = 6, 3, 2
SOAK_TURNS, SOAK_TURN_S = 10, 1.0
# Left before a step's deadline: for W to end by itself, which is when its counters are written.
CLOSING_S = 3.0
# Left for captures and rounds: a search that is not done by then ends with its peer, and the others have theirs.
ROUNDS_S = 6.0
MODES_S = 4.0

# Arguments of `load`, and the environment. H2 is H again: the A/A comparison. What follows a dot numbers
# processes of one peer: each search has luck of its own, and the intervals are to know it.
BENCHMARK = {"B10": {"benchmark": True}, "B0": {"benchmark": True, "limit": 0}}
MODE_B = {"TORCH_CUDNN_USE_HEURISTIC_MODE_B": "1"}
SEARCHES = ("B10", "B10.2", "B10.3")
# Where mode B lists something else than H's mode, by cuDNN's lists for a profile of an H200. Elsewhere B is H again.
B_DIFFERS = ("efficientnet_b0", "unet", "yolov3")
# Two networks for a search that builds more than 800 plans and ends where its time does.
SEARCHED_WHOLE = ("resnet50", "unet")
# Of --simulate. A network's time in microseconds, and its first iteration in milliseconds.
MADE_UP = {
    "H": (20000.0, 200.0), "H2": (20000.0, 200.0), "B": (19700.0, 200.0), "B10": (19100.0, 900.0), "B0": (18900.0, 2500.0),
    "W": (17600.0, 225.0),
}  # fmt: skip


def base(name):
    """The peer that a process is of."""
    return name.split(".")[0]


def names_for(network):
    """A generation's processes, what the rule needs first: a search that is late ends with its process."""
    whole = ("B0",) if network in SEARCHED_WHOLE else ()
    return ("H", "H2", "W", SEARCHES[0], *(("B",) if network in B_DIFFERS else ()), *SEARCHES[1:], *whole)


def order(names, round_number):
    """Who runs when: rotated by one every second round, and backwards in every second one."""
    names = list(names)
    first = round_number // 2 % len(names)
    rotated = names[first:] + names[:first]
    return rotated[::-1] if round_number % 2 else rotated


class Group:
    """Peers of one network; a context manager. One that fails is left out from then on, and recorded."""

    def __init__(self, lab, records, step, network, names, until, seed=0):
        self.lab, self.records, self.step, self.network, self.until = lab, records, step, network, until
        self.generation = f"{network.name}:{time.time():.3f}"
        self.counters = lab.scratch / f"counters-{network.name}-{seed}.jsonl"
        self.counters.unlink(missing_ok=True)
        self.seed = seed
        self.names, self.peers = names, {}
        self._stack = contextlib.ExitStack()

    def _start(self, name):
        env = dict(MODE_B) if name == "B" else {}
        if name == "W":
            env = served_env(self.lab.library, self.network.snapshot(self.lab).parent, self.counters)
        return self.lab.child("peer.py", env, ["--made-up"] if self.lab.simulated else [])

    def add(self, kind, **fields):
        self.records.add({"kind": kind, "step": self.step, "network": self.network.name, "generation": self.generation, **fields})

    def load_request(self, name):
        request = {"do": "load", "network": self.network.name, "batch": self.network.batch, **BENCHMARK.get(base(name), {})}
        if self.lab.simulated:
            us, first_ms = MADE_UP[base(name)]
            request |= {
                "made_up": {"us": us, "first_ms": first_ms, "served": self.network.convolutions, "modes": self.network.name not in B_DIFFERS},
                "seed": f"{self.network.name} {name} {self.seed}",
            }  # fmt: skip
        return request

    def one(self, name, request=None, until=None):
        """The answer of one peer; None, and a record, if it failed or has none by `until`.

        H is what all others are held against: without it nothing goes on."""
        end = self.until - CLOSING_S
        try:
            if request is not None:
                self.peers[name].send(request)
            return self.peers[name].receive(end if until is None else min(until, end))
        except (StepFailed, TimeIsUp) as failure:
            late = isinstance(failure, TimeIsUp)
            if late and (name == "H" or until is None):
                raise
            failure = StepFailed("not done in its time, so that the others have theirs") if late else failure
            self.add("peer_failed", peer=name, reason=str(failure))
            if name == "H":
                raise failure
            # Nothing of it stays on the GPU.
            self.peers.pop(name).close()
            return None

    def each(self, request_of, together=True, until=None):
        """Asks all, at once or one after the other, and gives {name: answer} of those that did not fail."""
        names = list(self.peers)
        if together and request_of is not None:
            for name in names:
                self.peers[name].send(request_of(name))
        answers = {}
        for name in names:
            answer = self.one(name, None if together or request_of is None else request_of(name), until)
            if answer is not None:
                answers[name] = answer
        return answers

    def __enter__(self):
        self.peers = {name: self._stack.enter_context(self._start(name)) for name in self.names}
        return self

    def imported(self):
        """Seconds from each process's exec until it has imported PyTorch; waits for them."""
        started = {name: peer.started for name, peer in self.peers.items()}
        return {name: answer["imported"] - started[name] for name, answer in self.each(None).items()}

    def __exit__(self, *_):
        if "W" in self.peers:
            self.peers["W"].close(CLOSING_S)
        self._stack.close()


def prepared(group):
    """Loads all together, has each run its first iteration and its search alone on the GPU, and captures."""
    group.imported()
    loaded = group.each(group.load_request)
    first = group.each(lambda _: {"do": "first"}, together=False, until=group.until - CLOSING_S - ROUNDS_S)
    group.each(lambda _: {"do": "capture"})
    path = group.lab.scratch / "output.pt"
    group.one("H", {"do": "save", "path": str(path)})
    errors = group.each(lambda _: {"do": "compare", "path": str(path)})
    path.unlink(missing_ok=True)
    group.add(
        "peers", torch=loaded["H"]["torch"], cudnn=loaded["H"].get("cudnn"), torch_card=loaded["H"].get("uuid"),
        first_ms={name: round(answer["first_ms"], 3) for name, answer in first.items()},
        errors={name: answer["relative_error"] for name, answer in errors.items()},
    )  # fmt: skip


def turns(group, count, seconds, kind):
    """Rounds in which each peer replays in turn; each round is a record as soon as it is done."""
    for number in range(count):
        us, state = {}, {}
        for name in order(list(group.peers), number):
            answer = group.one(name, {"do": "replay", "seconds": seconds})
            if answer is not None:
                us[name], state[name] = answer["us"], group.lab.card.state()
        group.add(kind, round=number, us=us, state=state)


def need_winners(lab, network):
    if not network.snapshot(lab).exists():
        raise NotReady(f"{network.name} has no published winners: its step `tune` comes first")


def compare_modes(group, records):
    """Whether B could choose otherwise than H at all: for how many convolutions cuDNN lists the same for both, on this GPU.

    Asked once, and of H2 behind the last round, where nothing more is lost with it."""
    network = group.network
    if "H2" not in group.peers or records.of("modes", network=network.name, card=records.card):
        return
    answer = group.one("H2", {"do": "modes", "problems": list(network.problems)}, time.time() + MODES_S)
    if answer is not None:
        agree = [sum(network.problems[text] for text, found in answer["modes"].items() if found[i]) for i in (0, 1)]
        group.add("modes", convolutions=network.convolutions, same_list=agree[0], same_first=agree[1])


def generation(lab, records, step, network, until):
    """Where a worker tuned and published nothing, the others are compared once without W: what they gain is a bound too."""
    names = names_for(network.name)
    try:
        need_winners(lab, network)
    except NotReady:
        if not records.of("tuned", network=network.name, card=records.card) or records.of("round", network=network.name, card=records.card):
            raise
        names = tuple(name for name in names if name != "W")
    group = Group(lab, records, step, network, names, until, seed=len(records.of("peers")))
    try:
        with group:
            prepared(group)
            turns(group, ROUNDS, TURN_S, "round")
            compare_modes(group, records)
    finally:
        counters = counted(group.counters, "captured_served")
        group.add(
            "served", convolutions=network.convolutions, captured=counters.get("captured", 0),
            captured_served=counters.get("captured_served", 0), counters=counters,
        )  # fmt: skip
    if "W" not in names:
        raise NotReady(f"without W: nothing of {network.name} was published, see its step `tune`")


def startup(lab, records, step, network, until):
    """Fresh processes, one at a time on the GPU. Those of a few rounds import PyTorch before any of them touches it."""
    need_winners(lab, network)
    begun = len({r["round"] for r in records.of("startup", network=network.name, card=records.card)})
    for first in range(begun, STARTS, STARTS_AT_ONCE):
        with contextlib.ExitStack() as stack:
            rounds = range(first, min(STARTS, first + STARTS_AT_ONCE))
            names = lambda n: ("H", "W", *(("B10",) if n < B10_STARTS else ()))
            groups = [stack.enter_context(Group(lab, records, step, network, names(n), until, seed=n)) for n in rounds]
            imported = [group.imported() for group in groups]
            for number, group, imported_s in zip(rounds, groups, imported):
                _start_one_by_one(group, number, imported_s)


def _start_one_by_one(group, number, imported_s):
    found, card = [], group.lab.card
    for name in order(list(group.peers), number):
        used, asked = card.used_bytes(), time.monotonic()
        loaded = group.one(name, group.load_request(name))
        first = loaded and group.one(name, {"do": "first"})
        if not first:
            continue
        after = card.used_bytes()
        found.append({
            "peer": name, "round": number, "first_ms": round(first["first_ms"], 3),
            "from_exec_ms": round((imported_s[name] + first["ended"] - asked) * 1e3, 1),
            "peak_bytes": first.get("peak_bytes"), "reserved_bytes": first.get("reserved_bytes"),
            "card_bytes": after - used if used is not None and after is not None else None,
        })  # fmt: skip
        group.peers.pop(name).close(CLOSING_S)
    served = counted(group.counters, "captured_served").get("executions_served", 0)
    for record in found:
        group.add("startup", convolutions=group.network.convolutions, served=served, **record)


def soak(lab, records, step, network, until):
    need_winners(lab, network)
    with Group(lab, records, step, network, ("H", "W"), until) as group:
        prepared(group)
        turns(group, SOAK_TURNS, SOAK_TURN_S, "soak")
