"""A history: the commits, branches, tags, pins and operations in one space of a store."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, Unpack

from ropewalk.codec import Codec, default_codec
from ropewalk.errors import Conflict, InvalidInput, InvalidName, NotFound, RefMoved
from ropewalk.history.branch import Branch
from ropewalk.history.commits import (
    BRANCH,
    PIN,
    TAG,
    Commits,
    StepFields,
    check_fields,
    commit_loop,
    looks_itself,
)
from ropewalk.history.merge import (
    Merging,
    ancestors,
    check_mergers,
    first_parents,
    is_ancestor,
    merge_bases,
    merge_commits,
    nearest,
)
from ropewalk.store import Move, Operation, Ref, Store, View, ref_name, split_name
from ropewalk.store.asynchronous import Threads, twin, twin_iterator
from ropewalk.store.reserved import EXPIRES_AT
from ropewalk.store.validation import expect
from ropewalk.tree import (
    Change,
    Commit,
    Edited,
    Map,
    Mergers,
    Object,
    ObjectId,
    Reader,
    TreeWriter,
    diff,
    links,
    load,
    make_commit,
)

if TYPE_CHECKING:
    from ropewalk.store.model import Scalar


At: TypeAlias = Commit | ObjectId | str
"""What names a commit: itself, its id, its id in hex, a branch, or a tag."""

MAIN = "main"
"""The branch that is meant when none is named."""

_PAGE = 256
_WHOLE_ID = re.compile("[0-9a-f]{64}")

UNDOES = "undoes"
"""The key, in an operation's metadata, for the number of the operation that it takes back."""

REDOES = "redoes"
"""The same, for the number of the operation that a redo brings back."""

REDO = "redo"


class Pin(NamedTuple):
    """A value that is kept although no branch needs it, perhaps only until a time."""

    name: str
    root: ObjectId
    expires_at: int | None
    """Microseconds since 1970; None keeps it until it is unpinned."""

    @classmethod
    def of(cls, ref: Ref, commit: Commit) -> Self:
        """A pin, from its ref and the commit that it points to."""
        expires_at = commit.extension.get(EXPIRES_AT)
        ends = expires_at if isinstance(expires_at, int) else None
        return cls(split_name(ref.name)[1], commit.root, ends)

    def is_over(self, moment: int) -> bool:
        """Whether its time is over at a moment."""
        return self.expires_at is not None and self.expires_at <= moment


class History:
    """The versions of what one agent, thread or set of artifacts holds.

    A space of a store, seen as commits that branches, tags and pins name. Every change
    moves refs by compare-and-swap and is an operation, so it can be undone. Safe to
    share between threads. Methods that ask the store have asynchronous twins: `aundo`
    for `undo`, and so on.
    """

    def __init__(
        self, store: Store, space: str, *, codec: Codec | None = None, agent: str = ""
    ) -> None:
        if not isinstance(store, Store):
            raise InvalidInput(f"a history is in a Store, not in a {type(store).__name__}")
        if not isinstance(agent, str):
            raise InvalidInput(f"an agent is a name, not a {type(agent).__name__}")
        store.view(space)  # The name is checked here, not at the first commit.
        self.store, self.space = store, space
        self.read: Reader = store.reader(space)
        """Reads objects of this history by their ids."""
        self.codec = default_codec if codec is None else codec
        self.agent = agent
        self.commits = Commits(store, space)
        """The commits of this history."""

    def __repr__(self) -> str:
        return f"<History of {self.space!r} in {self.store!r}>"

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    # Reading.

    def resolve(self, at: At = MAIN) -> Commit:
        """The commit that a branch, a tag, an id or its hex digits name.

        An id goes before a branch, and a branch before a tag of the same name. Raises `NotFound`.
        """
        if isinstance(at, Commit):
            return at
        if isinstance(at, bytes):
            return self.commits.find(at)
        if not isinstance(at, str):
            raise InvalidInput(f"a commit is named by text or by its id, not {at!r:.80}")
        if _WHOLE_ID.fullmatch(at):
            return self.commits.find(bytes.fromhex(at))
        for kind in (BRANCH, TAG):
            target = self._target(kind, at)
            if target is not None:
                return self.commits.find(target)
        raise NotFound(
            f"{self.space!r} has no branch or tag {at!r:.80}, and an id has 64 hexadecimal digits"
        )

    def look_ahead(self, ids: Iterable[ObjectId]) -> None:
        """Read commits together that will be asked for one by one: a few hundred at most."""
        self.commits.look_ahead(ids)

    def value(self, at: At = MAIN) -> Any:
        """The whole value of a commit."""
        return load(self.resolve(at).root, self.read, self.codec)

    def map(self, at: At = MAIN) -> Map:
        """The value of a commit as a `Map`, of which only what is asked for is read."""
        return Map(self.resolve(at).root, self.read, self.codec)

    def metadata(self, at: At = MAIN) -> Any:
        """What was said about the step; None if nothing was."""
        root = self.resolve(at).metadata
        return None if root is None else load(root, self.read, self.codec)

    def events(self, at: At = MAIN) -> Any:
        """What happened during the step; None if nothing was recorded."""
        root = self.resolve(at).events
        return None if root is None else load(root, self.read, self.codec)

    def diff(self, old: At, new: At) -> list[Change]:
        """The differences between the values of two commits, by path."""
        before, after = self.resolve(old).root, self.resolve(new).root
        return list(diff(before, after, self.read, codec=self.codec))

    # Where commits come from.

    def ancestors(self, at: At = MAIN, limit: int | None = None) -> Iterator[Commit]:
        """A commit and everything it comes from, parents after children."""
        start = self.resolve(at).id
        return islice(ancestors([start], self.commits.find), limit)

    def steps(self, at: At = MAIN, limit: int | None = None) -> Iterator[Commit]:
        """A commit, its first parent, and so on: what one branch did, newest first."""
        start = self.resolve(at).id
        return islice(first_parents(start, self.commits.find), limit)

    def merge_base(self, ours: At, theirs: At) -> Commit | None:
        """The nearest common ancestor; None if there is none.

        If there are several, as after merges to and fro, the same one is always chosen.
        """
        first, second = self.resolve(ours).id, self.resolve(theirs).id
        found = merge_bases([first], second, self.commits.find)
        return next(iter(nearest(found)), None)

    def is_ancestor(self, old: At, new: At) -> bool:
        """Whether the second commit is the first, or comes from it."""
        return is_ancestor(self.resolve(old), self.resolve(new), self.commits.find)

    # Branches.

    def open(self, branch: str = MAIN) -> Branch:
        """A handle on a branch, to commit to it again and again; it need not exist yet."""
        return Branch(self, branch)

    def branches(self) -> dict[str, ObjectId]:
        """The branches and the commits they are at, sorted by name."""
        return self._named(BRANCH)

    def create_branch(self, name: str, at: At = MAIN) -> Operation:
        """A new branch at a commit. Raises `Conflict` if there is one of that name."""
        return self._create(BRANCH, name, self.resolve(at))

    def adopt_branch(self, name: str, source: History, at: At = MAIN) -> Operation:
        """A new branch at a commit of another space of the store, with all that leads there.

        What is shared is not copied. Raises `Conflict` if there is a branch of that name.
        """
        start = source.resolve(at)
        portions = self.store.carry(source.space, [start.id])
        before = next(portions, [])
        for portion in portions:
            self.apply("copy", [], {}, before, _needs(before))
            before = portion
        return self._create(BRANCH, name, start, before)

    def delete_branch(self, name: str) -> Operation:
        """Remove a branch; its commits stay as long as something else names them."""
        return self._remove(BRANCH, name)

    def move_branch(self, name: str, to: At, *, expected: At | None = None) -> Operation:
        """Put a branch at another commit, forward or back; nothing is deleted.

        With `expected` only if it is there now: else `RefMoved`.
        """
        target = self.resolve(to)
        before = None if expected is None else self.resolve(expected).id

        full = ref_name(BRANCH, name)

        def moves(view: View) -> list[Move]:
            found = _target_in(view, full)
            if found is None:
                raise self._unknown(BRANCH, name)
            return [Move(full, before or found, target.id)]

        return self._move("move", full, moves, {"branch": name}, retry=expected is None)

    def merge(
        self,
        source: At,
        into: str = MAIN,
        *,
        mergers: Mergers | None = None,
        settle: Callable[[Edited, Reader], Edited] | None = None,
        **fields: Unpack[StepFields],
    ) -> Commit:
        """Bring the changes of a commit into a branch, as a commit with two parents.

        Three-way from their common ancestor; if there are several, from what these make
        together. `fields` say more about it: see `Branch.commit`. `settle` has the last word
        on the value that two came to. If the branch has it all already, nothing is done; if it
        has nothing of its own, it moves forward. Raises `MergeConflict` with nothing changed.
        """
        check_fields(fields)
        check_mergers(mergers, self.codec)
        theirs = self.resolve(source)

        def attempt() -> Commit:
            head = self.store.ref(self.space, ref_name(BRANCH, into))
            if head is None:
                raise self._unknown(BRANCH, into)
            ours = self.commits.find(head.target)
            return self._merge(into, ours, theirs, mergers, fields, settle)

        return commit_loop(attempt, look=looks_itself)

    # Tags and pins.

    def tags(self) -> dict[str, ObjectId]:
        """The tags and the commits they name, sorted by name."""
        return self._named(TAG)

    def create_tag(self, name: str, at: At = MAIN) -> Operation:
        """Name a commit for good. Raises `Conflict` if there is a tag of that name."""
        return self._create(TAG, name, self.resolve(at))

    def delete_tag(self, name: str) -> Operation:
        """Remove a tag."""
        return self._remove(TAG, name)

    def pins(self) -> list[Pin]:
        """The pins, sorted by name, also those whose time is over."""
        view = self.store.view(self.space, f"{PIN}/")
        return [Pin.of(ref, self.commits.find(ref.target)) for ref in view.refs]

    def pin(
        self,
        name: str,
        root: ObjectId,
        objects: list[Object] | None = None,
        needs: list[ObjectId] | None = None,
        *,
        expires_at: int | None = None,
    ) -> Operation:
        """Keep a value, in the place of what the pin kept before.

        `objects` are those of the value that may not be in the store yet, `needs` what
        they point to. `expires_at`, in microseconds since 1970, is when `prune_expired`
        may drop the pin.
        """
        if expires_at is not None and type(expires_at) is not int:
            raise InvalidInput(f"expires_at is in microseconds since 1970, not {expires_at!r:.80}")
        extension = {} if expires_at is None else {EXPIRES_AT: expires_at}
        now = time.time_ns() // 1000
        kept, made = make_commit(root, time=now, agent=self.agent, extension=extension)
        sending = [*(objects or ()), made]
        needed = [*(needs or ()), root]

        full = ref_name(PIN, name)

        def moves(view: View) -> list[Move]:
            return [Move(full, _target_in(view, full), kept.id)]

        return self._move(
            "pin", full, moves, {"pin": name}, objects=sending, needs=needed, step=kept
        )

    def unpin(self, name: str) -> Operation:
        """Drop a pin; its value stays as long as something else reaches it."""
        return self._remove(PIN, name)

    def prune_expired(self, now: int | None = None) -> list[str]:
        """Drop the pins whose time is over; their names. Objects are left to `gc`."""
        moment = time.time_ns() // 1000 if now is None else now
        dropped: list[str] = []

        def moves(view: View) -> list[Move]:
            pins = [(ref, Pin.of(ref, self.commits.find(ref.target))) for ref in view.refs]
            over = [(ref, pin) for ref, pin in pins if pin.is_over(moment)]
            dropped[:] = [pin.name for _, pin in over]
            return [Move(ref.name, ref.target, None) for ref, _ in over]

        if any(pin.is_over(moment) for pin in self.pins()):
            self._move("prune", f"{PIN}/", moves, {})
        return dropped

    # Operations.

    def operations(self, after: int = 0, limit: int = 1000) -> list[Operation]:
        """What was done to this history, from number `after + 1` on."""
        return self.store.operations(self.space, after, limit)

    def newest_operations(self) -> Iterator[Operation]:
        """The operations from the last one back."""
        last = self.store.view(self.space).sequence
        while last > 0:
            first = max(last - _PAGE, 0)
            yield from reversed(self.store.operations(self.space, first, last - first))
            last = first

    def apply(
        self,
        action: str,
        moves: Sequence[Move],
        metadata: Mapping[str, Scalar] | None = None,
        objects: Sequence[Object] = (),
        needs: Sequence[ObjectId] = (),
        *,
        step: Commit | None = None,
    ) -> Operation:
        """Move several refs at once: all of them, or none.

        For layers above that keep refs of their own. `action` is what the log calls it, and
        `step` the commit among the objects, if there is one. Raises `RefMoved` if a ref is
        not where its move expects it.
        """
        said = {"action": action, **(metadata or {})}
        return self.commits.land(objects, needs, moves, said, step=step)

    def keep(
        self, kind: str, value: Any, parents: Sequence[Commit], **fields: Unpack[StepFields]
    ) -> Commit:
        """A commit that no branch leads to, under a ref of a kind, named by its id."""
        check_fields(fields)
        written = TreeWriter(self.codec).write(value)
        about: dict[str, Any] = {"time": time.time_ns() // 1000, "agent": self.agent, **fields}
        commit, made = make_commit(
            written.root,
            tuple(parent.id for parent in parents),
            generation=1 + max((parent.generation for parent in parents), default=0),
            **about,
        )
        move = Move(ref_name(kind, commit.id.hex()), None, commit.id)
        sending, needed = [*written.objects, made], [*written.needs, *commit.parents]
        self.apply(kind, [move], {}, sending, needed, step=commit)
        return commit

    def undo(self, sequence: int | None = None) -> Operation:
        """Take back an operation: the last that was not undone, or the one of a number.

        Refs go back to where that operation found them. An undo is an operation too:
        `redo` takes it back. Raises `NotFound` if there is nothing to undo, `RefMoved`
        if somebody has moved the refs on since, `MissingObjects` if what it leads back
        to was collected.
        """
        if sequence is not None:
            expect(type(sequence) is int, "the number of an operation is a whole number", sequence)
            return self._take_back("undo", self._operation(sequence))
        return self._take_back_last("undo", last_done, "nothing to undo")

    def redo(self) -> Operation:
        """Do again what the last `undo` took back; `NotFound` if work went on since."""
        return self._take_back_last(REDO, last_undone, "nothing to redo")

    def watch(self, after: int | None = None, timeout: float | None = None) -> Iterator[Operation]:
        """Yield operations as they happen: from number `after + 1` on, or from now on."""
        return self.store.watch(self.space, self._start(after), timeout)

    def awatch(
        self, after: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Operation]:
        """The asynchronous twin of `watch`; no thread waits for it."""
        return self.store.awatch(self.space, self._start(after), timeout)

    # Inside.

    def _start(self, after: int | None) -> int:
        return self.store.view(self.space).sequence if after is None else after

    def _target(self, kind: str, name: str) -> ObjectId | None:
        try:
            ref = self.store.ref(self.space, ref_name(kind, name))
        except InvalidName:
            return None  # Nothing can have this name.
        return None if ref is None else ref.target

    def _named(self, kind: str) -> dict[str, ObjectId]:
        view = self.store.view(self.space, f"{kind}/")
        return {split_name(ref.name)[1]: ref.target for ref in view.refs}

    def _create(
        self, kind: str, name: str, commit: Commit, objects: Sequence[Object] = ()
    ) -> Operation:
        full = ref_name(kind, name)

        def moves(view: View) -> list[Move]:
            if _target_in(view, full) is not None:
                raise Conflict(
                    f"{self.space!r} has a {kind} {name!r} already: choose another name, or "
                    "remove that one"
                )
            return [Move(full, None, commit.id)]

        needs = _needs(objects) if objects else [commit.id]
        action, about = f"create-{kind}", {kind: name}
        return self._move(action, full, moves, about, objects=list(objects), needs=needs)

    def _remove(self, kind: str, name: str) -> Operation:
        full = ref_name(kind, name)

        def moves(view: View) -> list[Move]:
            found = _target_in(view, full)
            if found is None:
                raise self._unknown(kind, name)
            return [Move(full, found, None)]

        return self._move(f"delete-{kind}", full, moves, {kind: name})

    def _move(
        self,
        action: str,
        prefix: str,
        moves: Callable[[View], list[Move]],
        metadata: Mapping[str, Scalar],
        *,
        objects: list[Object] | None = None,
        needs: list[ObjectId] | None = None,
        step: Commit | None = None,
        retry: bool = True,
    ) -> Operation:
        """Move refs as `moves` decides from where they are; again if they moved meanwhile.

        It sees the refs whose names begin with `prefix`.
        """

        def attempt() -> Operation:
            wanted = moves(self.store.view(self.space, prefix))
            said = {"action": action, **metadata}
            return self.commits.land(objects or (), needs or (), wanted, said, step=step)

        return commit_loop(attempt, look=looks_itself if retry else None)

    def _merge(
        self,
        into: str,
        ours: Commit,
        theirs: Commit,
        mergers: Mergers | None,
        fields: StepFields,
        settle: Callable[[Edited, Reader], Edited] | None,
    ) -> Commit:
        find = self.commits.find
        bases = merge_bases([ours.id], theirs.id, find)
        name = ref_name(BRANCH, into)
        metadata = {"action": "merge", "branch": into}
        if theirs in bases:
            return ours
        if ours in bases:
            move = Move(name, ours.id, theirs.id)
            self.commits.land((), [theirs.id], [move], metadata)
            return theirs
        how = Merging(find, self.read, mergers, self.codec)
        merged = merge_commits(ours, theirs, bases, how)
        if settle is not None:
            merged = settle(merged, self.read)
        commit, made = make_commit(
            merged.root,
            (ours.id, theirs.id),
            generation=1 + max(ours.generation, theirs.generation),
            **{"time": time.time_ns() // 1000, "agent": self.agent, "branch": into, **fields},
        )
        needs = [*merged.needs, merged.root, ours.id, theirs.id]
        move = Move(name, ours.id, commit.id)
        self.commits.land([*merged.objects, made], needs, [move], metadata, step=commit)
        return commit

    def _operation(self, sequence: int) -> Operation:
        found = self.store.operations(self.space, sequence - 1, 1) if sequence > 0 else []
        if not found or found[0].sequence != sequence:
            raise NotFound(f"{self.space!r} has no operation {sequence}")
        return found[0]

    def _take_back_last(
        self,
        action: str,
        choose: Callable[[Iterator[Operation]], Operation | None],
        nothing: str,
    ) -> Operation:
        operation = choose(self.newest_operations())
        if operation is None:
            raise NotFound(f"there is {nothing} in {self.space!r}")
        return self._take_back(action, operation)

    def _take_back(self, action: str, operation: Operation) -> Operation:
        moves = inverse(operation)
        if not moves:
            raise InvalidInput(f"operation {operation.sequence} moved no refs: nothing to undo")
        metadata: dict[str, Scalar] = {"action": action, UNDOES: operation.sequence}
        if action == REDO:
            metadata[REDOES] = operation.metadata[UNDOES]
        try:
            return self.commits.land((), (), moves, metadata)
        except RefMoved as error:
            advice = (
                f"Work went on after operation {operation.sequence} "
                f"({operation.metadata.get('action')!r}), so it cannot be taken back; nothing was "
                "changed. A rollback goes back to any earlier step."
            )
            raise RefMoved(error.name, error.expected, error.actual, advice) from error

    def _unknown(self, kind: str, name: str) -> NotFound:
        return NotFound(f"{self.space!r} has no {kind} {name!r:.80}")

    # The asynchronous face.

    aresolve = twin(resolve)
    alook_ahead = twin(look_ahead)
    avalue = twin(value)
    amap = twin(map)
    ametadata = twin(metadata)
    aevents = twin(events)
    adiff = twin(diff)
    aancestors = twin_iterator(ancestors)
    asteps = twin_iterator(steps)
    amerge_base = twin(merge_base)
    ais_ancestor = twin(is_ancestor)
    aopen = twin(open)
    abranches = twin(branches)
    acreate_branch = twin(create_branch)
    aadopt_branch = twin(adopt_branch)
    adelete_branch = twin(delete_branch)
    amove_branch = twin(move_branch)
    amerge = twin(merge)
    atags = twin(tags)
    acreate_tag = twin(create_tag)
    adelete_tag = twin(delete_tag)
    apins = twin(pins)
    apin = twin(pin)
    aunpin = twin(unpin)
    aprune_expired = twin(prune_expired)
    aoperations = twin(operations)
    anewest_operations = twin_iterator(newest_operations)
    aapply = twin(apply)
    akeep = twin(keep)
    aundo = twin(undo)
    aredo = twin(redo)


def _needs(objects: Sequence[Object]) -> list[ObjectId]:
    """What objects lead to that is not among them."""
    made = {one.id for one in objects}
    return list(dict.fromkeys(id for one in objects for id in links(one) if id not in made))


def _target_in(view: View, name: str) -> ObjectId | None:
    for ref in view.refs:
        if ref.name == name:
            return ref.target
    return None


# Which operation `undo` and `redo` mean, from the log alone. Pure.


def last_done(newest_first: Iterable[Operation]) -> Operation | None:
    """The newest operation that moved refs and was not undone; None if there is none."""
    undone: set[object] = set()
    for operation in newest_first:
        if operation.arrived:
            return None
        taken_back = operation.metadata.get(UNDOES)
        if taken_back is not None:
            # One that was taken back itself takes nothing back.
            if operation.sequence not in undone:
                undone.add(taken_back)
        elif operation.moves and operation.sequence not in undone:
            return operation
    return None


def last_undone(newest_first: Iterable[Operation]) -> Operation | None:
    """The newest undo that was not redone; None if there is none, or if work went on."""
    redone: set[object] = set()
    for operation in newest_first:
        if operation.arrived:
            return None
        taken_back = operation.metadata.get(UNDOES)
        if taken_back is None:
            if operation.moves:
                return None
        elif operation.metadata.get("action") == REDO:
            redone.add(taken_back)
        elif operation.sequence not in redone:
            return operation
    return None


def inverse(operation: Operation) -> list[Move]:
    """The moves that put refs back where an operation found them."""
    return [Move(name, target, expected) for name, expected, target in operation.moves]
