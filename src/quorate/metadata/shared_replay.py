"""Two state machines of one process on one log: what one has replayed, the other takes over.

The log is the same for both, so the image after an offset below the high watermark is too. A combined
node decodes and replays its metadata once: the controller hands on each committed image, and the
broker's listener, which is told of the same batches right after it, finds its next image made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.loader import Batch, ImageSteps, apply_committed, apply_steps, load_snapshot, load_steps

AT_ONCE_RECORDS = 256
"""So many are replayed at once; more are worth steps."""


class SharedReplay:
    """Holds the newest committed image that any of its users has made."""

    __slots__ = ("_latest", "_loading")

    def __init__(self) -> None:
        self._latest: MetadataImage = EMPTY
        self._loading: int | None = None  # the end of the snapshot that one of the users is loading in steps

    def offer(self, image: MetadataImage) -> None:
        """An image of committed records alone, standing at the end of a batch."""
        if image.provenance.offset > self._latest.provenance.offset:
            self._latest = image

    def apply(self, image: MetadataImage, batches: Sequence[Batch], *, ahead: bool = False) -> MetadataImage:
        """The image after these committed batches, of which `image` may contain the first ones already.

        ahead: a newer one will do as well; it contains batches that are still to be delivered. Errors
        as in `apply_committed`.
        """
        known, batches = self._known(image, batches, ahead)
        if known is None:
            known = apply_committed(image, batches)
            self.offer(known)
        return known

    def apply_steps(
        self, image: MetadataImage, batches: Sequence[Batch], *, ahead: bool = False
    ) -> ImageSteps:
        """The same in steps."""
        known, batches = self._known(image, batches, ahead)
        if known is None:
            known = yield from apply_steps(image, batches)
            self.offer(known)
        return known

    def _known(
        self, image: MetadataImage, batches: Sequence[Batch], ahead: bool
    ) -> tuple[MetadataImage | None, Sequence[Batch]]:
        """The image that is there already, or the batches that are still to be replayed."""
        contained = image.provenance.offset
        if batches[0].base_offset <= contained:
            batches = [batch for batch in batches if batch.last_offset > contained]
            if not batches:
                return image, batches
        last = batches[-1].last_offset
        known = self._latest.provenance.offset
        if known == last or (ahead and known > last):
            return self._latest, batches
        return None, batches

    def load(
        self, end_offset: int, epoch: int, batches: Iterable[Batch], *, ahead: bool = False
    ) -> MetadataImage:
        """The image of a snapshot below end_offset, read only if nobody has it. Errors as in
        `load_snapshot`."""
        if not self._has(end_offset, ahead):
            self.offer(after := load_snapshot(end_offset, epoch, batches))
            return after
        return self._latest

    def load_steps(
        self, end_offset: int, epoch: int, batches: Iterable[Batch], *, ahead: bool = False
    ) -> ImageSteps:
        """The same in steps. Who comes while another loads it waits for that."""
        while self._loading == end_offset:
            yield
        if self._has(end_offset, ahead):
            return self._latest
        self._loading = end_offset
        try:
            with _collections_held():
                after = yield from load_steps(end_offset, epoch, batches)
        finally:
            self._loading = None
        self.offer(after)
        return after

    def _has(self, end_offset: int, ahead: bool) -> bool:
        known = self._latest.provenance.offset
        return known == end_offset - 1 or (ahead and known >= end_offset)


def too_many_at_once(batches: Sequence[Batch]) -> bool:
    """Whether `apply_steps` is the way to take them."""
    return sum([len(batch.values) for batch in batches]) > AT_ONCE_RECORDS


@contextmanager
def _collections_held() -> Iterator[None]:
    """Nothing that is loaded becomes garbage soon: collections would only look at it, the longer the
    more there is."""
    held = gc.isenabled()
    if held:
        gc.disable()
    try:
        yield
    finally:
        if held:
            gc.freeze()
            gc.enable()
