"""Plans of placements, without torch and without a machine: what runs where, how long a step takes, what memory.

calls.py       calls of models, their candidates, what a plan costs (an event simulation)
search.py      the best plan: by trying all, or by Metropolis
profiles.py    calls and their times as JSON
accelerators.py  calls of models on named accelerators, from their data sheets
memory.py      memory of overlapping meshes
shards.py      which process holds which shard for training and for generation, and what moves between
streams.py     schedules over many steps: alternating, lagged, streaming with a quota
"""
