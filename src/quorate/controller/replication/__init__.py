"""What happens to partitions: leader election and ISR changes, placement, brokers that come and go,
directories."""
