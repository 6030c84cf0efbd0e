"""The workloads: one module each, with its `SCENARIO`."""
