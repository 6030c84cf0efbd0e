"""`Timeline`: one agent's named history, as the developer of that agent uses it.

The verbs (checkpoint, rollback, branch, merge, undo, blame, ...) are here; each is a few calls of
a `History`. How steps are found is in `search`, and how functions run as steps in `execution`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, Unpack

from ropewalk.codec import Classes, Codec, Path
from ropewalk.codec.codec import codec_of
from ropewalk.errors import Conflict, InvalidInput, InvalidName, NotFound, RefMoved
from ropewalk.history import MAIN, Branch, Commit, History, StepFields
from ropewalk.recovery import RecoveryStrategy
from ropewalk.store import Move, Operation, Progress, Store, ref_name, space_name, split_name
from ropewalk.store import open as open_store
from ropewalk.store.asynchronous import Threads, twin
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.names import encode_part
from ropewalk.store.opening import store_of
from ropewalk.timeline import branches, drawing, search
from ropewalk.timeline.branches import HEAD, living_branch, stored_branch
from ropewalk.timeline.checkpoint import Checkpoint, CheckpointStatus, Diff, Past
from ropewalk.timeline.drawing import TreeLine
from ropewalk.timeline.execution import Execution
from ropewalk.timeline.search import Index
from ropewalk.tree import Edited, Mergers, ObjectId, Reader, TreeWriter, merge

if TYPE_CHECKING:
    from ropewalk.store import KVStore

T = TypeVar("T", bound="Timeline")

_SEPARATORS = re.compile(r"[/\\]")
_WHOLE_ID = re.compile("[0-9a-f]{64}")

TENANT = "agents"
"""The tenant of timelines, unless another is named."""


class BranchInfo(NamedTuple):
    """What `list_branches` says about a branch."""

    name: str
    is_current: bool
    head: str
    """The id of its newest checkpoint."""
    checkpoint_count: int
    """How many steps lead to it, itself included."""
    created: bool = False
    """Whether `branch` has just made it."""


class Timeline:
    """The steps of one agent: saved, gone back to, branched, merged and recovered.

    A timeline is found again by its name: a new process that opens it goes on where the
    last one stopped. Without a store it is in `.ropewalk`, in the current folder, where
    the command line finds it. A store that the timeline opened is closed with it.

    `types` are classes that may be stored beside plain ones and those that `ropewalk.register`
    declared; with `classes="declared"` only these. With a `pickle_key`, any object that can be
    pickled is stored, signed with that key. Or a `codec` says all of that.

    With `branch` this object works on that branch; what others find as the current one
    stays, unlike after `switch_branch`.

    Every method has an asynchronous twin: `acheckpoint` for `checkpoint`, and so on.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        name: str,
        store: Store | KVStore | str | PathLike[str] | None = None,
        storage_backend: Store | KVStore | str | PathLike[str] | None = None,
        recovery_strategies: Sequence[RecoveryStrategy] | None = None,
        *,
        codec: Codec | None = None,
        types: Iterable[type] = (),
        pickle_key: bytes | None = None,
        classes: Classes | None = None,
        tenant: str = TENANT,
        branch: str | None = None,
    ) -> None:
        if store is not None and storage_backend is not None:
            raise InvalidInput("store and storage_backend are the same thing: give one of them")
        space = space_name(tenant, check_agent(name))
        known = codec_of(codec, types, pickle_key, classes)
        self.name = name
        self._execution = Execution(self, recovery_strategies or ())
        given = storage_backend if store is None else store
        self.store, self._owns_store = (open_store(), True) if given is None else store_of(given)
        try:
            self._history = History(self.store, space, codec=known, agent=name)
            self._index = Index(self._history)
            self._handles: dict[str, Branch] = {}
            self._failed_at: tuple[str, ObjectId | None] | None = None
            self._lock = freed_after_fork(threading.RLock())
            self._current = living_branch(self.store, self._history.space) or MAIN
            if branch is not None:
                if branch != self._current and branch not in self._history.branches():
                    raise self._unknown_branch(branch)
                self._current = branch
            self._handle()  # What is there now is what the first checkpoint follows.
        except BaseException:
            self.close()
            raise

    @classmethod
    def agents(
        cls, store: Store | KVStore | str | PathLike[str] | None = None, *, tenant: str = TENANT
    ) -> list[str]:
        """The names of the timelines in a store, sorted; nothing is made."""
        if isinstance(store, str | PathLike) or store is None:
            with open_store(store, create=False) as opened:
                return cls.agents(opened, tenant=tenant)
        known, _ = store_of(store)
        return sorted(split_name(space)[1] for space in known.spaces(f"{encode_part(tenant)}/"))

    # Saving and reading.

    def checkpoint(
        self,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        description: str = "",
        logic_step: str = "",
        *,
        mergers: Mergers | None = None,
        write_id: str | None = None,
        expect: Checkpoint | str | None = None,
    ) -> Checkpoint:
        """Save a state as the next step of the current branch.

        Only what changed is stored, and it is durable when this returns. If another process
        saved a step since this object was opened, read or saved the branch, both changes are
        merged; where both changed the same path and no merger resolves it, `MergeConflict` is
        raised with nothing changed. `write_id` is an idempotency key: a step that is sent
        twice is saved once.

        With `expect`, a checkpoint or its id, nothing is merged: if the branch is not there
        any more, `RefMoved` is raised and nothing is saved.
        """
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInput(f"metadata is a dict, not a {type(metadata).__name__}")
        with self._lock:
            recovered = self._failed_here()
            about: StepFields = {"description": description, "logic_step": logic_step}
            expected = None if expect is None else self._expected(expect)
            return self._save(state, metadata, about, recovered, mergers, write_id, expected)

    def get_state(self) -> Any:
        """The state at the head of the current branch; None before the first checkpoint.

        Raises `Conflict` if somebody removed the branch meanwhile.
        """
        with self._lock:
            head = self._handle().reset()
            return None if head is None else self._history.value(head)

    @property
    def head(self) -> Checkpoint | None:
        """The newest checkpoint of the current branch; None before the first."""
        with self._lock:
            commit = self._handle().refresh()
        return None if commit is None else self._seen(commit)

    def get(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by its id, a unique beginning of it, a branch or a tag."""
        return self._seen(self._find(checkpoint_id))

    def history(self, branch_name: str | None = None, limit: int | None = 50) -> list[Checkpoint]:
        """The steps of a branch, newest first; at most `limit`, all with None."""
        search.check_limit(limit)
        start = self._branch_head(self._current if branch_name is None else branch_name)
        if start is None:
            return []
        if limit is not None and limit <= search.FEW:
            return [self._seen(commit) for commit in self._history.steps(start, limit)]
        steps = search.steps_of(self._history, self._index.shape(), start, limit)
        return [self._seen(commit) for commit in steps]

    def failures(self, limit: int | None = 50) -> list[Checkpoint]:
        """The attempts that failed, newest first."""
        search.check_limit(limit)
        view = self.store.view(self._history.space, "attempt/")
        newest = sorted(view.refs, key=lambda ref: ref.sequence, reverse=True)[:limit]
        return [self._seen(self._history.resolve(ref.target)) for ref in newest]

    def at(self, moment: str | datetime | float) -> Past:
        """A read-only view of a checkpoint, or of the current branch at a time."""
        if isinstance(moment, str):
            return Past(self._history, self._seen(self._find(moment)))
        head = self._required_head()
        return Past(self._history, self._seen(search.at_time(self._history, head, moment)))

    def diff(self, a: str, b: str | None = None) -> Diff:
        """What changed from one checkpoint to another, or to the head: deep, by path."""
        old = self._find(a)
        new = self._required_head() if b is None else self._find(b)
        return Diff(tuple(self._history.diff(old, new)))

    # Going back.

    def rollback(self, steps: int = 1, to_checkpoint_id: str | None = None) -> Checkpoint:
        """Put the current branch at an earlier step; nothing is deleted.

        Goes back by `steps`, or to a checkpoint that the branch comes from. Where there are
        fewer steps it goes to the first and warns. `undo` takes it back. Raises `NotFound`
        for an id that is unknown.
        """
        if to_checkpoint_id is not None and steps != 1:
            raise InvalidInput("a rollback goes back by steps or to a checkpoint: give one of them")
        with self._lock:
            head = self._required_head()
            if to_checkpoint_id is None:
                target = search.steps_back(self._history, head, steps, self._current)
            else:
                target = self._find(to_checkpoint_id)
                if not self._history.is_ancestor(target, head):
                    raise InvalidInput(
                        f"branch {self._current!r} does not come from checkpoint {target.short}. "
                        "To go on from there, make a branch at it."
                    )
            if target.id != head.id:
                move = Move(ref_name("branch", self._current), head.id, target.id)
                self._history.apply("rollback", [move], {"branch": self._current})
            self._handle().reset()
            return self._seen(target)

    def undo(self, sequence: int | None = None) -> Operation:
        """Take back the last operation that was not undone, or one by its number.

        Whatever it was: a checkpoint, a rollback, a branch, a merge, a tag. `undoes` in the
        metadata of what is returned is the number of the operation that was taken back.
        """
        with self._lock:
            done = self._history.undo(sequence)
            self._look_again()
            return done

    def redo(self) -> Operation:
        """Do again what the last `undo` took back, unless work went on since.

        `redoes` in the metadata of what is returned is the number of the operation that
        came back.
        """
        with self._lock:
            done = self._history.redo()
            self._look_again()
            return done

    # Branches.

    @property
    def current_branch(self) -> str:
        """The branch that checkpoints go to."""
        return self._current

    def branch(self, name: str, from_checkpoint_id: str | None = None) -> BranchInfo:
        """Switch to a branch; one that is not there yet begins at the head, or at a checkpoint.

        `created` of what is returned says which happened. Raises `Conflict` if a checkpoint
        is named and there is a branch of that name: it stays where it is.
        """
        with self._lock:
            if name in self._history.branches():
                if from_checkpoint_id is not None:
                    raise Conflict(
                        f"timeline {self.name!r} has a branch {name!r} already, so it cannot begin "
                        "at a checkpoint: choose another name, or call branch() without the "
                        "checkpoint to switch to it"
                    )
                return self.switch_branch(name)
            start = (
                self._required_head() if from_checkpoint_id is None
                else self._find(from_checkpoint_id)
            )  # fmt: skip
            head, objects = self._head_move(name)
            moves = [Move(ref_name("branch", name), None, start.id), *head]
            try:
                self._history.apply("branch", moves, {"branch": name}, objects, [start.id])
            except RefMoved:
                if name not in self._history.branches():
                    raise
                return self.branch(name, from_checkpoint_id)  # Another process created it first.
            self._current = name
            self._handle()
            return BranchInfo(name, True, start.id.hex(), start.generation, created=True)

    def switch_branch(self, name: str) -> BranchInfo:
        """Go on with another branch. Raises `NotFound`, and says which there are."""
        with self._lock:
            head = self._branch_head(name)
            if head is None and not (name == MAIN and not self._history.branches()):
                raise self._unknown_branch(name)
            moves, objects = self._head_move(name)
            if moves:
                self._history.apply("switch", moves, {"branch": name}, objects)
            self._current = name
            if head is None:
                self._handles.pop(name, None)  # The next checkpoint creates it.
            else:
                self._handle().reset()
            at = "" if head is None else head.id.hex()
            return BranchInfo(name, True, at, 0 if head is None else head.generation)

    def list_branches(self) -> list[BranchInfo]:
        """The branches, sorted by name."""
        found = []
        for name, target in self._history.branches().items():
            count = self._history.resolve(target).generation
            found.append(BranchInfo(name, name == self._current, target.hex(), count))
        return found

    def delete_branch(self, name: str) -> Operation:
        """Remove a branch that is not the current one; its checkpoints can be undone to."""
        if name in (self._current, living_branch(self.store, self._history.space) or MAIN):
            raise InvalidInput(f"{name!r} is the current branch: switch to another one first")
        return self._history.delete_branch(name)

    def merge(
        self,
        source_branch: str,
        strategy: str = "combine",
        *,
        mergers: Mergers | None = None,
        description: str = "",
    ) -> Checkpoint:
        """Bring the changes of a branch, a tag or a checkpoint into the current branch.

        Three-way from the common ancestor, by path. Where both sides changed the same
        place, the strategy decides: `combine` reports it as `MergeConflict`, `ours` and
        `theirs` (or `prefer_source`) take a side, `prefer_higher_confidence` takes the
        side whose newest checkpoint has the higher `confidence` in its metadata.
        `mergers` settle single paths and go before the strategy.
        """
        with self._lock:
            theirs, ours = self._find(source_branch), self._required_head()
            rules = branches.rules(self._history, strategy, ours, theirs, mergers)
            told = description or f"Merged {source_branch}"
            commit = self._history.merge(
                theirs, self._current, mergers=rules, settle=self._settled, description=told
            )
            self._handle().reset()
            return self._seen(commit)

    def cherry_pick(self, checkpoint_id: str, *, mergers: Mergers | None = None) -> Checkpoint:
        """Do again, on the current branch, what one step changed."""
        before, picked = self._step(checkpoint_id, "picked")
        return self._apply(f"Picked {picked.short}", before.root, picked.root, mergers)

    def revert(self, checkpoint_id: str, *, mergers: Mergers | None = None) -> Checkpoint:
        """Take back, on the current branch, what one step changed; later steps stay."""
        before, reverted = self._step(checkpoint_id, "reverted")
        return self._apply(f"Reverted {reverted.short}", reverted.root, before.root, mergers)

    def fork(self: T, name: str, from_checkpoint: str | None = None) -> T:
        """A new timeline that begins at a checkpoint and shares all that is stored.

        Raises `Conflict` if there is a timeline of that name.
        """
        start = self._required_head() if from_checkpoint is None else self._find(from_checkpoint)
        tenant = split_name(self._history.space)[0]
        made = type(self)(name, self.store, codec=self._history.codec, tenant=tenant)
        if made._history.branches():
            raise Conflict(f"there is a timeline {name!r} already: choose another name")
        made._history.adopt_branch(MAIN, self._history, start)
        made._handle().reset()
        return made

    # Tags.

    def tag(self, name: str, checkpoint_id: str | None = None) -> Operation:
        """Name a checkpoint for good: the head, or the one of an id."""
        at = self._required_head() if checkpoint_id is None else self._find(checkpoint_id)
        return self._history.create_tag(name, at)

    def tags(self) -> dict[str, str]:
        """The tags and the ids of their checkpoints."""
        return {name: target.hex() for name, target in self._history.tags().items()}

    def delete_tag(self, name: str) -> Operation:
        """Remove a tag."""
        return self._history.delete_tag(name)

    # Asking the past.

    def blame(self, path: Path | str) -> Checkpoint:
        """The step that last wrote what is at a path; raises `PathNotFound`."""
        line = search.line_to(self._index.shape(), self._required_head())
        return self._seen(search.blame(self._history, line, _as_path(path)))

    def bisect(
        self, predicate: Callable[[Any], bool], path: Path | str | None = None
    ) -> Checkpoint:
        """The first step of the current branch at whose state something was true.

        Looks at few steps, so it must have become true once and stayed so. With a path
        the predicate is asked about what is there, and `ABSENT` where there is nothing.
        Raises `NotFound` if it is not true at the head.
        """
        line = search.line_to(self._index.shape(), self._required_head())
        place = None if path is None else _as_path(path)
        return self._seen(search.bisect(self._history, line, predicate, place))

    def visualize_tree(self, *, fold: int | None = 12, unicode: bool = True) -> str:
        """The steps as a tree, oldest first: status, description, short id, branches, tags.

        Runs of more than `fold` steps are shown as their ends; None shows all.
        """
        lines = self.tree(fold=fold, unicode=unicode)
        return "\n".join(map(str, lines)) or "(no checkpoints yet)"

    def tree(self, *, fold: int | None = 12, unicode: bool = True) -> list[TreeLine]:
        """The same line by line, for programs that draw it themselves."""
        style = drawing.Style(unicode=unicode, fold=fold)
        return drawing.draw(self._history, self._index.shape(), self._current, style)

    @property
    def metrics(self) -> dict[str, int]:
        """Counts of checkpoints, branches, tags, failed attempts and operations."""
        return search.metrics(self._index.shape())

    def operations(self, after: int = 0, limit: int = 1000) -> list[Operation]:
        """What was done to this timeline, from number `after + 1` on."""
        return self._history.operations(after, limit)

    def last_operations(self, limit: int | None = 50) -> list[Operation]:
        """What was done last, newest first; at most `limit`, all with None."""
        search.check_limit(limit)
        return list(islice(self._history.newest_operations(), limit))

    def watch(self, timeout: float | None = None) -> Iterator[Operation]:
        """Yield operations as they happen, also those of other processes."""
        return self._history.watch(timeout=timeout)

    def awatch(self, timeout: float | None = None) -> AsyncIterator[Operation]:
        """The asynchronous twin of `watch`."""
        return self._history.awatch(timeout=timeout)

    # Running steps.

    def safe_execute(
        self,
        func: Callable[[Any], Any],
        state: Any,
        description: str = "",
        max_retries: int = 3,
        fallback: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Run a function on a state, save what it gives, and recover if it fails.

        The state is saved before, so one that cannot be stored is refused with `NotStorable`
        and the function does not run. The function is tried at most `max_retries` times,
        each time with a copy of its own; the strategies of this timeline choose the
        state and the wait of the next attempt. Each failure is kept in the history with
        its traceback, and the branch stays at the last good state. If all attempts
        fail, `fallback` is run; if that fails too, the last error is raised.

        Gives `(result, checkpoint)`; for an asynchronous function, what to await for
        it. A result that is a dict is the new state, any other is saved as `{"result":
        ...}`. If a result cannot be saved, `NotSaved` is raised, which holds it: a
        function that succeeded is never run again.
        """
        return self._execution.run(func, state, description, max_retries, fallback)

    # Sessions.

    def export_session(self, path: str | PathLike[str], *, progress: Progress | None = None) -> int:
        """Write the whole timeline to one file; how many bytes it has.

        `progress` is called with the name of the phase and the number of objects so far.
        """
        from ropewalk.timeline.sessions import write_session

        return write_session(self._history, path, progress)

    @classmethod
    def import_session(
        cls: type[T],
        path: str | PathLike[str],
        store: Store | KVStore | str | PathLike[str] | None = None,
        name: str | None = None,
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> T:
        """A timeline from a file that `export_session` wrote, under its name or another.

        Everything is verified. Raises `Conflict` if there is a timeline of that name.
        `options` and the store are those of a `Timeline`. Since the data may be from somebody
        else, the timeline that is returned is one with `classes="declared"` unless you choose.
        """
        from ropewalk.timeline.sessions import read_session

        session = read_session(path)
        if "codec" not in options:
            options.setdefault("classes", "declared")
        made = cls(session.name if name is None else name, store, **options)
        try:
            session.copy_to(made._history, progress)
            made._look_again()
        except BaseException:
            made.close()
            raise
        return made

    # Life.

    def close(self) -> None:
        """Close the store, if this timeline opened it."""
        if self._owns_store and hasattr(self, "store"):
            self.store.close()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Timeline {self.name!r} on {self._current!r} in {self.store!r}>"

    # Inside.

    @property
    def _threads(self) -> Threads:
        return self.store._threads

    def _save(
        self,
        state: Any,
        metadata: Mapping[str, Any] | None,
        about: StepFields,
        recovered: bool,
        mergers: Mergers | None = None,
        write_id: str | None = None,
        expected: ObjectId | None = None,
    ) -> Checkpoint:
        """Commit a state as the next step; `recovered` if attempts at it had failed before."""
        with self._lock:
            if recovered:
                about = {**about, "status": str(CheckpointStatus.RECOVERED)}
            commit = self._handle().commit(
                state,
                metadata=None if metadata is None else dict(metadata),
                mergers=mergers,
                write_id=write_id,
                expect=expected,
                **about,
            )
            self._failed_at = None
            return self._seen(commit)

    def _expected(self, at: Checkpoint | str) -> ObjectId:
        """The commit id of an `expect` argument."""
        if isinstance(at, Checkpoint):
            return at.commit.id
        if isinstance(at, str) and _WHOLE_ID.fullmatch(at):
            return bytes.fromhex(at)
        return self._find(at).id

    def _failed(self) -> None:
        """Note that a step failed for good: the next one saved here is marked as recovered."""
        with self._lock:
            self._failed_at = self._place()

    def _failed_here(self) -> bool:
        """Whether a step failed where this timeline is, and none was saved since."""
        return self._failed_at is not None and self._failed_at == self._place()

    def _place(self) -> tuple[str, ObjectId | None]:
        seen = self._handle().seen
        return self._current, None if seen is None else seen.id

    def _handle(self) -> Branch:
        found = self._handles.get(self._current)
        if found is None:
            found = self._handles[self._current] = self._history.open(self._current)
        return found

    def _find(self, name: str) -> Commit:
        return search.find(self._history, self._index, name)

    def _seen(self, commit: Commit) -> Checkpoint:
        return Checkpoint(self._history, commit, self._index.status)

    def _branch_head(self, name: str) -> Commit | None:
        ref = self.store.ref(self._history.space, ref_name("branch", name))
        if ref is None:
            if name == self._current:
                return None
            raise self._unknown_branch(name)
        return self._history.resolve(ref.target)

    def _required_head(self) -> Commit:
        head = self._branch_head(self._current)
        if head is None:
            raise NotFound(
                f"branch {self._current!r} of timeline {self.name!r} has no checkpoint yet"
            )
        return head

    def _unknown_branch(self, name: str) -> NotFound:
        known = ", ".join(repr(one) for one in self._history.branches()) or "none yet"
        return NotFound(f"timeline {self.name!r} has no branch {name!r:.80}; it has {known}")

    def _step(self, checkpoint_id: str, verb: str) -> tuple[Commit, Commit]:
        """A step and, before it, the one that it follows."""
        step = self._find(checkpoint_id)
        if not step.parents:
            raise InvalidInput(f"checkpoint {step.short} is the first step: it cannot be {verb}")
        return self._history.resolve(step.parents[0]), step

    def _apply(
        self, description: str, base: ObjectId, theirs: ObjectId, mergers: Mergers | None
    ) -> Checkpoint:
        """Bring the change from one state to another into the current branch."""

        def edit(root: ObjectId | None, read: Reader) -> Edited:
            assert root is not None, "a branch that has a step has a value"
            codec = self._history.codec
            merged = merge(base, root, theirs, read, mergers=mergers, codec=codec)
            return self._settled(merged, read)

        with self._lock:
            handle = self._handle()
            commit = handle.update(edit, description=description)
            handle.reset()
            return self._seen(commit)

    def _settled(self, edited: Edited, read: Reader) -> Edited:
        """A hook on merged values, for subclasses whose values have invariants of their own."""
        return edited

    def _keep_attempt(
        self, before: Checkpoint | None, state: Any, **fields: Unpack[StepFields]
    ) -> Checkpoint:
        """Store a failed step off the branches, under a ref of its own."""
        parents = () if before is None else (before.commit,)
        fields["branch"] = self._current
        commit = self._history.keep("attempt", state, parents, **fields)
        return self._seen(commit)

    def _head_move(self, name: str) -> tuple[list[Move], list[Any]]:
        """The ref move that stores which branch is the current one, with its objects."""
        written = TreeWriter().write(name)
        ref = self.store.ref(self._history.space, HEAD)
        before = None if ref is None else ref.target
        if before == written.root:
            return [], []
        return [Move(HEAD, before, written.root)], written.objects

    def _look_again(self) -> None:
        """Read the current branch again: an undo may have changed or moved it."""
        stored = stored_branch(self.store, self._history.space)
        names = self._history.branches()
        if stored is not None and stored in names:
            self._current = stored
        elif self._current not in names:
            self._current = MAIN
        self._handles.clear()
        self._handle()

    # The asynchronous face.

    acheckpoint = twin(checkpoint)
    aget_state = twin(get_state)
    aget = twin(get)
    ahistory = twin(history)
    afailures = twin(failures)
    aat = twin(at)
    adiff = twin(diff)
    arollback = twin(rollback)
    aundo = twin(undo)
    aredo = twin(redo)
    abranch = twin(branch)
    aswitch_branch = twin(switch_branch)
    alist_branches = twin(list_branches)
    adelete_branch = twin(delete_branch)
    amerge = twin(merge)
    acherry_pick = twin(cherry_pick)
    arevert = twin(revert)
    afork = twin(fork)
    atag = twin(tag)
    atags = twin(tags)
    adelete_tag = twin(delete_tag)
    ablame = twin(blame)
    abisect = twin(bisect)
    avisualize_tree = twin(visualize_tree)
    atree = twin(tree)
    aoperations = twin(operations)
    alast_operations = twin(last_operations)
    aexport_session = twin(export_session)

    async def asafe_execute(
        self,
        func: Callable[[Any], Any],
        state: Any,
        description: str = "",
        max_retries: int = 3,
        fallback: Callable[[Any], Any] | None = None,
    ) -> tuple[Any, Checkpoint]:
        """The asynchronous twin of `safe_execute`; a plain function runs on a thread."""
        return await self._execution.run_async(func, state, description, max_retries, fallback)


def _as_path(path: Path | str) -> Path:
    return (path,) if isinstance(path, str) else path


def check_agent(name: str) -> str:
    """The name, unless it would lead elsewhere if somebody took it for a path.

    Raises `InvalidName`. A store would keep such a name apart, but exports, logs and
    other programs may not be so careful.
    """
    parts = _SEPARATORS.split(name) if isinstance(name, str) else []
    if len(parts) > 1 and ("" in (parts[0], parts[-1]) or {".", ".."} & set(parts)):
        raise InvalidName(
            f"{name!r:.80} looks like a path; the name of an agent is none. Slashes may stand "
            "between parts, as in 'team/agent'."
        )
    return name


def refuse(cls: type[Timeline], why: str, verbs: Iterable[tuple[str, str, str]]) -> None:
    """Have methods of a class raise `InvalidInput`.

    Each verb is the name of a method, what it would do, and what to do instead. In `why`,
    `{name}` is the timeline's.
    """
    for method, verb, instead in verbs:
        setattr(cls, method, _refusal(why, verb, instead))


def _refusal(why: str, verb: str, instead: str) -> Callable[..., NoReturn]:
    def refused(self: Timeline, *arguments: Any, **options: Any) -> NoReturn:
        said = why.format(name=f"{self.name!r:.80}")
        raise InvalidInput(f"{said}: {verb} is not done here. {instead}")

    refused.__doc__ = f"Refused. {instead}"
    return refused
