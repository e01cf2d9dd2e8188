"""Benchmarks: ratios measured in one run, with accuracy beside time."""
