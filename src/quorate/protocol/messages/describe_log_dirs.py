"""DescribeLogDirs, API key 35.

Versions
  1  the answer is sent before the throttle time is served (KIP-219)
  2  flexible (KIP-482)
  3  an error for the whole answer; response gains error_code
  4  space of the volumes (KIP-827); response gains results.total_bytes, results.usable_bytes
  5  cordoned log directories (KIP-1066); response gains results.is_cordoned
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int16, int32, int64


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+", listeners={"broker"}):
    """Shows the log directories of a broker, their space and the replicas in them."""

    class DescribableLogDirTopic(Struct):
        topic: str = ""
        partitions: list[int32] = field(default_factory=list)

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    class DescribeLogDirsPartition(Struct):
        partition_index: int32 = 0
        partition_size: int64 = 0
        offset_lag: int64 = 0
        is_future_key: bool = False

    class DescribeLogDirsTopic(Struct):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = field(default_factory=list)

    class DescribeLogDirsResult(Struct):
        error_code: int16 = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = field(default_factory=list)
        total_bytes: int64 = field(default=-1, versions="4+", ignorable=True)
        usable_bytes: int64 = field(default=-1, versions="4+", ignorable=True)
        is_cordoned: bool = field(default=False, versions="5+", ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = field(default=0, versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(default_factory=list)
