"""Which artifact a command is about, and which there are.

The layer of artifacts is loaded only where there are some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ropewalk.cli._errors import Usage, with_hint
from ropewalk.cli._finding import listed
from ropewalk.cli._views import View
from ropewalk.codec import inspection_codec
from ropewalk.errors import NotFound, RopewalkError
from ropewalk.store import Store, split_name

if TYPE_CHECKING:
    from ropewalk.coherence.protocol import Version
    from ropewalk.timeline import Timeline

SHARED = "coherence"
"""The tenant of the spaces that sets are in; named here as well, to load nothing for it."""
_DEFAULT = "shared"
"""The set that is meant where none is named, as of a `CoherenceCore`."""
_LISTS = "`ropewalk artifacts` lists the artifacts"


class ArtifactRow(NamedTuple):
    """An artifact, for a list."""

    set_name: str
    name: str
    newest: Version


class ArtifactView(View):
    """The value of an artifact, as it is; refs by the names of artifacts."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store, self._space = store, timeline._history.space

    def ref(self, name: str) -> tuple[str, str]:
        """What a ref is, and its name."""
        return "artifact", artifact_at(self._store, self._space, name)


def sets_in(store: Store) -> list[str]:
    """The names of the sets in a store, sorted."""
    return sorted(split_name(space)[1] for space in store.spaces(f"{SHARED}/"))


def artifacts_in(store: Store, set_name: str) -> dict[str, Version]:
    """The newest versions of the artifacts of a set, by name."""
    from ropewalk.coherence.store_authority import StoreAuthority

    return StoreAuthority(store, set_name, inspection_codec).names()


def artifact_rows(store: Store, set_name: str | None) -> list[ArtifactRow]:
    """The artifacts of a set, or of all, the latest written first."""
    names = sets_in(store) if set_name is None else [_known(store, set_name)]
    rows = [
        ArtifactRow(one, artifact, newest)
        for one in names
        for artifact, newest in sorted(artifacts_in(store, one).items())
    ]
    return sorted(rows, key=lambda row: row.newest.time, reverse=True)


def artifact_timeline(
    store: Store, artifact: str, set_name: str | None, branch: str | None
) -> Timeline:
    """The timeline of an artifact; raises `NotFound`, or `Usage` if it cannot be chosen."""
    from ropewalk.coherence.history import ArtifactTimeline

    if not artifact:
        raise Usage("--artifact is empty: name an artifact")
    if branch not in (None, artifact):
        raise Usage("the versions of an artifact are on one branch: leave out --branch")
    chosen = _chosen(store, set_name)
    try:
        return ArtifactTimeline(chosen, artifact, store, inspection_codec)
    except NotFound:
        raise _unknown(store, artifact, chosen) from None


def _chosen(store: Store, set_name: str | None) -> str:
    """The set that somebody named; else the only one, or the one that has the usual name."""
    if set_name is not None:
        return _known(store, set_name)
    names = sets_in(store)
    if not names:
        raise NotFound("the store has no artifacts")
    if len(names) == 1:
        return names[0]
    if _DEFAULT in names:
        return _DEFAULT
    raise with_hint(
        Usage(f"the store has {len(names)} sets of artifacts: {listed(names)}"),
        "choose one with --set",
    )


def _known(store: Store, set_name: str) -> str:
    names = sets_in(store)
    if set_name in names:
        return set_name
    raise with_hint(
        NotFound(
            f"the store has no set of artifacts {set_name!r}; it has {listed(names) or 'none'}"
        ),
        _LISTS,
    )


def _unknown(store: Store, artifact: str, chosen: str) -> RopewalkError:
    there = listed(sorted(artifacts_in(store, chosen))) or "none"
    error = NotFound(f"set {chosen!r} has no artifact {artifact!r}; it has {there}")
    others = [one for one in sets_in(store) if artifact in artifacts_in(store, one)]
    return with_hint(error, f"there is one in {listed(others)}: add --set" if others else _LISTS)


def no_artifact_named(store: Store, set_name: str | None) -> RopewalkError:
    """What to say to who named a set only, or nothing where there are only artifacts."""
    if set_name is not None:
        there = listed(sorted(artifacts_in(store, _known(store, set_name)))) or "none"
        told = Usage(f"set {set_name!r} has the artifacts {there}")
    else:
        told = Usage(
            "the store has no timeline of an agent, but artifacts, in " + told_sets(sets_in(store))
        )
    return with_hint(told, f"choose one with --artifact; {_LISTS}")


def is_a_set(name: str) -> RopewalkError:
    """What to say to who took a set of artifacts for an agent."""
    return with_hint(
        NotFound(f"the store has no timeline {name!r}, but a set of artifacts of that name"),
        f"choose an artifact with --artifact and --set {name}; {_LISTS}",
    )


def told_sets(names: list[str]) -> str:
    """Sets, for a sentence."""
    return f"{'sets' if len(names) > 1 else 'set'} {listed(names)}"


def artifact_at(store: Store, space: str, ref: str) -> str:
    """The artifact that a ref of a set is about."""
    from ropewalk.coherence.history import artifact_of

    return artifact_of(store, space, ref)
