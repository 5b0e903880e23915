"""docs/errors.md has every error of the code. `python -m tests.house.error_catalogue` writes it again."""

from __future__ import annotations

import re
import textwrap
import tomllib

import pytest

from quorate.admin.explanations import EXPLANATIONS
from quorate.protocol.errors import ErrorCode
from tests.house.error_catalogue import DOCUMENT, ROOT, Refusal, refusals, refusals_of, render


def test_the_document_is_generated_from_the_code() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "run: python -m tests.house.error_catalogue"


def test_every_code_that_is_answered_has_cause_and_remedy() -> None:
    answered = {refusal.code for refusal in refusals() if refusal.code}
    assert len(answered) > 60
    assert {name for name in answered if ErrorCode[name] not in EXPLANATIONS} == set()


def test_remedies_name_only_commands_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts = [r.remedy for r in refusals()] + [e.remedy for e in EXPLANATIONS.values()]
    named = {name for text in texts for name in re.findall(r"\bkafka-[a-z-]+", text)}
    assert len(named) > 8
    assert named - project["project"]["scripts"].keys() == set()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            'raise KafkaError(ErrorCode.INVALID_REQUEST, f"No {x.name} in {len(items)}.", remedy="Add it.")',
            ("INVALID_REQUEST", "No {name} in {items}.", "Add it."),
        ),
        ("raise KafkaError(ErrorCode.INVALID_REQUEST)", ("INVALID_REQUEST", "", "")),
        (
            """
            def _invalid(what, why, remedy=""):
                return KafkaError(ErrorCode.INVALID_CONFIG, f"{what}: {why}", remedy=remedy)

            def check(key):
                raise _invalid(key.name, "too long", "Shorten it.")
            """,
            ("INVALID_CONFIG", "{name}: too long", "Shorten it."),
        ),
        (
            'answer(name, ErrorCode.UNKNOWN_TOPIC_ID, "There is no such topic.")',
            ("UNKNOWN_TOPIC_ID", "There is no such topic.", ""),
        ),
        (
            """
            def f(answer):
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                answer.error_message = "Too late."
            """,
            ("REQUEST_TIMED_OUT", "Too late.", ""),
        ),
        (
            """
            def f(member):
                return ErrorCode.INELIGIBLE_REPLICA, f"broker {member} is fenced"
            """,
            ("INELIGIBLE_REPLICA", "broker {member} is fenced", ""),
        ),
        (
            """
            def f(ctx):
                code = ErrorCode.INVALID_REQUEST if ctx.old else ErrorCode.INVALID_REQUEST
                raise KafkaError(code, "No.")
            """,
            ("INVALID_REQUEST", "No.", ""),
        ),
        ("Response(error_code=ErrorCode.NOT_CONTROLLER)", ("NOT_CONTROLLER", "", "")),
    ],
)
def test_a_refusal_is_found_with_its_message_and_remedy(code: str, expected: tuple[str, str, str]) -> None:
    found = set(refusals_of("controller/module.py", textwrap.dedent(code)))
    assert found == {Refusal("KafkaError", expected[0], "controller/module.py", *expected[1:])}


@pytest.mark.parametrize(
    "code",
    [
        "if error.code == ErrorCode.NOT_CONTROLLER: pass",
        "RETRIED = frozenset({ErrorCode.NOT_CONTROLLER})",
        "texts.get(ErrorCode.NOT_CONTROLLER)",
        "TEXTS = {ErrorCode.NOT_CONTROLLER: 'No.'}",
    ],
)
def test_a_code_that_is_only_read_is_no_refusal(code: str) -> None:
    assert list(refusals_of("controller/module.py", code)) == []


def test_errors_of_tools_and_configurations_are_found() -> None:
    tool = list(refusals_of("tools/module.py", 'raise ToolError(f"Cannot read {path}: {error.strerror}")'))
    assert tool == [Refusal("ToolError", "", "tools/module.py", "Cannot read {path}: {strerror}")]
    config = list(
        refusals_of("config/module.py", 'raise ConfigError(key, value, "it is required", "set it")')
    )
    assert config == [Refusal("ConfigError", "", "config/module.py", "it is required", "set it")]
