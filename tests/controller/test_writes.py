"""Writes of the active controller on a real Raft replica."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quorate.metadata.errors import MetadataError
from quorate.metadata.records import ConfigRecord, NoOpRecord, RemoveTopicRecord
from quorate.net.dispatch import RequestContext
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.update_features import UpdateFeaturesRequest
from quorate.protocol.schema import Data

from .requests import registration, run, topics
from .support import uid
from .test_envelope import envelope, opened
from .test_failures import PATIENCE_S, started, unfenced, until

# -- writes


TOO_LARGE = ConfigRecord(resource_type=2, resource_name="t", name="x", value="v" * (9 << 20))


@pytest.mark.parametrize(
    ("last", "error"),
    [(TOO_LARGE, KafkaError), (RemoveTopicRecord(topic_id=uid(77)), MetadataError)],
    ids=["a record that fits no batch", "a record that cannot be replayed"],
)
def test_a_write_of_several_batches_is_all_or_nothing(
    tmp_path: Path, last: Data, error: type[Exception]
) -> None:
    async def test() -> None:
        node = await started(tmp_path)
        controller = node.controller
        end, image = node.raft.log_end_offset, controller.state.next_image
        before: list[Data] = [NoOpRecord() for _ in range(10_000)]
        with pytest.raises(error):
            controller.state.write([*before, last])
        assert (node.raft.log_end_offset, controller.state.next_image, controller.state.last_written) == (
            end,
            image,
            -1,
        )
        await unfenced(node, 1)
        assert (await node.call(topics("a"))).topics[0].error_code == ErrorCode.NONE
        await node.stop()

    run(test())


def test_a_write_of_several_batches_is_visible_when_it_is_committed(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(tmp_path)
        count = 20_001  # of 1,000 bytes each: three batches
        records: list[Data] = [
            ConfigRecord(resource_type=2, resource_name="t", name=f"k{n}", value="v" * 1000)
            for n in range(count)
        ]
        last = node.controller.state.write(records)
        assert last == node.controller.state.next_offset - 1
        await until(node, lambda: node.controller.state.committed_offset >= last)
        assert len(node.controller.state.image.configs.topic("t")) == count
        assert node.controller.state.image.provenance.offset == last
        await node.stop()

    run(test())


# -- decisions and awaits


def test_other_features_are_checked_again_after_an_upgrade_of_kraft_version(tmp_path: Path) -> None:
    """A broker that does not support transaction.version registers while Raft writes kraft.version. The
    upgrade must not be written then."""

    async def test() -> None:
        node = await started(tmp_path)
        key = UpdateFeaturesRequest.FeatureUpdateKey
        upgrade = node.call(
            UpdateFeaturesRequest(
                feature_updates=[
                    key(feature="kraft.version", max_version_level=1),
                    key(feature="transaction.version", max_version_level=1),
                ]
            )
        )
        asked = asyncio.ensure_future(upgrade)
        await asyncio.sleep(0)  # it is handled, and Raft is asked
        assert not asked.done()
        await node.call(registration(1))
        response = await asked
        finalized = node.controller.state.image.features.finalized
        assert (response.error_code, finalized.get("transaction.version", 0)) == (
            ErrorCode.INVALID_UPDATE_VERSION,
            0,
        )
        assert "kraft.version is now 1" in response.error_message
        assert node.raft.kraft_version_finalised == 1
        await node.stop()

    run(test())


def test_an_upgrade_of_kraft_version_and_another_feature_does_both(tmp_path: Path) -> None:
    async def test() -> None:
        node = await started(tmp_path)
        key = UpdateFeaturesRequest.FeatureUpdateKey
        response = await node.call(
            UpdateFeaturesRequest(
                feature_updates=[
                    key(feature="kraft.version", max_version_level=1),
                    key(feature="transaction.version", max_version_level=1),
                ]
            )
        )
        assert (response.error_code, node.raft.kraft_version_finalised) == (ErrorCode.NONE, 1)
        assert node.controller.state.image.features.finalized["transaction.version"] == 1
        await node.stop()

    run(test())


# -- answers


def test_a_forwarded_response_that_cannot_be_encoded_is_replaced_by_an_error(tmp_path: Path) -> None:
    """The error message quotes a name of 32,700 characters. Before version 5 a string has at most 32,767
    bytes."""

    async def test() -> None:
        node = await started(tmp_path)
        await unfenced(node, 1)
        controller = node.controller
        ctx = RequestContext(ApiKey.ENVELOPE, 0, 1, None, "CONTROLLER")
        first = controller.routes[ApiKey.ENVELOPE](ctx, envelope(topics("a")))
        answer = controller.routes[ApiKey.ENVELOPE](
            ctx, envelope(topics("x" * 32_700), 4)
        )  # waits for the first to commit
        async with asyncio.timeout(PATIENCE_S):
            assert (await first).error_code == ErrorCode.NONE
            response = await answer
        _, inner = opened(response, ApiKey.CREATE_TOPICS, 4)
        assert inner.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await node.stop()

    run(test())
