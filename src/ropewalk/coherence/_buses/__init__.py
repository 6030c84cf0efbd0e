"""Buses: what carries hints from one client to another."""
