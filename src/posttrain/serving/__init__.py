"""The OpenAI protocol: a client for remote models, and a server for local ones.

A role whose model is an endpoint writes text, and that is all: it has no token ids, no log-probabilities and no weights
here. What asks it goes through `posttrain.engines.Writer`, which a model of our own is too.
"""
