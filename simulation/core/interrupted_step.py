"""The effects of a step that a crash interrupts."""

from __future__ import annotations

from quorate.raft.core.effects import Effects


def first_duties(effects: Effects, duties: int) -> Effects:
    """Returns the effects that are performed before the crash.

    The effects are, in order: requests sent, the state saved, the log truncated, records written,
    responses sent. Of the requests the first one is always sent.
    """
    some = Effects(send=effects.send if duties > 0 else effects.send[:1])
    if duties > 1:
        some.save_quorum_state, some.save_may_wait = effects.save_quorum_state, effects.save_may_wait
    if duties > 2:
        some.truncate_to, some.role = effects.truncate_to, effects.role
    if duties > 3:
        some.append_fetched, some.append_control = effects.append_fetched, effects.append_control
    if duties > 4:
        some.answers = effects.answers
    return some
