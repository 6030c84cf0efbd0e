"""An agent works, fails, recovers, goes back, branches and merges.

Run it with `make demo`. It leaves its store in `.ropewalk`, in the current folder or in the
folder that is named, and says how to look at it. `ropewalk demo` tells the same story; it is
written down in `src/ropewalk/cli/demo.py`.
"""

from __future__ import annotations

import sys

from ropewalk.cli import tell_story

if __name__ == "__main__":
    tell_story(*sys.argv[1:2])
