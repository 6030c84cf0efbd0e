"""Grants: leases of artifacts, renewed while their holders live, and ended when they do not."""
