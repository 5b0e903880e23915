"""Rates over the last windows of time, as Kafka's quotas measure them.

Pure: the time is an argument, in monotonic seconds.
"""

from __future__ import annotations

from quorate.dataclass import dataclass


@dataclass(slots=True)
class _Sample:
    """What was recorded in one window, which began at `start`. `last` is the time of the last record."""

    start: float
    last: float
    value: int = 0


class SampledRate:
    """A rate over the last `samples` windows of `window_s` seconds (`SimpleRate` over `SampledStat` in
    Kafka). It is the sum of the samples, divided by the time since the oldest one started, which counts as
    one window at least. A sample expires when nothing was added to it for all the windows."""

    __slots__ = ("_current", "_max_samples", "_samples", "_window_s")

    def __init__(self, samples: int, window_s: float) -> None:
        self._max_samples = samples + 1  # one of them overlaps the start of the windows
        self._window_s = window_s
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: int, now: float) -> None:
        """Adds `value` to the current sample, or to a new one if its window is over."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now, now))
        elif now - samples[self._current].start >= self._window_s:
            self._current = (self._current + 1) % self._max_samples
            if self._current == len(samples):
                samples.append(_Sample(now, now))
            else:
                samples[self._current] = _Sample(now, now)
        sample = samples[self._current]
        sample.value += value
        sample.last = now

    def measure(self, now: float) -> float:
        """The rate per second."""
        total, elapsed_s = self._totals(now)
        return total / max(elapsed_s, self._window_s)

    def seconds_until(self, rate: float, now: float) -> float:
        """The time until the rate has fallen to `rate`, if nothing is recorded meanwhile."""
        total, elapsed_s = self._totals(now)
        return max(0.0, total / rate - elapsed_s) if rate > 0 else float("inf")

    def excess_s(self, rate: float, now: float) -> float:
        """How long nothing may be recorded so that the rate falls to `rate`, or 0.0 if it is not above it.

        This is the rate of most quotas (`Rate` in Kafka): its time is that of all windows but one
        at least. So as many events as fit into that time may come at once.
        """
        total, elapsed_s = self._totals(now)
        missing = self._max_samples - 2 - int(elapsed_s / self._window_s)
        elapsed_s = max(elapsed_s + max(0, missing) * self._window_s, self._window_s)
        if total <= rate * elapsed_s:
            return 0.0
        return total / rate - elapsed_s if rate > 0 else float("inf")

    def _totals(self, now: float) -> tuple[int, float]:
        """The sum of the samples, and the time since the oldest one started."""
        expiry_s = (self._max_samples - 1) * self._window_s
        if not self._samples:
            self._samples.append(_Sample(now, now))  # as in Kafka, the time counts from the first look
        total, oldest = 0, now
        for sample in self._samples:
            if now - sample.last >= expiry_s:
                sample.start, sample.last, sample.value = now, now, 0
            total += sample.value
            oldest = min(oldest, sample.start)
        return total, now - oldest
