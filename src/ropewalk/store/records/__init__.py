"""The record layer on cells: values by key that change by compare-and-set."""
