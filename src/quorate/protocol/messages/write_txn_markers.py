"""WriteTxnMarkers, API key 27.

Versions
  1  flexible; flexible (KIP-482) from the first
  2  the feature level of transactions (KIP-1228); request gains markers.transaction_version
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+", listeners={"broker"}):
    """From the transaction coordinator to partition leaders: writes the end markers of transactions."""

    class WritableTxnMarkerTopic(Struct):
        name: str = ""
        partition_indexes: list[int32] = field(default_factory=list)

    class WritableTxnMarker(Struct):
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = field(default_factory=list)
        coordinator_epoch: int32 = 0
        transaction_version: int8 = field(default=0, versions="2+", ignorable=True)

    markers: list[WritableTxnMarker] = field(default_factory=list)


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class WritableTxnMarkerTopicResult(Struct):
        name: str = ""
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = field(
            default_factory=list
        )

    class WritableTxnMarkerResult(Struct):
        producer_id: int64 = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = field(default_factory=list)

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
