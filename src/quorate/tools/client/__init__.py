"""Parts that the tools share which talk to a running cluster.

    options       common options, client properties, filters of topic names
    admin_client  connection options and the admin client that they describe

The other packages of tools import both. `options` does without the admin client, which takes a tenth of a
second to import: the console tools need it only where a connection fails.
"""
