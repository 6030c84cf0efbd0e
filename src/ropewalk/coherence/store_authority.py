"""The authority in a store: each artifact is a branch, each version a commit on it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.coherence.authority import (
    BRANCH,
    GRANT,
    NAME,
    ArtifactChange,
    ArtifactsMoved,
    Authority,
    Change,
    Committed,
    Sent,
    names_of,
)
from ropewalk.coherence.protocol import Content, Version
from ropewalk.errors import Conflict, MissingObjects, NotFound, RefMoved, WriteIdReused
from ropewalk.history import Commits, commit_loop, new_write_id
from ropewalk.history.commits import is_fresh
from ropewalk.store import (
    Fence,
    Lease,
    LeaseRecord,
    Move,
    Operation,
    Store,
    ref_name,
    space_name,
    split_name,
)
from ropewalk.store.watch import Position
from ropewalk.tree import (
    Commit,
    Kind,
    Object,
    ObjectId,
    Reader,
    TreeWriter,
    Written,
    load,
    make_commit,
)
from ropewalk.tree.nodes import INLINE_MAX, may_hold_links
from ropewalk.tree.writer import small_value

if TYPE_CHECKING:
    from ropewalk.timeline import Timeline

TENANT: Final = "coherence"
"""The tenant of the spaces that sets of artifacts are in."""

_PROMPTS: Final = space_name("ropewalk", "prompts")
"""The space of the key that tags in prompts are checked with, which all sets share."""
_KEY: Final = ref_name("key", "prompts")
_DELETED: Final = "deleted"
_CREATED: Final = "created"
REPLACED: Final = "replaced"
_NOTE: Final = "note"
_REMEMBERED: Final = 65536
_WRITERS: Final = 64
_PAGE: Final = 256
_NOTHING: Final = b"\xc0"
"""The encoding of None, which a deletion holds."""
_FEW: Final = 50
"""If there are so many times more artifacts than are asked for, they are asked for one by one."""
_ROUNDS: Final = 4


class _Draft(NamedTuple):
    """A version that is not in the store yet."""

    artifact: str
    commit: Commit
    objects: list[Object]
    needs: list[ObjectId]
    move: Move
    fence: Fence
    writer: TreeWriter | None
    """Of a large value."""
    written: Written | None


class StoreAuthority(Authority):
    """A set of artifacts in one space of a store."""

    def __init__(
        self,
        store: Store,
        name: str,
        codec: Codec,
        nanoseconds: Callable[[], int] = time_ns,
    ) -> None:
        self._nanoseconds = nanoseconds
        self.store, self.name = store, name
        self.space = space_name(TENANT, name)
        store.view(self.space, ref_name(BRANCH, "-"))  # The name is checked here.
        self.poll_seconds = store.poll_seconds
        self._log = store._log_of(self.space)
        self._codec = codec
        self._size = 0
        """How many artifacts there were when last looked at all."""
        self._versions: OrderedDict[bytes, Version] = OrderedDict()
        self.after_fork()

    def after_fork(self) -> None:
        """In a child of this process: locks may be held by nobody."""
        self._read = self.store.reader(self.space)
        self._commits = Commits(self.store, self.space)
        self._lock = threading.Lock()
        self._writers = _Writers(self._codec)

    # Looking.

    def newest(self, artifact: str) -> Version | None:
        """The newest version of an artifact: one small request."""
        found = self.store.ref(self.space, names_of(artifact).ref)
        if found is None:
            return None
        return self._versions.get(found.target) or self._version(found.target)

    def newest_of(self, artifacts: Iterable[str]) -> dict[str, Version | None]:
        """The newest versions of several artifacts, all at one moment."""
        names = {names_of(artifact).ref: artifact for artifact in artifacts}
        if len(names) < 2:
            return {artifact: self.newest(artifact) for artifact in names.values()}
        targets = self._resting(names) if self._size > _FEW * len(names) else None
        if targets is None:
            view = self.store.view(self.space, f"{BRANCH}/")
            self._size = len(view.refs)
            targets = {ref.name: ref.target for ref in view.refs if ref.name in names}
        self._commits.look_ahead(targets.values())
        return {
            artifact: self._version(targets[name]) if name in targets else None
            for name, artifact in names.items()
        }

    def _resting(self, names: Iterable[str]) -> dict[str, ObjectId] | None:
        """A snapshot of some refs, read one by one; None if they keep moving.

        A ref never returns to a commit that it has left, and is never deleted. So if two rounds
        of reads agree, the refs had these targets all the time between them.
        """
        last: dict[str, ObjectId] | None = None
        for _ in range(_ROUNDS):
            refs = [self.store.ref(self.space, name) for name in names]
            found = {ref.name: ref.target for ref in refs if ref is not None}
            if found == last:
                return found
            last = found
        return None

    def version(self, artifact: str, number: int) -> Version | None:
        """An older version, found by walking back."""
        found = self.newest(artifact)
        while found is not None and found.number > number:
            parents = self._commits.find(found.id).parents
            found = self._version(parents[0]) if parents else None
        return found if found is not None and found.number == number else None

    def content(self, artifact: str, version: Version) -> Content:
        """What a version holds, read from the store and decoded once."""
        root = self._commits.find(version.id).root
        (found,) = self._read([root])

        def read(ids: Sequence[ObjectId]) -> Sequence[Object]:
            return [found] if list(ids) == [root] else self._read(ids)

        return self._content(found, read)

    def contents(self, versions: Sequence[Version]) -> list[Content]:
        """What several versions hold; small values take one request together."""
        self._commits.look_ahead([version.id for version in versions])
        roots = [self._commits.find(version.id).root for version in versions]
        known = {one.id: one for one in self._read(list(dict.fromkeys(roots)))}

        def read(ids: Sequence[ObjectId]) -> Sequence[Object]:
            if all(id in known for id in ids):
                return [known[id] for id in ids]
            return self._read(ids)

        return [self._content(known[root], read) for root in roots]

    def _content(self, root: Object, read: Reader) -> Content:
        """The content of a root, decoded once. The node of a small value is its encoding."""
        if root.kind == Kind.VALUE and not may_hold_links(root.payload):
            content = Content(root.payload, self._codec)
            return content.holding(content.fresh())
        value = load(root.id, read, self._codec)
        return Content.of(value, self._codec).holding(value)

    def is_content(self, version: Version, content: Content) -> bool:
        """Whether a version holds exactly this: equal values have equal roots."""
        return content.root() == self._commits.find(version.id).root

    def names(self, prefix: str = "") -> dict[str, Version]:
        """The newest versions of all artifacts that are there, at one moment."""
        view = self.store.view(self.space, f"{BRANCH}/")
        known = self._versions
        self._commits.look_ahead([ref.target for ref in view.refs if ref.target not in known])
        found = {}
        for ref in view.refs:
            version = self._version(ref.target)
            name = self._name(ref.name, version)
            if not version.deleted and name.startswith(prefix):
                found[name] = version
        return found

    # Writing.

    def commit(
        self, changes: Sequence[Change], agent: str, action: str, sent: Sent | None = None
    ) -> Committed:
        """Make new versions: all or none."""
        if sent is None:
            sent = Sent(new_write_id(), self._nanoseconds() // 1000)
        whole = False

        def attempt() -> Committed:
            drafts = [self._draft(change, agent, sent.moment, whole) for change in changes]
            if sent.again and self._is_there(drafts[0]):
                return self._there(drafts)
            return self._landed(drafts, agent, action, sent.write_id)

        def resend(_: MissingObjects) -> None:
            nonlocal whole
            whole = True

        def earlier(error: Conflict | WriteIdReused) -> Committed | None:
            # It landed before, as the same commits, but sent with more or fewer objects.
            if isinstance(error, WriteIdReused):
                return self._found(sent.write_id)
            # It may have landed so long ago that the store no longer remembers its write id.
            if not is_fresh(sent.write_id):
                drafts = [self._draft(change, agent, sent.moment, whole) for change in changes]
                if self._is_there(drafts[0]):
                    return self._there(drafts)
            return None

        try:
            return commit_loop(attempt, resend=resend, earlier=earlier)
        except RefMoved:
            raise ArtifactsMoved(self.newest_of([change.artifact for change in changes])) from None

    def _draft(self, change: Change, agent: str, moment: int, whole: bool) -> _Draft:
        """A change as a commit, its objects and the ref move that makes it the newest."""
        artifact, expected, content, token, replaced, note = change
        names = names_of(artifact)
        before = None if expected is None else expected.id
        extension: dict[str, Any] = {_DELETED: True} if content is None else {}
        if names.branch != artifact:
            extension[NAME] = artifact
        if expected is not None and not expected.deleted:
            extension[_CREATED] = expected.created
        if replaced:
            extension[REPLACED] = True
        if note:
            extension[_NOTE] = dict(note)
        writer = written = None
        encoded = _NOTHING if content is None else content.encoded
        if len(encoded) <= INLINE_MAX:
            value = small_value(encoded)
            root, objects, needs = value.id, [value], []
        else:
            assert content is not None
            writer = self._writers.take(artifact, whole)
            written = writer.write_encoded(encoded, content.fresh)
            root, objects, needs = written.root, [*written.objects], [*written.needs]
        commit, made = make_commit(
            root,
            () if before is None else (before,),
            generation=1 if expected is None else expected.number + 1,
            time=moment,
            agent=agent,
            branch=artifact,
            extension=extension,
        )
        objects.append(made)
        needs += commit.parents
        move, fence = Move(names.ref, before, commit.id), Fence(names.lease, token)
        return _Draft(artifact, commit, objects, needs, move, fence, writer, written)

    def _landed(
        self, drafts: Sequence[_Draft], agent: str, action: str, write_id: str
    ) -> Committed:
        """Send drafts as one write; the versions that they are then."""
        objects: list[Object] = []
        needs: list[ObjectId] = []
        moves, fences, numbers, commits = [], [], [], []
        for one in drafts:
            objects += one.objects
            needs += one.needs
            moves.append(one.move)
            fences.append(one.fence)
            numbers.append(str(one.commit.generation))
            commits.append(one.commit)
        operation = self._commits.land(
            objects,
            needs,
            moves,
            {"action": action, "agent": agent, "versions": ",".join(numbers)},
            write_id=write_id,
            fence=fences,
            step=commits[0],
        )
        self._commits.remember(commits)
        made = {}
        for one in drafts:
            made[one.artifact] = self._remember(one.commit)
            if one.writer is not None and one.written is not None:
                self._writers.put_back(one.artifact, one.writer, one.written)
        return Committed(made, operation.sequence)

    def _is_there(self, draft: _Draft) -> bool:
        """Whether a commit is in its artifact's history, however long ago it was made."""
        found = self.version(draft.artifact, draft.commit.generation)
        return found is not None and found.id == draft.commit.id

    def _there(self, drafts: Sequence[_Draft]) -> Committed:
        """Drafts that were made before; their operation, long announced, need not be found."""
        return Committed({one.artifact: self._version(one.commit.id) for one in drafts}, 0)

    def _found(self, write_id: str) -> Committed:
        """The versions of an earlier commit with this write id, whose answer was lost."""
        last = self.sequence()
        for operation in self.store.operations(self.space, max(0, last - _PAGE), _PAGE):
            if operation.write_id == write_id:
                return Committed(dict(self._versions_of(operation)), operation.sequence)
        raise Conflict(f"a commit to {self.space!r} was made, and is too old to be found")

    # What happens.

    def sequence(self) -> int:
        """The number of the last operation."""
        return self.store.view(self.space, ref_name(BRANCH, "-")).sequence

    def changes(self, after: Position) -> tuple[list[tuple[str, Version]], Position]:
        """Some of the versions after an operation, and the position up to which they reach.

        Raises `Rewound` if there is no such operation any more.
        """
        operations, position = self._log.after(after)
        return [change for one in operations for change in self._versions_of(one)], position

    def looking(self, after: int) -> Callable[[], tuple[list[ArtifactChange], int]]:
        """Look at the log of the space, from an operation on."""
        position = Position(after)

        def look() -> tuple[list[ArtifactChange], int]:
            nonlocal position
            operations, position = self._log.after(position)
            found = [
                ArtifactChange(artifact, one.number, one.agent, operation.sequence, one.deleted)
                for operation in operations
                for artifact, one in self._versions_of(operation)
            ]
            return found, position.sequence

        return look

    def waking(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `wake` when there may be changes."""
        return self.store._waking(self.space, wake)

    def _versions_of(self, operation: Operation) -> Iterator[tuple[str, Version]]:
        for move in operation.moves:
            if move.target is None or not move.name.startswith(f"{BRANCH}/"):
                continue
            try:
                version = self._version(move.target)
            except NotFound:
                continue  # Collected: there are newer ones.
            yield self._name(move.name, version), version

    def timeline(self, artifact: str) -> Timeline:
        """The history of an artifact, to look at."""
        from ropewalk.coherence.history import ArtifactTimeline

        return ArtifactTimeline(self.name, artifact, self.store, self._codec)

    def prompt_key(self) -> bytes:
        """The key that is in the store; whoever comes first makes it."""
        found = self.store.ref(_PROMPTS, _KEY)
        if found is None:
            made = small_value(self._codec.encode(os.urandom(32)))
            try:
                self.store.commit(_PROMPTS, [made], [], [Move(_KEY, None, made.id)])
            except RefMoved:
                return self.prompt_key()
            found = self.store.ref(_PROMPTS, _KEY)
            assert found is not None
        key = load(found.target, self.store.reader(_PROMPTS), self._codec)
        assert isinstance(key, bytes)
        return key

    # Grants.

    def acquire(self, artifact: str, holder: str, duration: float) -> Lease:
        """Take the grant of an artifact."""
        return self.store.acquire(self.space, names_of(artifact).lease, holder, duration)

    def renew(self, lease: Lease) -> Lease:
        """Begin a grant's time again."""
        return self.store.renew(lease)

    def release(self, lease: Lease) -> bool:
        """Give a grant back."""
        return self.store.release(lease)

    def seize(self, record: LeaseRecord, holder: str, duration: float) -> Lease | None:
        """Take a grant although its holder beats."""
        return self.store.seize(self.space, record, holder, duration)

    def leases(self) -> list[LeaseRecord]:
        """The grants that are held."""
        return self.store.leases(self.space, f"{GRANT}/")

    def lease_name(self, artifact: str) -> str:
        """The name of the lease that is the grant of an artifact."""
        return names_of(artifact).lease

    def leased(self, record: LeaseRecord) -> str | None:
        """The artifact that a lease is the grant of."""
        branch = split_name(record.name)[1]
        if not branch.startswith("~"):
            return branch
        found = self.store.ref(self.space, ref_name(BRANCH, branch))
        return None if found is None else self._name(found.name, self._version(found.target))

    # Names.

    def _name(self, ref: str, version: Version) -> str:
        branch = split_name(ref)[1]
        if not branch.startswith("~"):
            return branch
        return str(self._commits.find(version.id).extension.get(NAME, branch))

    def _version(self, id: ObjectId) -> Version:
        found = self._versions.get(id)
        return self._remember(self._commits.find(id)) if found is None else found

    def _remember(self, commit: Commit) -> Version:
        extension = commit.extension
        deleted, created = bool(extension.get(_DELETED)), extension.get(_CREATED)
        id, number = commit.id, commit.generation
        note = extension.get(_NOTE)
        made = Version(number, id, commit.agent, commit.time, deleted, None, created, note)
        with self._lock:
            made = self._versions.setdefault(id, made)
            while len(self._versions) > _REMEMBERED:
                self._versions.popitem(last=False)
        return made


class _Writers:
    """What turns large contents into objects: only what changed.

    A small value is written whole each time. The writer of a large one is kept once its
    version is in the store, and goes on from there. If others wrote since, what it takes for
    known may be missing: then the store says so, and everything is sent.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, TreeWriter] = OrderedDict()

    def take(self, artifact: str, whole: bool) -> TreeWriter:
        """A writer for an artifact, which is nobody else's until it is put back."""
        with self._lock:
            found = self._kept.pop(artifact, None)
        return TreeWriter(self._codec) if found is None or whole else found

    def put_back(self, artifact: str, writer: TreeWriter, written: Written) -> None:
        """What was written is in the store."""
        writer.accept(written)
        with self._lock:
            self._kept[artifact] = writer
            while len(self._kept) > _WRITERS:
                self._kept.popitem(last=False)
