"""Turns the future of a coordinator's step into the response of a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorate.broker.coordinators.context import Answer
from quorate.protocol.errors import KafkaError


def respond(answer: Answer, convert: Callable[[Any], Any] | None, failed: Callable[[KafkaError], Any]) -> Any:
    """Returns the response if the step is done, else a coroutine for it. Most steps are done at once, and
    then no task is needed. `convert` changes the value of the step, `failed` makes the response to an
    error."""
    if answer.done():
        error = answer.exception()
        if error is None:
            return answer.result() if convert is None else convert(answer.result())
        if isinstance(error, KafkaError):
            return failed(error)
        raise error

    async def later() -> Any:
        try:
            value = await answer
        except KafkaError as error:
            return failed(error)
        return value if convert is None else convert(value)

    return later()
