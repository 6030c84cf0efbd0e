"""Large values of messages and saved states as references; needs no AutoGen.

A message or state with references has a note beside its fields, which names them. Only the fields
that the note names are followed, and a field that the program itself called like the note moves
into it. So whatever stands inside a value, nobody's text can become a reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ropewalk.adapters.typed_state import StateAdapter
from ropewalk.errors import InvalidInput
from ropewalk.state import AgentState, Framework, Runtime
from ropewalk.state.content_ref import checkpoint_form, read_place
from ropewalk.state.externalized import Change, Content, store_changes
from ropewalk.state.runtime import IMMUTABLE, saying
from ropewalk.store import KVStore, Store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.validation import expect_whole

NOTE: Final = "ropewalk_refs"
"""The field that names the fields which are references."""
_FIELDS, _OWN = "fields", "own"
_MOST_BYTES = 4
"""How many bytes a character takes at most."""


class AutoGenAdapter(StateAdapter):
    """Keeps large fields of messages and states in a store, and references in their place.

    Stores each field whose encoding is longer than `threshold_bytes`, whenever one of the
    `externalize_` methods is called; nothing of AutoGen is patched. Equal values are stored once.
    Every method has an asynchronous twin: `aexternalize_state`, and so on.
    """

    def __init__(
        self,
        state_cls: type[AgentState] = AgentState,
        *,
        backend: Store | KVStore | None = None,
        runtime: Runtime | None = None,
        inline_threshold_bytes: int | None = None,
        framework: Framework | str | None = None,
    ) -> None:
        super().__init__(
            state_cls,
            backend=backend,
            runtime=runtime,
            inline_threshold_bytes=inline_threshold_bytes,
            framework=framework,
        )

    @property
    def _threads(self) -> Threads:
        return self.backend._threads

    def externalize_message_history(
        self, messages: Iterable[Mapping[str, Any]], *, threshold_bytes: int | None = None
    ) -> list[dict[str, Any]]:
        """The messages, with references in place of their large fields; stored as one commit.

        `threshold_bytes` defaults to the adapter's `inline_threshold_bytes`. It takes messages as
        they are, so give it each message once: one that was externalized before would come back
        as such. Raises `NotStorable`, with nothing stored.
        """
        limit, changes = self._limit(threshold_bytes), list[Change]()
        outlined = [
            self._outlined(one, f"messages[{at}]", limit, changes)
            for at, one in enumerate(messages)
        ]
        store_changes(self.runtime, changes)
        return [self._with_references(*one) for one in outlined]

    def hydrate_message_history(
        self, messages: Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """The messages of `externalize_message_history` as they were; the caller owns them.

        Raises `InvalidInput` for a note that is not this adapter's, `MissingContent` if a value is
        gone, and `UnresolvedReferenceError` if it is in another store.
        """
        return [self._hydrated(one, f"messages[{at}]") for at, one in enumerate(messages)]

    def externalize_state(
        self, state: Mapping[str, Any], *, threshold_bytes: int | None = None
    ) -> dict[str, Any]:
        """A state that `save_state` gave, with references in place of its large fields.

        A field that only grew since it was last externalized takes the room of what was added.
        """
        changes: list[Change] = []
        outlined = self._outlined(state, "state", self._limit(threshold_bytes), changes)
        store_changes(self.runtime, changes)
        return self._with_references(*outlined)

    def hydrate_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The state that was given to `externalize_state`, ready for `load_state`."""
        return self._hydrated(state, "state")

    aexternalize_message_history = twin(externalize_message_history)
    ahydrate_message_history = twin(hydrate_message_history)
    aexternalize_state = twin(externalize_state)
    ahydrate_state = twin(hydrate_state)

    def _limit(self, threshold_bytes: int | None) -> int:
        if threshold_bytes is None:
            return self.runtime.inline_threshold_bytes
        expect_whole(threshold_bytes, 0, "threshold_bytes")
        return threshold_bytes

    def _outlined(
        self, given: Mapping[str, Any], where: str, limit: int, changes: list[Change]
    ) -> tuple[dict[str, Any], dict[str, Content]]:
        """A copy without its large fields, and these; what must be stored joins `changes`."""
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise InvalidInput(
                f"{where} is a dict with text as keys, not {given!r:.80}; a message of AutoGen's "
                "has dump()"
            )
        inline: dict[str, Any] = {}
        large: dict[str, Content] = {}
        for name, value in given.items():
            with saying(f"{where}.{name}"):
                if type(value) is str and _MOST_BYTES * len(value) < limit:
                    inline[name] = value
                    continue
                data = self.runtime.encode(value)
                if len(data) > limit and name != NOTE:
                    change = Content(self.runtime).assigned(value)
                    changes.append(change)
                    large[name] = change.content
                    inline[name] = None  # Preserves the order.
                else:
                    fixed = type(value) in IMMUTABLE
                    inline[name] = value if fixed else self.runtime.coding.decode(data)
        return inline, large

    def _with_references(self, inline: dict[str, Any], large: dict[str, Content]) -> dict[str, Any]:
        if large or NOTE in inline:
            own = {_OWN: inline.pop(NOTE)} if NOTE in inline else {}
            for name, content in large.items():
                assert content.ref is not None
                inline[name] = checkpoint_form(content.ref)
            inline[NOTE] = {_FIELDS: list(large), **own}
        return inline

    def _hydrated(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise InvalidInput(f"{where} is a dict, not {given!r:.80}")
        made = dict(given)
        if NOTE not in made:
            return made
        note = made.pop(NOTE)
        fields = note.get(_FIELDS) if isinstance(note, dict) else None
        if not isinstance(fields, list) or not all(name in made for name in fields):
            raise InvalidInput(
                f"{where}[{NOTE!r}] is not a note of this adapter's: hydrate takes what "
                "externalize gave, unchanged"
            )
        for name in fields:
            ref = read_place(name, made[name])
            made[name] = ref.resolve(self.backend, codec=self.runtime.coding)
        if _OWN in note:
            made[NOTE] = note[_OWN]
        return made
