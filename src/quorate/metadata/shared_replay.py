"""Shares images between the controller and the broker of one process, so that the metadata is replayed
only once.

Both follow the same log, so the image at an offset below the high watermark is the same for both. On a
combined node the controller offers each committed image. The broker's listener receives the same batches
right after it, and finds its next image already made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.loader import Batch, ImageSteps, apply_committed, apply_steps, load_snapshot, load_steps

AT_ONCE_RECORDS = 256
"""The largest number of records that are replayed at once. More records are replayed in steps."""


class SharedReplay:
    """The newest committed image that one of its users has made."""

    __slots__ = ("_latest", "_loading")

    def __init__(self) -> None:
        self._latest: MetadataImage = EMPTY
        self._loading: int | None = None  # the end offset of a snapshot that is being loaded in steps

    def offer(self, image: MetadataImage) -> None:
        """Offers an image that has only committed records and ends at the end of a batch."""
        if image.provenance.offset > self._latest.provenance.offset:
            self._latest = image

    def apply(self, image: MetadataImage, batches: Sequence[Batch], *, ahead: bool = False) -> MetadataImage:
        """The image after these committed batches. `image` may already contain the first ones.

        `ahead` allows a newer image, which contains batches that are not delivered yet. Raises
        MetadataError as `apply_committed` does.
        """
        known, batches = self._known(image, batches, ahead)
        if known is None:
            known = apply_committed(image, batches)
            self.offer(known)
        return known

    def apply_steps(
        self, image: MetadataImage, batches: Sequence[Batch], *, ahead: bool = False
    ) -> ImageSteps:
        """Does the same as `apply` in steps."""
        known, batches = self._known(image, batches, ahead)
        if known is None:
            known = yield from apply_steps(image, batches)
            self.offer(known)
        return known

    def _known(
        self, image: MetadataImage, batches: Sequence[Batch], ahead: bool
    ) -> tuple[MetadataImage | None, Sequence[Batch]]:
        """The image if it was already made, and the batches that remain to be replayed otherwise."""
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
        """The image of a snapshot below `end_offset`. The batches are read only if no user has made the
        image. Raises MetadataError as `load_snapshot` does."""
        if not self._has(end_offset, ahead):
            self.offer(after := load_snapshot(end_offset, epoch, batches))
            return after
        return self._latest

    def load_steps(
        self, end_offset: int, epoch: int, batches: Iterable[Batch], *, ahead: bool = False
    ) -> ImageSteps:
        """Does the same as `load` in steps. If another user is loading the same snapshot, this waits for
        its image."""
        while self._loading == end_offset:
            yield
        if self._has(end_offset, ahead):
            return self._latest
        self._loading = end_offset
        try:
            with _gc_paused():
                after = yield from load_steps(end_offset, epoch, batches)
        finally:
            self._loading = None
        self.offer(after)
        return after

    def _has(self, end_offset: int, ahead: bool) -> bool:
        """Whether the latest image serves as the image of a snapshot below `end_offset`."""
        known = self._latest.provenance.offset
        return known == end_offset - 1 or (ahead and known >= end_offset)


def too_many_at_once(batches: Sequence[Batch]) -> bool:
    """Whether these batches should be replayed by `apply_steps`."""
    return sum([len(batch.values) for batch in batches]) > AT_ONCE_RECORDS


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pauses garbage collection. Nothing that is loaded becomes garbage soon, and each collection would
    visit all of it."""
    held = gc.isenabled()
    if held:
        gc.disable()
    try:
        yield
    finally:
        if held:
            gc.freeze()
            gc.enable()
