"""Translates between Kafka's messages and those of the core (`quorate.raft.core.messages`).

- `requests`: requests that this node receives and sends.
- `replies`: responses that this node sends and receives.
- `partition`: what both share.

Topic and partition are checked here. A request for another partition than that of the metadata log is
answered without the core.
"""
