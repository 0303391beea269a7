"""Models over the OpenAI protocol: `client` asks one that somebody else serves, `server` offers one of ours.

A role whose model is an endpoint writes text, and that is all: it has no token ids, no log-probabilities and no weights
here. What asks it goes through `posttrain.engines.Writer`, which a model of our own is too.
"""
