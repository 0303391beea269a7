"""The OpenAI protocol: a client for remote models, and a server for local ones.

A role whose model is an endpoint only writes text: it has no token ids, no log-probabilities and no weights here. Code
that needs only text uses `posttrain.engines.Writer`, which local models implement too.
"""
