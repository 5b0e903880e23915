"""kafka-delete-records: deletes records of partitions before an offset."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from quorate.admin.client import AdminClient
from quorate.admin.errors import KafkaError, NetError, error_text
from quorate.admin.types import TopicPartition
from quorate.tools.client.admin_client import add_connection, with_admin
from quorate.tools.client.options import tool_parser
from quorate.tools.command_line import ToolError, run


def main(argv: Sequence[str] | None = None) -> int:
    return run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    parser = tool_parser(
        "kafka-delete-records",
        "This tool helps to delete records of the given partitions down to the specified offset.",
    )
    add_connection(parser)
    parser.add_argument(
        "--offset-json-file", required=True, metavar="<String: Offset json file path>",
        help='REQUIRED: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}; '
        "offset -1 is the high watermark.",
    )  # fmt: skip
    args = parser.parse_args(argv)
    wanted = parse_offsets(_read(args.offset_json_file))
    try:
        return with_admin(args, lambda admin: _delete(admin, args, wanted))
    except (KafkaError, NetError) as error:
        raise ToolError(error_text(error)) from error


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise ToolError(f"Unable to read file {path}: {error.strerror}") from error
    except UnicodeError:
        raise ToolError(f"Unable to read file {path}: it is no text in UTF-8") from None


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parses the JSON document into the offset of each partition. Raises ToolError."""
    try:
        document = json.loads(text)
    except ValueError:
        raise ToolError("The input string is not a valid JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ToolError('Missing partitions field: expected {"partitions": [...], "version": 1}')
    if document.get("version", 1) != 1:
        raise ToolError(f"Not supported version field value {document['version']}")
    found: dict[TopicPartition, int] = {}
    repeated = []
    for entry in document["partitions"]:
        try:
            tp, offset = TopicPartition(str(entry["topic"]), int(entry["partition"])), int(entry["offset"])
        except (KeyError, TypeError, ValueError):
            raise ToolError(
                f"Each partition needs topic, partition and offset: {json.dumps(entry)}"
            ) from None
        if tp in found:
            repeated.append(str(tp))
        found[tp] = offset
    if repeated:
        raise ToolError(f"Offset json file contains duplicate topic partitions: {','.join(repeated)}")
    return found


async def _delete(admin: AdminClient, args: argparse.Namespace, wanted: dict[TopicPartition, int]) -> int:
    print("Executing records delete operation")
    results = await admin.delete_records(wanted)
    print("Records delete operation completed:")
    status = 0
    for tp, result in results.items():
        if isinstance(result, KafkaError):
            status = 1
            print(f"partition: {tp}\terror: {error_text(result)}")
        else:
            print(f"partition: {tp}\tlow_watermark: {result}")
    return status
