"""Two state machines of one process on one log: what one has replayed, the other takes over.

The log is the same for both, so the image after an offset below the high watermark is too. A combined node decodes and
replays its metadata once: the controller hands on each committed image, and the broker's listener, which is told of the
same batches right after it, finds its next image made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quorate.metadata.image import EMPTY, MetadataImage
from quorate.metadata.loader import Batch, apply_committed, load_snapshot


class SharedReplay:
    """Holds the newest committed image that any of its users has made."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: MetadataImage = EMPTY

    def offer(self, image: MetadataImage) -> None:
        """An image of committed records alone, standing at the end of a batch."""
        if image.provenance.offset > self._latest.provenance.offset:
            self._latest = image

    def apply(self, image: MetadataImage, batches: Sequence[Batch], *, ahead: bool = False) -> MetadataImage:
        """The image after these committed batches, of which `image` may contain the first ones already.

        ahead: a newer one will do as well; it contains batches that are still to be delivered. Errors as in `apply_committed`.
        """
        contained = image.provenance.offset
        if batches[0].base_offset <= contained:
            batches = [batch for batch in batches if batch.last_offset > contained]
            if not batches:
                return image
        last = batches[-1].last_offset
        known = self._latest.provenance.offset
        if known == last or (ahead and known > last):
            return self._latest
        after = apply_committed(image, batches)
        self.offer(after)
        return after

    def load(self, end_offset: int, epoch: int, batches: Iterable[Batch], *, ahead: bool = False) -> MetadataImage:
        """The image of a snapshot below end_offset, read only if nobody has it. Errors as in `load_snapshot`."""
        known = self._latest.provenance.offset
        if known == end_offset - 1 or (ahead and known >= end_offset):
            return self._latest
        after = load_snapshot(end_offset, epoch, batches)
        self.offer(after)
        return after
