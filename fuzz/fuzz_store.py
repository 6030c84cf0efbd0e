"""Fuzz what reads a store's bytes: `python fuzz/fuzz_store.py [corpus] [options of libFuzzer]`."""

from __future__ import annotations

import pathlib
import sys

import atheris

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["ropewalk"]):
    from fuzz.stores import judge, store_seeds


def test_one(data: bytes) -> None:
    judge(data)


def main() -> None:
    for folder in [pathlib.Path(one) for one in sys.argv[1:] if not one.startswith("-")][:1]:
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(store_seeds()):
            (folder / f"seed-{number:03}").write_bytes(data)
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
