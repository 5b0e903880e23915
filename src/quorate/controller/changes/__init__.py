"""What becomes of a change that a handler decides: its records are written, audited and committed.

  batched_change   changes that a handler does not make in one call or one batch
  record_versions  the version in which each record is written
  attribution      the record of a change that says who or what caused it
  audit            the audit log: a line for each change
  purgatory        responses that wait for their records to be committed

The other modules of the controller import these modules.
"""
