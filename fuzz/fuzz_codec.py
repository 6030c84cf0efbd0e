"""Fuzz the decoder: `python fuzz/fuzz_codec.py [corpus] [options of libFuzzer]`."""

from __future__ import annotations

import pathlib
import sys

import atheris

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["ropewalk"]):
    from fuzz.mutations import Mutator, judge, seeds

_SEEDS = seeds()


def test_one(data: bytes) -> None:
    judge(data)


def write_seeds(folder: pathlib.Path) -> None:
    """Start from valid encodings, so that the search begins behind the first checks."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(_SEEDS):
        (folder / f"seed-{number:02}").write_bytes(data)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the changes keep the structure, which single bytes seldom do."""
    if seed % 2:
        try:
            return Mutator(seed, _SEEDS).shake(data)[:max_size]
        except (ValueError, TypeError):
            pass
    return atheris.Mutate(data, max_size)


def main() -> None:
    folders = [pathlib.Path(one) for one in sys.argv[1:] if not one.startswith("-")]
    for folder in folders[:1]:
        write_seeds(folder)
    atheris.Setup(sys.argv, test_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
