"""An agent works, fails, recovers, goes back, branches and merges.

Run it with `make demo`. It leaves its store in `.holdfast`, in the current folder or in the
folder that is named, and says how to look at it. `holdfast demo` tells the same story; it is
written down in `src/holdfast/cli/_story.py`.
"""

from __future__ import annotations

import sys

from holdfast.cli import tell_story

if __name__ == "__main__":
    tell_story(*sys.argv[1:2])
