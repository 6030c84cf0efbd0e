"""`python -m ropewalk` is the command line."""

from __future__ import annotations

from ropewalk.cli import main

if __name__ == "__main__":
    main()
