"""Where values are in a bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.store import space_name
from ropewalk.store.records.cells import KNOWN, PACKS
from ropewalk.store.records.space import part_key, space_key
from ropewalk.store.s3.cells import key_of, place_of


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_each_value_has_a_place_of_its_own_and_is_found_by_it(tenant: str, name: str) -> None:
    try:
        space = space_name(tenant, name)
    except ValueError:
        return
    keys = [space_key(space), KNOWN + space, part_key(space, "0123456789abcdef"), PACKS + "01"]

    places = [place_of(key) for key in keys]

    assert [key_of(place) for place in places] == keys
    assert len(set(places)) == len(keys)
    assert all(len(part) <= 255 for place in places for part in place.split("/"))


def test_no_place_is_a_folder_of_another() -> None:
    names = ["a", "a" * 119, "a" * 120, "a" * 121, "a" * 250, "a" * 120 + "b"]
    spaces = [space_name("t", name) for name in names]
    places = [place_of(space_key(space)) for space in spaces]
    places += [place_of(part_key(space, "0123456789abcdef")) for space in spaces]

    assert len(set(places)) == 2 * len(names)
    assert not any(one != two and two.startswith(f"{one}/") for one in places for two in places)
