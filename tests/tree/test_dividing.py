"""What keys take of nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.codec import Codec, Registry, encode
from ropewalk.tree import Kind, Object, TreeWriter
from ropewalk.tree.read import Share, divide


def written(value: object, codec: Codec | None = None) -> dict[bytes, Object]:
    made = TreeWriter(codec).write(value)
    return {made.root: next(one for one in made.objects if one.id == made.root)} | {
        one.id: one for one in made.objects
    }


def test_a_small_dict_is_divided_by_its_encoded_parts() -> None:
    (root,) = written({"b": [1, 2], "a": "text", 3: None}).values()

    division = divide(root)

    shares = {share.key: share.size for share in division.shares}
    assert division.keyed and division.below == []
    assert shares == {
        encode("a"): len(encode("a") + encode("text")),
        encode("b"): len(encode("b") + encode([1, 2])),
        encode(3): len(encode(3) + encode(None)),
    }


def test_fields_of_a_class_are_keys() -> None:
    @dataclass
    class State:
        task: str
        done: bool

    registry = Registry()
    registry.register(State, name="State")
    (root,) = written(State("go", True), Codec(registry)).values()

    assert {share.key for share in divide(root).shares} == {encode("task"), encode("done")}


def test_the_nodes_of_a_large_dict_are_divided_and_what_leads_to_them_is_not() -> None:
    state = {f"key {at}": f"text {at}" * 5 for at in reversed(range(3000))}
    objects = written(state)
    root = next(iter(objects.values()))
    keys: list[bytes | None] = []
    pending = [root]
    while pending:
        division = divide(pending.pop())
        assert division.keyed
        pending += [objects[id] for id in division.below]
        keys += [share.key for share in division.shares if share.key is not None]

    assert sorted(filter(None, keys)) == sorted(encode(key) for key in state)
    assert root.kind == Kind.ROOT
    # The order of the keys is not the sorted one, and a part of its own.
    assert [share.key for share in divide(root).shares] == [None]
    assert divide(root).shares[0].links


def test_what_has_no_keys_is_one_share() -> None:
    values: list[object] = [[1, {"a": 2}], "text", {}, ("x",)]
    for value in values:
        (root,) = written(value).values()

        (share,) = divide(root).shares

        assert share == Share(None, 1, [])


def test_a_link_belongs_to_the_key_that_it_stands_under() -> None:
    objects = written({"large": "x" * 50_000, "small": 1})
    root = next(iter(objects.values()))

    links = {share.key: share.links for share in divide(root).shares}

    assert links[encode("small")] == []
    assert len(links[encode("large")]) == 1 and links[encode("large")][0] in objects
