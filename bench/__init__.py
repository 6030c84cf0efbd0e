"""Side-by-side benchmarks: Ropewalk, its peers and plain floors on the same work.

`python -m bench --help` says how to run them; `bench/README.md` says how to add to them.
"""
