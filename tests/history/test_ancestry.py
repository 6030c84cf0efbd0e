"""Where commits come from, compared with the plainest way to find out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.history.merge import ancestors, first_parents, is_ancestor, merge_bases
from ropewalk.tree import Commit, ObjectId

ROOT = b"r" * 32


def name(number: int) -> ObjectId:
    # Another order than that of making.
    return (number * 7919 % 251).to_bytes(32, "big")


@st.composite
def graphs(draw: st.DrawFn) -> list[Commit]:
    """Commits, each with parents among those before it; times say nothing."""
    made: list[Commit] = []
    for number in range(draw(st.integers(1, 14))):
        parents = draw(
            st.lists(st.sampled_from(made), max_size=3, unique_by=lambda one: one.id)
            if made
            else st.just([])
        )
        made.append(
            Commit(
                name(number),
                ROOT,
                tuple(one.id for one in parents),
                1 + max((one.generation for one in parents), default=0),
                time=draw(st.integers(0, 3)),
            )
        )
    return made


class Model:
    """The same, by following every parent."""

    def __init__(self, commits: list[Commit]) -> None:
        self.by_id = {one.id: one for one in commits}
        self.reach: dict[ObjectId, set[ObjectId]] = {}
        for one in commits:
            self.reach[one.id] = {one.id}.union(*[self.reach[id] for id in one.parents])

    def find(self, id: ObjectId) -> Commit:
        return self.by_id[id]

    def bases(self, ours: set[ObjectId], theirs: ObjectId) -> set[ObjectId]:
        common = set().union(*[self.reach[id] for id in ours]) & self.reach[theirs]
        return {
            id
            for id in common
            if not any(other != id and id in self.reach[other] for other in common)
        }


@given(graphs(), st.data())
def test_ancestors_come_each_once_and_after_their_children(
    commits: list[Commit], data: st.DataObject
) -> None:
    model = Model(commits)
    starts = data.draw(st.lists(st.sampled_from(commits), min_size=1, max_size=3))

    found = [one.id for one in ancestors([one.id for one in starts], model.find)]

    assert len(found) == len(set(found))
    assert set(found) == set().union(*[model.reach[one.id] for one in starts])
    places = {id: place for place, id in enumerate(found)}
    for id in found:
        assert all(places[parent] > places[id] for parent in model.find(id).parents)


@given(graphs(), st.data())
def test_merge_bases_are_the_common_ancestors_that_no_other_comes_from(
    commits: list[Commit], data: st.DataObject
) -> None:
    model = Model(commits)
    ours = data.draw(st.lists(st.sampled_from(commits), min_size=1, max_size=3))
    theirs = data.draw(st.sampled_from(commits))

    found = [one.id for one in merge_bases([one.id for one in ours], theirs.id, model.find)]

    assert len(found) == len(set(found))
    assert set(found) == model.bases({one.id for one in ours}, theirs.id)


@given(graphs(), st.data())
def test_an_ancestor_is_whatever_a_commit_comes_from(
    commits: list[Commit], data: st.DataObject
) -> None:
    model = Model(commits)
    old, new = data.draw(st.tuples(st.sampled_from(commits), st.sampled_from(commits)))

    assert is_ancestor(old, new, model.find) == (old.id in model.reach[new.id])


@given(graphs(), st.data())
def test_steps_follow_the_first_parents(commits: list[Commit], data: st.DataObject) -> None:
    model = Model(commits)
    start = data.draw(st.sampled_from(commits))

    found = list(first_parents(start.id, model.find))

    assert found[0] == start and found[-1].parents == ()
    for child, parent in pairwise(found):
        assert child.parents[0] == parent.id
