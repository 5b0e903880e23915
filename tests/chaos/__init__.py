"""Random faults on a cluster of six processes under load, and a check of all that its clients observed.

history     what the clients observed: acknowledgements, records read, offsets, topics
checker     the properties that a history must have; no I/O
faults      the random schedule of faults, from a seed; no I/O
nemesis     injects the scheduled faults into a running cluster and waits for its recovery
cluster     the cluster: three controllers, three brokers, and questions about its state
clients     producers, a reader, members of a group, a watcher of offsets
operators   creates, configures and deletes topics, and deletes records
replicas    the batches on the disks of the brokers
samples     memory, open files and response times of each process
run         one run, and its record
__main__    the command `python -m tests.chaos`
"""
