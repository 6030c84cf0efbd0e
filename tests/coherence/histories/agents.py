"""An agent that works on shared artifacts at random, and writes down what it does and sees.

Which artifacts there are, and what each holds, is such that the checker can tell from a value
which operation wrote it:

- `plan`: the operation's name. Written in every way, also under grants.
- `count 1`, `count 2`: the name, and a count that each write raises by one.
- `log`: the names of all operations that added to it, and how many these are. Merged.
- `left`, `right`: the name, always published together.
- `note`: the name. Written, deleted and created again.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.coherence import Artifact, CoherenceCore, Grant
from ropewalk.errors import Conflict, NotFound, Unavailable
from tests.coherence.histories.recording import (
    ABSENT,
    BROKEN,
    OK,
    REFUSED,
    UNKNOWN,
    Recorder,
    Seen,
)

MERGERS = {"items": "append", "total": "add"}
COUNTS = ("count 1", "count 2")
PAIR = ("left", "right")
HELD = ("plan", "count 1")
"""What is held at times; nobody ever holds the others."""
STARTS: Mapping[str, Mapping[str, Any]] = {
    "plan": {},
    **{name: {"count": 0} for name in COUNTS},
    "log": {"items": [], "total": 0},
    **{name: {} for name in PAIR},
    "note": {},
}
"""What each artifact begins with, beside the name of the operation."""

_LONGEST_LOG = 40
_HOLD_TIMEOUT = 0.2
_THOUGHT = 0.3  # Seconds for which a holder does nothing at times; it may be stopped meanwhile.

Call = Callable[[str], Any]


def begun(artifact: str, name: str) -> dict[str, Any]:
    """The first value of an artifact."""
    start = dict(STARTS[artifact])
    return {"items": [name], "total": 1} if artifact == "log" else {**start, "by": name}


def after(artifact: str, value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The value that an operation makes of another."""
    if "items" in value:
        return {"items": [*value["items"], name], "total": value["total"] + 1}
    if "count" in value:
        return {"count": value["count"] + 1, "by": name}
    return {"by": name}


class Watched:
    """Does operations of one agent and writes them down."""

    def __init__(
        self, core: CoherenceCore, recorder: Recorder, agent: str, bound: Mapping[str, Any]
    ) -> None:
        self.core, self.agent = core, agent
        self._recorder, self._bound = recorder, bound

    def do(self, kind: str, *artifacts: str, call: Call, **more: Any) -> Mapping[str, Seen] | None:
        """Do something; what was seen, or None if it did not happen or nobody knows."""
        name = self._recorder.begin(self.agent, kind, artifacts, **more)
        try:
            seen = _seen(call(name))
        except (NotFound, Conflict, Unavailable) as error:
            outcome = _outcome(kind, error)
            self._recorder.end(name, outcome, why=f"{type(error).__name__}: {error}")
            if outcome == UNKNOWN:
                time.sleep(0.01)
            return None
        except Exception as error:
            self._recorder.end(name, BROKEN, why=traceback.format_exc())
            raise SystemExit(1) from error
        self._recorder.end(name, OK, seen)
        return seen

    def write(
        self, kind: str, *artifacts: str, call: Call, **more: Any
    ) -> Mapping[str, Seen] | None:
        """Do something that writes."""
        return self.do(kind, *artifacts, call=call, writes=True, **more)

    def read(self, artifact: str, **more: Any) -> Seen | None:
        """Read an artifact."""
        asked = {**self._bound, **more}
        call = lambda name: self.core.read(self.agent, artifact)  # noqa: E731 - one line
        seen = self.do("read", artifact, call=call, **asked)
        return None if seen is None else seen[artifact]


def _outcome(kind: str, error: Exception) -> str:
    """What an error says of an operation."""
    if isinstance(error, Unavailable):
        return UNKNOWN
    return ABSENT if kind == "read" and isinstance(error, NotFound) else REFUSED


def _seen(found: Any) -> dict[str, Seen]:
    if isinstance(found, Artifact):
        return {found.name: Seen(found.version, found.value)}
    if isinstance(found, Mapping):
        return {
            name: one if isinstance(one, Seen) else Seen(one.version, one.value)
            for name, one in found.items()
        }
    return {}


class Agent(Watched):
    """Works at random, always in the same way for the same seed."""

    def __init__(
        self,
        core: CoherenceCore,
        recorder: Recorder,
        agent: str,
        bound: Mapping[str, Any],
        seed: str,
    ) -> None:
        super().__init__(core, recorder, agent, bound)
        self._random = random.Random(seed)

    def doing(self) -> list[tuple[Callable[[], object], int]]:
        """What it does, and how often."""
        return [
            (self._look, 40), (self._look_twice, 10), (self._edit, 10), (self._swap, 10),
            (self._replace, 6), (self._add, 8), (self._publish, 6), (self._snapshot, 8),
            (self._delete_or_create, 6), (self._hold, 4), (self._timer, 1),
        ]  # fmt: skip

    def work(self, until: Callable[[], bool]) -> None:
        """Go on until it is enough."""
        actions, weights = zip(*self.doing(), strict=True)
        while not until():
            self._random.choices(actions, weights)[0]()
            time.sleep(self._random.choice((0.0, 0.0, 0.001, 0.004)))

    def _any(self) -> str:
        return self._random.choice(tuple(STARTS))

    def _look(self) -> None:
        self.read(self._any())

    def _look_twice(self) -> None:
        artifact = self._any()
        for _ in range(self._random.randint(2, 12)):
            self.read(artifact)

    def _edit(self) -> None:
        artifact = self._random.choice((*COUNTS, "plan"))
        self.write(
            "edit",
            artifact,
            call=lambda name: self.core.edit(
                self.agent, artifact, lambda value: after(artifact, value, name)
            ),
        )

    def _swap(self) -> None:
        artifact = self._random.choice((*COUNTS, "plan", "note"))
        seen = self.read(artifact)
        if seen is not None:
            self._write("swap", artifact, seen, if_version=seen.version)

    def _replace(self) -> None:
        """Without a version: what others wrote since this agent looked is never overwritten."""
        artifact = self._random.choice(("plan", *COUNTS))
        seen = self.read(artifact)
        if seen is not None:
            self._write("write", artifact, seen)

    def _add(self) -> None:
        seen = self.read("log")
        if seen is None:
            return
        if len(seen.value["items"]) < _LONGEST_LOG:
            self._write("write", "log", seen)
        else:
            empty = Seen(seen.version, {"items": [], "total": 0})
            self._write("begin anew", "log", empty, if_version=seen.version)

    def _write(
        self, kind: str, artifact: str, seen: Seen, *, if_version: int | None = None, **more: Any
    ) -> Mapping[str, Seen] | None:
        return self.write(
            kind,
            artifact,
            call=lambda name: self.core.write(
                self.agent, artifact, after(artifact, seen.value, name), if_version=if_version
            ),
            expected=if_version,
            **more,
        )

    def _publish(self) -> None:
        self._snapshot(PAIR)
        self.write(
            "publish",
            *PAIR,
            call=lambda name: self.core.publish(self.agent, {at: {"by": name} for at in PAIR}),
        )

    def _snapshot(self, artifacts: tuple[str, ...] | None = None) -> None:
        chosen = artifacts or ("plan", "count 1", *PAIR)
        self.do("snapshot", *chosen, call=lambda name: self.core.snapshot(self.agent, chosen))

    def _delete_or_create(self) -> None:
        seen = self.read("note")
        if seen is None:
            self._write("create", "note", Seen(0, {}), if_version=0)
            return

        def delete(name: str) -> dict[str, Seen]:
            gone = self.core.delete(self.agent, "note", if_version=seen.version)
            return {"note": Seen(seen.version + 1, None)} if gone else {}

        self.write("delete", "note", call=delete, expected=seen.version)

    def _hold(self) -> None:
        artifact = self._random.choice(HELD)
        held: dict[str, Grant] = {}

        def take(name: str) -> None:
            held[name] = self.core.hold(self.agent, artifact, timeout=_HOLD_TIMEOUT)

        self.do("hold", artifact, call=take)
        for name, grant in held.items():
            with grant:
                self._use(grant, name)

    def _use(self, grant: Grant, name: str) -> None:
        """Write under a grant."""
        artifact = grant.artifact
        for _ in range(self._random.randint(1, 3)):
            # Nobody else can write: what the holder reads is what is there, whatever the strategy.
            seen = self.read(artifact, within=0.0, accesses=None)
            if seen is None or self._write_held(grant, name, seen) is None:
                break
            if self._random.random() < 0.1:
                with self._recorder.thinking():
                    time.sleep(_THOUGHT)
            else:
                time.sleep(self._random.choice((0.0, 0.005)))

    def _write_held(self, grant: Grant, name: str, seen: Seen) -> Mapping[str, Seen] | None:
        """Write as a holder does, in one way or the other."""
        if self._random.random() < 0.5:
            return self._write("write", grant.artifact, seen, grant=name)
        return self.write(
            "write",
            grant.artifact,
            call=lambda own: grant.write(after(grant.artifact, seen.value, own)),
            grant=name,
        )

    def _timer(self) -> None:
        self.do("heartbeat", "plan", call=lambda name: self.core.heartbeat(self.agent))


class Reader(Agent):
    """Only reads."""

    def doing(self) -> list[tuple[Callable[[], object], int]]:
        """What it does, and how often."""
        return [(self._look, 4), (self._look_twice, 1)]
