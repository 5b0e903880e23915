"""A cluster in one folder of this machine.

- cluster: its nodes, their directories and configurations
- processes: starts and stops their processes

`quorate up` and `quorate.testing` import these modules.
"""
