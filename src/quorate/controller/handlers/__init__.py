"""The handlers of the controller, one module for each API.

A handler is a pure function of (view, request, context). It returns a `Result` with the records to write
and the response. The function has the name of its module; `requests.routes` finds it by this name. Handlers
whose changes can be larger than one batch have a second function, `..._in_steps`, that yields the records
in steps. The handlers of reads, which take an image instead of a view, are `describe_acls`,
`describe_cluster` and `describe_configs`.

Rules that several handlers share:

  acls               validity of ACLs, and filters
  config_changes     AlterConfigs and IncrementalAlterConfigs
  config_rules       rules between the keys of a group or a client metrics subscription
  delegation_tokens  HMAC, expiry and owners of delegation tokens
"""
