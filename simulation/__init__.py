"""Worlds for tests: simulated clock, network and disks around the real Raft; an explorer; transcripts. No room imports this."""
