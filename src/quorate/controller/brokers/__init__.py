"""The soft state that the controller keeps about brokers; none of it is written to the log.

  sessions          a session for each broker registration, extended by heartbeats
  connections       the open connections of each broker
  failure_detector  decides from connections and probes that the process of a broker has ended
  probes            connects to the listeners of brokers for the failure detector

Only the controller itself imports this package.
"""
