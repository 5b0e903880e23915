"""What this implementation has of Kafka's security.

- client_quota: the names of the entities of client quotas
- scram: derives the keys of SCRAM credentials
- unenforced_apis: refuses ACLs, client quotas and delegation tokens, which are not enforced

The broker, the controller, the node and the tools may import these modules.
"""
