"""The console consumer and producer, which use librdkafka.

    console_consumer       kafka-console-consumer: its options and properties
    receiver               reads records and prints them
    message_format         formats a record for the output
    console_producer       kafka-console-producer: its options and properties
    line_reader            parses a line into key, value and headers
    sender                 reads lines and sends them as records
    librdkafka_client      creates librdkafka's clients, reports their errors, waits for topics
    librdkafka_properties  translates properties of Java's clients to librdkafka's

Nothing else imports this package. `receiver`, `sender` and `librdkafka_client` import librdkafka. The modules
of the options import them lazily.
"""
