"""What this implementation has of Kafka's security.

- scram: derives the keys of SCRAM credentials
- unenforced_apis: refuses ACLs, client quotas and delegation tokens, which are not enforced

The broker, the controller and the node may import these modules.
"""
