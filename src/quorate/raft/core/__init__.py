"""The Raft state machine: pure. It reads no clock, does no I/O and draws no random number; events go
in, effects come out."""
