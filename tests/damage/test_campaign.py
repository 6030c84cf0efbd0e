"""Whatever is damaged, each question is answered rightly or with a specific error, and `check`
finds what keeps one from being answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final

import pytest

from ropewalk.errors import RopewalkError
from ropewalk.store import Store
from tests.conftest import SOAK
from tests.damage.harm import KINDS, SPECIAL, Harm
from tests.damage.media import MEDIA, Impossible, Medium, media
from tests.damage.sample import QUESTIONS

CASES: Final = 1_000_000 if SOAK else 8
"""Damages of one kind to one medium."""
TORN_CASES: Final = 10_000 if SOAK else 40


TORN: Final = {"sqlite, killed writer": ("cuts", "commits")}
"""Damage that cannot be told from what a power loss leaves, see docs/design/029."""


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, tuple[Medium, Mapping[str, object]]]]:
    """The media that were made, with what each answers as long as it is sound."""
    found: dict[str, tuple[Medium, Mapping[str, object]]] = {}
    yield found
    for medium, _ in found.values():
        medium.close()


@pytest.fixture
def sound(
    request: pytest.FixtureRequest,
    made: dict[str, tuple[Medium, Mapping[str, object]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Medium, Mapping[str, object]]:
    name = request.param
    if name not in made:
        medium = media(name, tmp_path_factory.mktemp("medium"), request.getfixturevalue)
        medium.expect_small()
        with medium.opened({}) as store:
            truth = ask(store)
            assert store.check(read_data=True).ok
        assert not [answer for answer in truth.values() if isinstance(answer, Exception)]
        made[name] = medium, truth
    return made[name]


def ask(store: Store) -> dict[str, object]:
    """The answers to all questions; an error of ours is one."""
    answers: dict[str, object] = {}
    for name, question in QUESTIONS.items():
        try:
            answers[name] = question(store)
        except RopewalkError as error:
            answers[name] = error
    return answers


def judge(medium: Medium, harm: Harm, truth: Mapping[str, object]) -> str | None:
    """What is wrong with what a damaged store answers; None if nothing is."""
    try:
        with medium.opened(harm.pieces) as store:
            answers = ask(store)
            report = store.check(read_data=True)
    except (RopewalkError, Impossible):
        return None  # It cannot be opened, and says why.
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{harm.note}: raised {error!r:.300}"
    failed = [name for name, answer in answers.items() if isinstance(answer, RopewalkError)]
    wrong = [name for name in answers if name not in failed and answers[name] != truth[name]]
    if wrong:
        return f"{harm.note}: answered wrongly {wrong}, and check found {report.problems[:1]}"
    if failed and report.ok:
        return f"{harm.note}: check found nothing, but {failed[0]} was {answers[failed[0]]!r:.300}"
    return None


def wrong_answers(
    medium: Medium, truth: Mapping[str, object], harms: Iterable[Harm]
) -> Iterator[str]:
    """What goes wrong with each damage."""
    for harm in harms:
        yield judge(medium, harm, truth) or ""


def cases() -> Iterator[tuple[str, str]]:
    """Each medium, with each kind of damage that it is judged by."""
    for medium in MEDIA:
        for kind in KINDS:
            has_folders = kind == "folders" and medium in ("files", "packed files")
            if (kind not in SPECIAL or has_folders) and kind not in TORN.get(medium, ()):
                yield medium, kind


@pytest.mark.parametrize(("sound", "kind"), list(cases()), indirect=["sound"])
def test_damage_gives_no_wrong_answer(
    sound: tuple[Medium, Mapping[str, object]], kind: str
) -> None:
    medium, truth = sound
    harms = KINDS[kind](medium.pieces, sorted(medium.pieces), Random(1), SOAK)
    told = (harm for harm in harms if not medium.is_lost(harm.pieces))

    outcomes = list(islice(wrong_answers(medium, truth, told), CASES))

    found = [outcome for outcome in outcomes if outcome]
    assert not found, f"{len(found)} of {len(outcomes)}:\n" + "\n".join(found[:60])


@pytest.mark.parametrize(
    ("sound", "kind"),
    [(medium, kind) for medium in TORN for kind in TORN[medium]],
    indirect=["sound"],
)
def test_what_looks_like_a_torn_end_leaves_the_store_as_it_was_before(
    sound: tuple[Medium, Mapping[str, Any]], kind: str
) -> None:
    medium, truth = sound
    harms = KINDS[kind](medium.pieces, sorted(medium.pieces), Random(1), SOAK)

    for harm in islice(harms, TORN_CASES):
        try:
            with medium.opened(harm.pieces) as store:
                report = store.check(read_data=True)
                found = {space: store.operations(space) for space in store.spaces()}
        except RopewalkError:
            continue  # That is told.

        assert report.ok, harm.note
        for space, operations in found.items():
            assert operations == truth["operations"][space][: len(operations)], harm.note
