"""The invariants of a quorum, checked against what replicas write, vote, lead and commit.

invariants  the checker, and the model of a replica
log_model   the model of a log: batches with digests of all that is before them

All other packages of the simulation import both.
"""
