"""Frees large messages in pieces.

To free a message of some hundred thousand structs at once takes 100 ms, in which no other thread of the
interpreter runs. A thread that takes it apart first lets the event loop run in between.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from quorate.net import dispatch
from quorate.net.connections.output import Part
from quorate.net.connections.response_queue import encode_frame
from quorate.net.dispatch import RequestContext
from quorate.protocol.schema import Struct

PIECE = 500
"""Structs of a list that are freed at once, in a fraction of a millisecond."""

_SMALL_LIST = 8
"""Lists of up to so many elements are freed together with the struct that has them."""


def encode_and_release(context: RequestContext, messages: list[Any]) -> list[Part]:
    """Encodes the first of `messages`, which is the response or the error of a handler, and frees all of
    them. The last one is the request, which the response to an error may repeat. Called in a thread."""
    try:
        if isinstance(messages[0], BaseException):
            messages[0] = dispatch.failure(context, messages[-1], messages[0])
        return encode_frame(context, messages[0])
    finally:
        release(messages)


def release(values: list[Any]) -> None:
    """Empties `values`, and frees the messages in it as far as nothing else refers to them. Called in a
    thread.

    Whatever the rest of the program still refers to stays unchanged: a handler may keep parts of its request
    after its response. `sys.getrefcount` counts the variable and the argument, hence 2.
    """
    while values:
        value = values.pop()
        if sys.getrefcount(value) > 2:
            continue
        if isinstance(value, Struct):
            for name in _list_fields(value.__class__):
                values.append(getattr(value, name, None))
                setattr(value, name, None)
        elif type(value) is list:
            while value:
                piece = value[-PIECE:]
                del value[-PIECE:]
                _take_large_lists(piece, values)


def _take_large_lists(structs: list[Any], values: list[Any]) -> None:
    """Moves the large lists of some structs to `values`."""
    for name in _list_fields(structs[0].__class__):
        for struct in structs:
            inner = getattr(struct, name, None)
            if type(inner) is list and len(inner) > _SMALL_LIST and sys.getrefcount(struct) == 3:
                setattr(struct, name, None)
                values.append(inner)


@cache
def _list_fields(cls: type[Any]) -> tuple[str, ...]:
    return tuple(spec.name for spec in cls.fields() if spec.array) if issubclass(cls, Struct) else ()
