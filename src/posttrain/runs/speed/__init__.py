"""Benchmarks: how fast the package is on this machine, as a share of the machine's limits.

A parent (`benchmark`) starts children (`worker`) that stay alive and alternate, A B A B, so that other load on the
machine affects all of them alike. Each child measures its own wall time. `sizes` has the models, `workloads` the
requests; `benchmarks/peers` measures other programs in the same rounds. Figures: docs/performance.md.
"""
