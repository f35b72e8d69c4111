"""Which parallelism the collectives of a job belong to, and what it costs.

Recognised by the kinds of collectives of a process group and the passes that they are in. What
could be two things is not named.
"""
