"""One kind of probe a module, each with a function `probes` from a `Subject` to its `Probe`s."""
