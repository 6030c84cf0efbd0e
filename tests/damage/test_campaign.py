"""Whatever is damaged, each question is answered rightly or with a specific error, and `check`
finds what keeps one from being answered.

What today's format does not notice is listed in `WEAK`. Each entry is a test that is expected
to fail; all other pieces of the same medium must pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from ropewalk.errors import RopewalkError
from ropewalk.store import Store
from tests.conftest import SOAK
from tests.damage.harm import KINDS, SPECIAL, Harm
from tests.damage.media import MEDIA, Impossible, Medium, media
from tests.damage.sample import QUESTIONS

CASES: Final = 1_000_000 if SOAK else 8
"""Damages of one kind to one medium."""
WEAK_CASES: Final = 150


class Weak(NamedTuple):
    """Pieces of which damage is not noticed."""

    medium: str
    kinds: str
    pieces: str
    """A pattern of their names."""
    reason: str
    seed: int = 1
    """Chooses places where it is not noticed, if most are."""


WEAK: Final = (
    Weak("sqlite, killed writer", "cuts", "-wal", "a log of SQLite that was cut has a torn end"),
    Weak("sqlite, killed writer", "commits", "-wal", "nothing says that its transaction ended"),
    Weak("files", "cuts", "/log$", "a log that was cut has a torn end"),
    Weak("files", "folders", "/log$", "nothing but its folder says that there is a space"),
)


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


def is_weak(weak: Weak, medium: str, kind: str, piece: str) -> bool:
    return (
        weak.medium == medium and kind in weak.kinds.split() and bool(re.search(weak.pieces, piece))
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SPECIAL])
@pytest.mark.parametrize("sound", MEDIA, indirect=True)
def test_damage_gives_no_wrong_answer(
    sound: tuple[Medium, Mapping[str, object]], kind: str, request: pytest.FixtureRequest
) -> None:
    medium, truth = sound
    name = request.node.callspec.params["sound"]
    chosen = [
        piece
        for piece in sorted(medium.pieces)
        if not any(is_weak(weak, name, kind, piece) for weak in WEAK)
    ]
    harms = KINDS[kind](medium.pieces, chosen, Random(1), SOAK)
    told = (harm for harm in harms if not medium.is_lost(harm.pieces))

    outcomes = list(islice(wrong_answers(medium, truth, told), CASES))

    found = [outcome for outcome in outcomes if outcome]
    assert not found, f"{len(found)} of {len(outcomes)}:\n" + "\n".join(found[:60])


@pytest.mark.parametrize(
    ("sound", "weak", "kind"),
    [
        pytest.param(
            weak.medium, weak, kind, id=f"{weak.medium}, {kind} of {weak.pieces}",
            marks=pytest.mark.xfail(strict=True, reason=weak.reason, raises=AssertionError),
        )
        for weak in WEAK
        for kind in weak.kinds.split()
    ],
    indirect=["sound"],
)  # fmt: skip
def test_damage_that_is_not_noticed_yet(
    sound: tuple[Medium, Mapping[str, Any]], weak: Weak, kind: str
) -> None:
    medium, truth = sound
    chosen = [piece for piece in sorted(medium.pieces) if re.search(weak.pieces, piece)]

    harms = KINDS[kind](medium.pieces, chosen, Random(weak.seed), False)

    for outcome in islice(wrong_answers(medium, truth, harms), WEAK_CASES):
        assert not outcome
