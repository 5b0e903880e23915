"""StreamsGroupTopologyDescriptionUpdate, API key 93.

Versions
  0  flexible (KIP-482) from the first
"""

from __future__ import annotations

from quorate.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request, key=93, versions="0", flexible="0+", listeners={"broker"}
):
    """From a member of a streams group: describes the topology of its epoch. KIP-1331."""

    class TopologyDescriptionNode(Struct):
        name: str = ""
        node_type: int8 = 0
        """1 for a source, 2 for a processor, 3 for a sink."""
        source_topics: list[str] = field(default_factory=list)
        sink_topic: str | None = None
        stores: list[str] = field(default_factory=list)
        successors: list[str] = field(default_factory=list)

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = ""
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = field(
            default_factory=list
        )

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            default_factory=lambda: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode()
        )
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            default_factory=lambda: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode()
        )

    class TopologyDescription(Struct):
        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = (
            field(default_factory=list)
        )
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = (
            field(default_factory=list)
        )

    group_id: str = ""
    member_id: str = ""
    topology_epoch: int32 = 0
    topology_description: TopologyDescription = field(default_factory=TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Response, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
