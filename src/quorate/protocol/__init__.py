"""The Kafka protocol: messages and their codecs.

    schema           the notation in which messages are declared, and their base classes
    fields           types and declarations of fields
    compiler/        compiles declarations to encoders and decoders
    primitives       readers and writers of single values and arrays
    messages/        the declarations, one module for each API
    api              the registry of the APIs, and the framing of requests and responses
    headers          the headers of requests and responses
    errors           error codes and exceptions
    error_response   the response to a request that failed
    json             messages as JSON
    encoded          messages that are encoded once and sent many times
    file_region      ranges of files that are sent without a copy
    page_cache       checks whether bytes of a file are in the page cache
    uuids            uuids and their text
    metadata_partition  the partition that holds the metadata
    config_resource  the types of resources that have configurations
    our_tags         the tagged fields that Apache Kafka does not have

All other packages may import these modules. This package imports no other one.
"""
