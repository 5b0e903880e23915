"""Explores every state that a small quorum of real Raft cores can reach, breadth first.

A *world* is one global state: the states of all replicas, the messages in flight, the history that the
invariants need and what is left of the bounds.

bounds              the numbers of replicas, epochs, entries, crashes, late messages, and options
search              the breadth-first search, and the shortest trace to a violation
visited             the worlds that a search has visited, as they are or as hashes
state_space         the actions that are enabled in a world, and the worlds to which they lead
symmetry            symmetry reduction: worlds that differ in the names of nodes alone count as one
transition_checker  the invariants of `simulation.checker`, checked for each transition
replica_table       the transition function of a replica, memoised: states and outcomes by number
replica             a replica whose timers, fsyncs and crashes are chosen by the explorer
in_flight           messages in flight, by number
canonical_form      what makes two replicas equal
serialization       replicas as bytes, and back, as themselves or as another node

`python -m simulation.explorer` is the command. Other packages import `search` and `bounds`.
"""
