"""Benchmarks: how fast the package is on this machine, as a share of the machine's limits.

A parent (`benchmark`) starts children (`worker`) that stay alive and take turns, A B A B, so that whatever else the
machine does meets all of them alike. Each child measures its own wall time. `sizes` says what is computed, `workloads`
what is asked for; `benchmarks/peers` puts other programs into the same turns. Figures: docs/performance.md.
"""
