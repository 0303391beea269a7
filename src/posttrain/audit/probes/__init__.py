"""Kinds of probes, one per module, each with a function `probes` that takes a `Subject` and yields `Probe`s."""
