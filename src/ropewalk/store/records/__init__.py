"""The record layer on cells: values by key, which change by compare-and-set."""
