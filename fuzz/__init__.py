"""Fuzzers. `make soak` runs every `fuzz_*.py`; `make test` runs a seeded slice."""
