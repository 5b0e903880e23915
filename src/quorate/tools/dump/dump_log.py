"""kafka-dump-log: prints segments, snapshots, indexes and producer snapshots, as Kafka's DumpLogSegments
does.
"""

from __future__ import annotations

import mmap
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.lazy import lazy_module
from quorate.protocol.errors import DecodeError
from quorate.records.batch import (
    BatchHeader,
    CorruptRecordError,
    InvalidRecordError,
    Record,
    TimestampType,
    decode_records,
    iter_batches,
    verify_crc,
)
from quorate.records.record import readable_headers
from quorate.tools.command_line import Parser, ToolError, run
from quorate.tools.dump.indexes import (
    Mismatches,
    Write,
    base_offset_of,
    dump_offset_index,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from quorate.tools.dump.record_parsers import (
    CoordinatorParser,
    MetadataParser,
    PlainParser,
    RecordParser,
    control_text,
    decoder,
)

if TYPE_CHECKING:
    from quorate.broker.coordinators import records
    from quorate.metadata import snapshot
    from quorate.tools.dump import remote_log_records
else:
    records = lazy_module("quorate.broker.coordinators.records")
    snapshot = lazy_module("quorate.metadata.snapshot")
    remote_log_records = lazy_module("quorate.tools.dump.remote_log_records")

INT_MAX = (1 << 31) - 1
_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    options = _parse(argv)
    parser = _record_parser(options)
    found = Mismatches()
    write = sys.stdout.write
    for name in options.files.split(","):
        path = Path(name)
        write(f"Dumping {path}\n")
        _dump(path, options, parser, found, write)
    sys.stdout.flush()
    for line in found.lines():
        print(line, file=sys.stderr)
    return 0


def _dump(path: Path, options: Namespace, parser: RecordParser, found: Mismatches, write: Write) -> None:
    match path.suffix:
        case ".log" | ".checkpoint":
            dump_log(path, options, parser, found, write)
        case ".index":
            dump_offset_index(
                path,
                write,
                found,
                sanity_only=options.index_sanity_check,
                verify_only=options.verify_index_only,
                max_message_size=options.max_message_size,
            )
        case ".timeindex":
            dump_time_index(
                path,
                write,
                found,
                sanity_only=options.index_sanity_check,
                verify_only=options.verify_index_only,
            )
        case ".snapshot":
            dump_producer_snapshot(path, write, sys.stderr.write)
        case ".txnindex":
            dump_transaction_index(path, write)
        case _:
            print(f"Ignoring unknown file {path}", file=sys.stderr)


def _parse(argv: Sequence[str]) -> Namespace:
    parser = Parser(
        "kafka-dump-log", "Parses log files and prints their contents: for looking into what seems corrupt."
    )
    parser.add_version()
    add = parser.add_argument
    add(
        "--files",
        required=True,
        metavar="FILE,FILE",
        help="the log and index files to dump, separated by commas",
    )
    add(
        "--print-data-log",
        action="store_true",
        help="print the records' contents; any decoder option implies it",
    )
    add(
        "--deep-iteration",
        action="store_true",
        help="go through records, not only batches; implied by --print-data-log",
    )
    add("--cluster-metadata-decoder", action="store_true", help="decode as records of the cluster's metadata")
    add("--offsets-decoder", action="store_true", help="decode as records of __consumer_offsets")
    add("--transaction-log-decoder", action="store_true", help="decode as records of __transaction_state")
    add("--share-group-state-decoder", action="store_true", help="decode as records of __share_group_state")
    add(
        "--remote-log-metadata-decoder",
        action="store_true",
        help="decode as records of __remote_log_metadata",
    )
    add(
        "--key-decoder-class",
        nargs="?",
        const=_STRING_DECODER,
        metavar="CLASS",
        help="decoder of keys (default: strings)",
    )
    add(
        "--value-decoder-class",
        nargs="?",
        const=_STRING_DECODER,
        metavar="CLASS",
        help="decoder of values (default: strings)",
    )
    add(
        "--skip-record-metadata",
        action="store_true",
        help="do not print offset, sizes and headers of each record",
    )
    add(
        "--max-bytes", type=int, default=INT_MAX, metavar="SIZE", help="read no more bytes of a log than this"
    )
    add(
        "--max-message-size",
        type=int,
        default=5 << 20,
        metavar="SIZE",
        help="size of the largest message (default: 5 MiB)",
    )
    add(
        "--index-sanity-check",
        action="store_true",
        help="only make the check that a start makes to decide on a rebuild",
    )
    add("--verify-index-only", action="store_true", help="check indexes without printing them")
    options = parser.parse_args(argv)
    decoders = (
        options.cluster_metadata_decoder,
        options.offsets_decoder,
        options.transaction_log_decoder,
        options.share_group_state_decoder,
        options.remote_log_metadata_decoder,
        options.key_decoder_class is not None,
        options.value_decoder_class is not None,
    )
    options.print_data_log = options.print_data_log or any(decoders)
    options.deep_iteration = options.deep_iteration or options.print_data_log
    return options


def _record_parser(options: Namespace) -> RecordParser:
    if options.offsets_decoder:
        return CoordinatorParser(records.GROUP_RECORDS)
    if options.transaction_log_decoder:
        return CoordinatorParser(records.TRANSACTION_RECORDS)
    if options.cluster_metadata_decoder:
        return MetadataParser()
    if options.remote_log_metadata_decoder:
        return remote_log_records.RemoteLogParser()
    if options.share_group_state_decoder:
        return CoordinatorParser(records.SHARE_RECORDS)
    return PlainParser(
        decoder(options.key_decoder_class or _STRING_DECODER),
        decoder(options.value_decoder_class or _STRING_DECODER),
    )


def dump_log(path: Path, options: Namespace, parser: RecordParser, found: Mismatches, write: Write) -> None:
    """Dumps a segment or snapshot up to the first invalid byte, and prints how many bytes are left."""
    write(_title(path))
    valid = 0
    last_offset = -1
    gaps: list[tuple[int, int]] = []
    with path.open("rb") as file:
        size = min(path.stat().st_size, options.max_bytes)
        data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        view = memoryview(data)[:size]
        try:
            for header, batch in _batches(path, view):
                write(_batch_line(header, batch, valid))
                if options.deep_iteration:
                    for record in _records(path, header, batch):
                        if last_offset not in (-1, record.offset - 1):
                            gaps.append((last_offset, record.offset))
                        last_offset = record.offset
                        write(_record_line(header, record, options, parser))
                del batch
                valid += header.size_bytes
        finally:
            view.release()
    if gaps:
        found.log[str(path.absolute())] = gaps
    if size > valid and options.max_bytes == INT_MAX:
        write(f"Found {size - valid} invalid bytes at the end of {path.name}\n")


def _title(path: Path) -> str:
    if path.suffix == ".log":
        return f"Log starting offset: {base_offset_of(path)}\n"
    if path.name == snapshot.BOOTSTRAP_NAME:
        return "KRaft bootstrap snapshot\n"
    snapshot_id = snapshot.parse_name(path.name)
    if snapshot_id is None:
        raise ToolError(f"{path}: its name is not that of a snapshot, END-OFFSET-EPOCH.checkpoint")
    return f"Snapshot end offset: {snapshot_id.offset}, epoch: {snapshot_id.epoch}\n"


def _batches(path: Path, view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields complete batches. At bytes that are not a batch it prints an error and stops."""
    try:
        yield from iter_batches(view)
    except CorruptRecordError as error:
        sys.stdout.flush()
        print(f"{path}: {error}", file=sys.stderr)


def _records(path: Path, header: BatchHeader, batch: memoryview) -> list[Record]:
    try:
        return decode_records(batch)
    except (CorruptRecordError, InvalidRecordError) as error:
        sys.stdout.flush()
        raise ToolError(
            f"{path}: the batch at offset {header.base_offset} does not decode: {error}"
        ) from error


def _boolean(value: bool) -> str:
    return "true" if value else "false"


_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


def _batch_line(header: BatchHeader, batch: memoryview, position: int) -> str:
    horizon = (
        "OptionalLong.empty" if header.delete_horizon is None else f"OptionalLong[{header.delete_horizon}]"
    )
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: "
        f"{header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_boolean(header.is_transactional)} isControl: {_boolean(header.is_control)} "
        f"deleteHorizonMs: {horizon} "
        f"position: {position} {_TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp} size: "
        f"{header.size_bytes} "
        f"magic: {header.magic} compresscodec: {header.compression.name.lower()} crc: {header.crc} "
        f"isvalid: {_boolean(verify_crc(batch))}\n"
    )


def _record_line(header: BatchHeader, record: Record, options: Namespace, parser: RecordParser) -> str:
    parts = []
    prefix = "| "
    if not options.skip_record_metadata:
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset - header.base_offset) & INT_MAX
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        parts.append(
            f"| offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: {record.timestamp} "
            f"keySize: {key_size} valueSize: {value_size} sequence: {sequence} headerKeys: "
            f"[{','.join([key for key, _ in readable_headers(record.headers)])}]"
        )
        prefix = " "
        if header.is_control:
            try:
                parts.append(f" {control_text(record)}")
            except DecodeError as error:
                parts.append(f" Error at offset {record.offset}, skipping. {error}")
    if options.print_data_log and not header.is_control:
        key, payload = parser.parse(record)
        if key is not None:
            parts.append(f"{prefix}key: {key}")
        if payload is not None:
            parts.append(f" payload: {payload}")
    return "".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
