"""The soft state that the active controller keeps about brokers; none of it is written to the log.

  sessions     a session for each broker registration, extended by heartbeats
  connections  the connection over which each broker sent its last heartbeat

Only the controller itself imports this package.
"""
