"""Changes of partitions, as pure functions that handlers and periodic tasks share.

partition_change  the next state of one partition: election, ISR, ELR, reassignment
broker_changes    the partition changes when a broker comes or goes
encoded_records   changes of partitions that exist as bytes
fencing           fences brokers whose session has expired
new_partitions    assignments and records of new partitions
placement         chooses the brokers of new partitions
directories       reserved and online log directories
"""
