"""OffsetCommits that are answered from their bytes: the same answers, records and errors as by the
API's handler, in one batch for the requests of one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.broker.coordinators.batch_writer import WRITE_SLICE_S, BatchWriter
from quorate.broker.coordinators.context import CoordinatorContext
from quorate.broker.coordinators.group.model import OffsetAndMetadata, OffsetRecord
from quorate.broker.coordinators.result import CoordinatorResult
from quorate.protocol.api import ApiKey
from quorate.protocol.errors import ErrorCode, KafkaError
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.leave_group import LeaveGroupRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.offset_delete import OffsetDeleteRequest
from quorate.protocol.schema import Request
from quorate.records.batch import decode_records
from tests.broker.coordinators.client import (
    commit_request,
    fetch_request,
    fetched,
    frame,
    in_loop,
    stable_member,
)
from tests.broker.coordinators.fakes import World

E = ErrorCode
SMALL = (8, 9, 10)


def request(offset: int = 5, *, metadata: str | None = "", **fields: Any) -> OffsetCommitRequest:
    made = commit_request(offset, **fields)
    for topic in made.topics:
        for partition in topic.partitions:
            partition.committed_metadata = metadata
    return made


def records(w: World) -> list[list[tuple[bytes | None, bytes | None, int]]]:
    """The keys, values and timestamps in each partition of `__consumer_offsets`."""
    return [
        [(r.key, r.value, r.timestamp) for batch in w.replicas.batches(p) for r in decode_records(batch)]
        for p in range(4)
    ]


def batch_sizes(w: World, group: str = "g") -> list[int]:
    """The number of records in each batch of a group's partition."""
    return [len(decode_records(batch)) for batch in w.replicas.batches(w.service.groups.partition_for(group))]


def logged_offsets(w: World, group: str = "g") -> list[int]:
    """The offsets in the records of a group's partition."""
    found = records(w)[w.service.groups.partition_for(group)]
    return [int.from_bytes(value[2:10], "big") for _, value, _ in found if value]


def states(w: World) -> list[dict[str, dict[tuple[str, int], OffsetAndMetadata]]]:
    """The newest offsets of each partition, and the groups without offsets."""
    found = []
    for context in w.service.groups.runtime.contexts():
        state = context.shard.state
        found.append({group: dict(state.offsets.get(group, {})) for group in sorted(state.groups)})
    return found


def code(answer: bytes, version: int = 9) -> int:
    """The only error code in a response."""
    return int.from_bytes(answer[-5:-3], "big")


async def offsets(w: World, *, stable: bool = False) -> dict[tuple[str, int], int]:
    return fetched(await w.call(ApiKey.OFFSET_FETCH, fetch_request(9, stable=stable), 9), 9)


def of_member(member: Any, offset: int = 5, **fields: Any) -> OffsetCommitRequest:
    return request(
        offset, generation_id_or_member_epoch=member.generation_id, member_id=member.member_id, **fields
    )


# -- the same as by the handler
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SMALL)
@pytest.mark.parametrize("metadata", [None, ""])
@pytest.mark.parametrize("client_id", [None, "", "me"])
@in_loop
async def test_a_commit_of_one_topic_is_answered_as_by_the_handler(
    version: int, metadata: str | None, client_id: str | None
) -> None:
    async with World() as one, World() as other:
        cases = [(5, (0,)), (2**62, (0,)), (0, (1,)), (7, (2, 0)), (8, (0, 0, 1)), (9, (1,) * 100)]
        for correlation_id, (offset, partitions) in enumerate(cases):
            made = request(offset, metadata=metadata, partitions=partitions)
            data = frame(made, version, correlation_id, client_id)
            answer = one.start_frame(data)
            assert isinstance(answer, asyncio.Future)
            assert await answer == await other.answer_frame(data, by_handler=True)
        assert records(one) == records(other)
        assert states(one) == states(other)
        assert one.service.groups.counts.offset_commits == other.service.groups.counts.offset_commits == 108


@pytest.mark.parametrize("version", SMALL)
@in_loop
async def test_a_commit_of_a_member_restarts_its_session(version: int) -> None:
    async with World() as w:
        member = await stable_member(w)
        context = w.service.groups.runtime.context(w.service.groups.partition_for("g"))
        before = context.shard.timer.next_deadline()
        assert before is not None
        while w.clock.now() < before - 9.999:  # the session timeout is 10 s
            await asyncio.sleep(0)
        answer = w.start_frame(frame(of_member(member), version))
        assert isinstance(answer, asyncio.Future)
        await answer
        after = context.shard.timer.next_deadline()
        assert after is not None
        assert after > before


def with_tag(part: Callable[[OffsetCommitRequest], Any]) -> OffsetCommitRequest:
    made = request()
    part(made)._tags = {77: b"x"}
    return made


def two_topics() -> OffsetCommitRequest:
    made = request()
    made.topics += request(partitions=(1,)).topics
    return made


UNUSUAL: dict[str, OffsetCommitRequest] = {
    "metadata": request(metadata="m"),
    "no partition": request(partitions=()),
    "101 partitions": request(partitions=(0,) * 101),
    "200 partitions": request(partitions=(0,) * 200),
    "two topics": two_topics(),
    "a known and an unknown partition": request(partitions=(0, 3)),
    "no topic": OffsetCommitRequest(group_id="g"),
    "a tag of the request": with_tag(lambda r: r),
    "a tag of the topic": with_tag(lambda r: r.topics[0]),
    "a tag of the partition": with_tag(lambda r: r.topics[0].partitions[0]),
    "a long group id": request(group="g" * 127),
    "a long topic": request(topic="t" * 127),
    "an unknown topic": request(topic="u"),
    "an unknown partition": request(partitions=(3,)),
    "a negative partition": request(partitions=(-1,)),
}
REFUSED: dict[str, OffsetCommitRequest] = {
    "an unknown group": request(group="h", generation_id_or_member_epoch=1, member_id="m"),
    "an unknown member": request(generation_id_or_member_epoch=1, member_id="m"),
    "an unknown static member": request(
        generation_id_or_member_epoch=1, member_id="m", group_instance_id="i"
    ),
    "no member of a stable group": request(),
}


@pytest.mark.parametrize("version", SMALL)
@pytest.mark.parametrize("request_", UNUSUAL.values(), ids=UNUSUAL)
@in_loop
async def test_requests_of_another_form_are_left_to_the_handler(
    request_: OffsetCommitRequest, version: int
) -> None:
    async with World() as w:
        assert w.start_frame(frame(request_, version)) is None
        await asyncio.sleep(0)
        assert sum(map(len, records(w))) == 0


@pytest.mark.parametrize("version", SMALL)
@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
@in_loop
async def test_commits_that_the_group_refuses_are_left_to_the_handler(
    request_: OffsetCommitRequest, version: int
) -> None:
    async with World() as w:
        await stable_member(w)
        before = records(w)
        data = frame(request_, version)
        assert w.start_frame(data) is None
        assert code(await w.answer_frame(data)) != E.NONE
        assert records(w) == before


@pytest.mark.parametrize("version", range(2, 8))
@in_loop
async def test_older_versions_are_left_to_the_handler(version: int) -> None:
    async with World() as w:
        assert w.start_frame(frame(request(), version)) is None


@pytest.mark.parametrize("version", SMALL)
@in_loop
async def test_frames_of_another_length_are_left_to_the_handler(version: int) -> None:
    async with World() as w:
        data = frame(request(), version)
        kept = w.start_frame(data)
        assert isinstance(kept, asyncio.Future)
        await kept
        for end in range(8, len(data)):
            assert w.start_frame(data[:end]) is None, end
        for more in (b"\0", b"\0\0\0\0", data[8:], bytes(18)):
            assert w.start_frame(data + more) is None
        assert sum(map(len, records(w))) == 1


@pytest.mark.parametrize("version", SMALL)
@in_loop
async def test_a_repeated_request_follows_the_topics(version: int) -> None:
    async with World() as w:
        data = frame(request(), version)
        assert code(await w.answer_frame(data)) == E.NONE
        count = w.metadata.topics.pop("t")
        w.metadata.ids.clear()
        assert w.start_frame(data) is None
        wanted = E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION
        assert code(await w.answer_frame(data)) == wanted
        w.metadata.topics["t"] = count
        w.metadata.ids[b"new".ljust(16)] = "t"
        if version >= 10:
            assert w.start_frame(data) is None
        else:
            assert code(await w.answer_frame(data)) == E.NONE
            (offset,) = [o for state in states(w) for o in state.get("g", {}).values()]
            assert offset.topic_id == b"new".ljust(16)


@pytest.mark.parametrize(("lead", "wanted"), [(False, E.NOT_COORDINATOR)])
@in_loop
async def test_another_coordinators_group_is_left_to_the_handler(lead: bool, wanted: ErrorCode) -> None:
    async with World(lead=lead) as w:
        data = frame(request())
        assert w.start_frame(data) is None
        assert code(await w.answer_frame(data)) == wanted


GROUPS = ("g", "k", "h")  # the first two are in one partition


@st.composite
def commits(draw: st.DrawFn) -> tuple[Request, int]:
    """A commit and its version. Most are of the small form."""
    usual = draw(st.integers(0, 3)) > 0
    made = request(
        draw(st.integers(-1, 2**63 - 1)),
        group=draw(st.sampled_from(GROUPS)),
        topic="t" if usual else draw(st.sampled_from(("t", "t", "u", "tëmp"))),
        partitions=tuple(draw(st.lists(st.sampled_from((0, 1, 2, 2, 3)), min_size=1, max_size=4))),
        metadata=draw(st.sampled_from((None, "") if usual else (None, "m"))),
        generation_id_or_member_epoch=draw(st.sampled_from((-1, -1, -1, -1, -1, 0, 1))),
        member_id=draw(st.sampled_from(("", "", "", "m"))),
    )
    version = draw(st.sampled_from((8, 9, 10, 10) if usual else tuple(range(2, 11))))
    if version >= 7:
        made.group_instance_id = draw(st.sampled_from((None, None, None, "i")))
    if version >= 6:
        made.topics[0].partitions[0].committed_leader_epoch = draw(st.integers(-1, 2**31 - 1))
    if version < 5:
        made.retention_time_ms = draw(st.sampled_from((-1, 1000)))
    return made, version


def deletion(group: str) -> tuple[Request, int]:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    return OffsetDeleteRequest(group_id=group, topics=[topic]), 0


others = st.one_of(
    st.sampled_from(GROUPS).map(deletion),
    st.sampled_from(GROUPS).map(lambda g: (DeleteGroupsRequest(groups_names=[g]), 2)),
    st.sampled_from(GROUPS).map(lambda g: (fetch_request(9, group=g, stable=True), 9)),
    st.sampled_from(GROUPS).map(lambda g: (fetch_request(9, group=g), 9)),
    st.sampled_from(GROUPS).map(lambda g: (HeartbeatRequest(group_id=g, generation_id=1, member_id="m"), 4)),
    st.sampled_from(GROUPS).map(
        lambda g: (
            LeaveGroupRequest(group_id=g, members=[LeaveGroupRequest.MemberIdentity(member_id="m")]),
            5,
        )
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((None, None, None, KafkaError(E.NOT_ENOUGH_REPLICAS))),
            st.lists(st.one_of(commits(), commits(), commits(), others), max_size=6),
        ),
        max_size=5,
    )
)
def test_random_requests_leave_the_same_answers_records_and_offsets(
    turns: list[tuple[Exception | None, list[tuple[Request, int]]]],
) -> None:
    """In some of the turns all appends fail."""

    async def run() -> None:
        async with World() as one, World() as other:
            for number, (failure, turn) in enumerate(turns):
                one.replicas.fail_with = other.replicas.fail_with = failure
                sent = [frame(r, version, 100 * number + i) for i, (r, version) in enumerate(turn)]
                wanted = [await other.answer_frame(data, by_handler=True) for data in sent]
                assert [await one.answer_frame(data) for data in sent] == wanted
                # Deletions of groups take several turns, so they have no place among the requests of one.
                sent = [data for data in sent if data[1] != ApiKey.DELETE_GROUPS]
                wanted = [await other.answer_frame(data, by_handler=True) for data in sent]
                answers = await asyncio.gather(*(one.answer_frame(data) for data in sent))
                for data, answer, expected in zip(sent, answers, wanted, strict=True):
                    assert answer == expected or data[1] == ApiKey.OFFSET_FETCH  # reads a later state
            assert records(one) == records(other)
            assert states(one) == states(other)

    asyncio.run(run())


changed_bytes = st.lists(
    st.tuples(st.integers(2, 90), st.sampled_from((0, 1, 2, 3, 5, 8, 18, 19, 0x7F, 0x80, 0xFF))),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(commits(), changed_bytes), max_size=12))
def test_a_frame_with_changed_bytes_is_answered_as_by_the_handler_or_left_to_it(
    requests: list[tuple[tuple[Request, int], list[tuple[int, int]]]],
) -> None:
    async def run() -> None:
        async with World() as one, World() as other:
            for (made, version), changes in requests:
                kept = frame(made, version)
                await one.answer_frame(kept)
                await other.answer_frame(kept, by_handler=True)
                data = bytearray(kept)
                for at, byte in changes:
                    data[min(at, len(data) - 1)] = byte
                answer = one.start_frame(bytes(data))
                if isinstance(answer, asyncio.Future):
                    assert await answer == await other.answer_frame(bytes(data), by_handler=True)
            assert records(one) == records(other)

    asyncio.run(run())


# -- one batch
# --------------------------------------------------------------------------------------------------


@in_loop
async def test_the_commits_of_one_turn_are_one_batch() -> None:
    async with World() as w:
        answers = [w.start_frame(frame(request(i, partitions=(i % 3,)))) for i in range(5)]
        assert batch_sizes(w) == []
        assert [code(await answer) for answer in answers if answer] == [E.NONE] * 5  # type: ignore[misc]
        assert batch_sizes(w) == [5]
        await w.answer_frame(frame(request(9)))
        assert batch_sizes(w) == [5, 1]
        assert await offsets(w) == {("t", 0): 9, ("t", 1): 4, ("t", 2): 2}


@in_loop
async def test_a_step_of_the_partition_comes_after_the_commits_before_it() -> None:
    async with World() as w:
        first = w.start_frame(frame(request(1)))
        general = w.start(ApiKey.OFFSET_COMMIT, commit_request(2), 9)
        second = w.start_frame(frame(request(3)))
        assert batch_sizes(w) == [1, 1]
        for answer in (first, second):
            assert isinstance(answer, asyncio.Future)
            await answer
        assert general.topics[0].partitions[0].error_code == E.NONE
        assert batch_sizes(w) == [1, 1, 1]
        assert logged_offsets(w) == [1, 2, 3]
        assert await offsets(w) == {("t", 0): 3}


@in_loop
async def test_offsets_of_a_deleted_topic_are_deleted_with_those_of_the_last_turn() -> None:
    async with World() as w:
        answer = w.start_frame(frame(request(1)))
        w.service.groups.topics_deleted(frozenset({"t"}))
        assert isinstance(answer, asyncio.Future)
        await answer
        assert await offsets(w) == {}


@in_loop
async def test_a_failed_step_reverts_no_commit_of_its_turn() -> None:
    async with World() as w:
        answer = w.start_frame(frame(request(1)))
        refused = w.start(ApiKey.OFFSET_COMMIT, commit_request(2, generation_id_or_member_epoch=9), 9)
        assert refused.topics[0].partitions[0].error_code != E.NONE
        assert isinstance(answer, asyncio.Future)
        await answer
        assert await offsets(w) == {("t", 0): 1}


@in_loop
async def test_a_commit_is_answered_and_visible_when_it_is_committed() -> None:
    async with World() as w:
        await w.answer_frame(frame(request(1)))
        w.replicas.hold = True
        answer = w.start_frame(frame(request(2)))
        assert isinstance(answer, asyncio.Future)
        stable = asyncio.ensure_future(offsets(w, stable=True))
        for _ in range(5):
            await asyncio.sleep(0)
        assert batch_sizes(w) == [1, 1]
        assert not answer.done()
        assert not stable.done()
        assert await offsets(w) == {("t", 0): 1}
        w.replicas.release()
        assert code(await answer) == E.NONE
        assert await stable == {("t", 0): 2}
        assert await offsets(w) == {("t", 0): 2}


@in_loop
async def test_a_read_of_the_newest_state_sees_the_commits_of_its_turn() -> None:
    async with World() as w:
        answer = w.start_frame(frame(request(2)))
        read = w.service.groups.runtime.read_newest(
            w.service.groups.partition_for("g"), lambda _, state: state.offsets["g"]["t", 0].offset
        )
        assert read.result() == 2
        assert isinstance(answer, asyncio.Future)
        await answer


@in_loop
async def test_an_expiry_sees_the_commits_of_its_turn() -> None:
    async with World(offsets_retention_minutes=1) as w:
        await w.answer_frame(frame(request(1)))
        w.clock.offset_ms = 60_001  # the first offset has expired
        answer = w.start_frame(frame(request(2)))
        runtime = w.service.groups.runtime
        runtime.context(w.service.groups.partition_for("g")).shard.next_expiry = 0.0
        runtime._on_timer()
        assert isinstance(answer, asyncio.Future)
        await answer
        assert batch_sizes(w) == [1, 1], "no tombstone"


@in_loop
async def test_records_that_need_not_be_atomic_are_divided_where_messages_must_be_small() -> None:
    """Otherwise the expiry of many offsets would fail again and again."""
    async with World() as w:
        runtime, partition = w.service.groups.runtime, w.service.groups.partition_for("g")
        log = w.replicas.log(partition)
        log.update_config(replace(log.config, max_message_bytes=1000))
        made = [OffsetRecord("g", "t", i, OffsetAndMetadata(i)) for i in range(40)]
        runtime.write(partition, lambda *_: CoordinatorResult(made, atomic=False))
        await runtime.read_newest(partition, lambda *_: None)
        assert sum(batch_sizes(w)) == 40
        assert max(map(len, w.replicas.batches(partition))) <= 1000


@in_loop
async def test_the_continuation_of_a_step_comes_after_the_commits_before_it() -> None:
    async with World() as w:
        w.replicas.hold = True

        def step(*_: Any) -> CoordinatorResult:
            first, second = (OffsetRecord("g", "t", 0, OffsetAndMetadata(i)) for i in (1, 3))
            return CoordinatorResult([first], after=lambda *_: CoordinatorResult([second]))

        w.service.groups.runtime.write(w.service.groups.partition_for("g"), step)
        w.replicas.hold = False
        w.replicas.release()  # schedules the continuation
        answer = w.start_frame(frame(request(2)))
        assert isinstance(answer, asyncio.Future)
        await answer
        assert logged_offsets(w) == [1, 2, 3]


@pytest.mark.parametrize(
    "failure",
    [KafkaError(E.NOT_ENOUGH_REPLICAS), KafkaError(E.NOT_LEADER_OR_FOLLOWER), OSError("no space")],
    ids=repr,
)
@pytest.mark.parametrize("version", SMALL)
@in_loop
async def test_a_failed_append_reverts_the_commits_of_its_batch(failure: Exception, version: int) -> None:
    async with World() as one, World() as other:
        for each in (one, other):
            await each.answer_frame(frame(request(1), version), by_handler=each is other)
            each.replicas.fail_with = failure
        sent = [frame(request(i, group=g), version, i) for i, g in ((2, "g"), (3, "g"), (4, "new"))]
        answers = await asyncio.gather(*(one.answer_frame(data) for data in sent))
        assert answers == [await other.answer_frame(data, by_handler=True) for data in sent]
        assert {code(answer) for answer in answers} != {E.NONE}
        for each in (one, other):
            each.replicas.fail_with = None
            await each.answer_frame(frame(request(5, partitions=(1,)), version), by_handler=each is other)
        assert states(one) == states(other)
        assert records(one) == records(other)
        assert await offsets(one) == {("t", 0): 1, ("t", 1): 5}


@in_loop
async def test_a_commit_that_times_out_is_visible_when_it_is_committed() -> None:
    async with World(offsets_commit_timeout_ms=30) as w:
        w.replicas.hold = True
        assert code(await w.answer_frame(frame(request(2)))) == E.COORDINATOR_NOT_AVAILABLE
        assert await offsets(w) == {}
        w.replicas.release()
        assert await offsets(w) == {("t", 0): 2}


@pytest.mark.parametrize("appended", [False, True])
@in_loop
async def test_a_commit_fails_when_the_partition_moves_away(appended: bool) -> None:
    async with World() as w:
        w.replicas.hold = True
        pending = asyncio.ensure_future(w.answer_frame(frame(request(2))))
        await asyncio.sleep(0)
        if appended:
            await asyncio.sleep(0)
        before = batch_sizes(w)
        assert before == ([1] if appended else [])
        w.replicas.lead(w.service.groups.partition_for("g"), epoch=None)
        assert code(await pending) == E.NOT_COORDINATOR
        assert batch_sizes(w) == before


@in_loop
async def test_small_batches_are_written_where_messages_must_be_small() -> None:
    async with World() as w:
        log = w.replicas.log(w.service.groups.partition_for("g"))
        log.update_config(replace(log.config, max_message_bytes=1000))
        answers = await asyncio.gather(*(w.answer_frame(frame(request(i), 9, i)) for i in range(30)))
        assert {code(answer) for answer in answers} == {E.NONE}
        sizes = batch_sizes(w)
        assert sum(sizes) == 30
        assert len(sizes) > 2
        assert max(len(batch) for batch in w.replicas.batches(w.service.groups.partition_for("g"))) <= 1000


def test_many_batches_are_written_in_several_turns() -> None:
    async def run() -> None:
        clock = SimpleNamespace(time=0.0)
        clock.now = lambda: clock.time
        written: list[int] = []

        def write(context: CoordinatorContext[Any], result: CoordinatorResult, _: Any) -> None:
            written.append(context.partition)
            clock.time += WRITE_SLICE_S * 0.4

        writer = BatchWriter[Any](clock, lambda _: 1000, write)
        for partition in range(7):
            shard: Any = SimpleNamespace(state=None)
            writer.add(CoordinatorContext(partition, 0, shard), ["record"], 100, b"answer")
        turns = []
        for _ in range(4):
            await asyncio.sleep(0)
            turns.append(len(written))
        assert turns == [3, 6, 7, 7]
        assert written == list(range(7))

    asyncio.run(run())
