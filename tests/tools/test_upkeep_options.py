"""Options of the commands of a lake that no lake is needed for."""

from __future__ import annotations

import argparse

import pytest

from quorate.tools.lake import lake_session, pipeline, upkeep
from quorate.tools.times import parse_datetime


@pytest.mark.parametrize("hours", ["-1", "-0.001", "nan", "inf", "1e300"])
def test_a_time_for_which_no_file_can_be_kept_is_refused(
    hours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A negative one would delete files that a run has written and not committed yet."""
    with pytest.raises(SystemExit):
        pipeline.main(["compact", "--lake", "unused", f"--retain-hours={hours}", "--yes"])
    assert "argument --retain-hours: " in capsys.readouterr().err


@pytest.mark.parametrize("age", ["99999999999d", "9999999d", "0001-01-01T00:00+05:00"])
def test_an_age_before_the_first_year_is_refused(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pipeline.main(["expire", "--lake", "unused", "--older-than", age])
    assert f"{age} is neither an age such as 90d nor a time" in capsys.readouterr().err


def test_a_time_that_has_no_year_in_utc_is_no_time() -> None:
    with pytest.raises(ValueError, match="0001-01-01"):
        parse_datetime("0001-01-01T00:00+05:00")
    with pytest.raises(argparse.ArgumentTypeError):
        upkeep.moment("9999-12-31T23:59:59-05:00")


@pytest.mark.parametrize("text", ["²", "0001-01-01T00:00+05:00", "-5", ""])
def test_a_moment_is_an_offset_or_a_time(text: str) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'quorate[spark]')")
    from quorate.pipeline.questions.moments import parse_moment

    with pytest.raises(ValueError, match="is neither an offset nor a time such as"):
        parse_moment(text)


def test_a_spark_that_does_not_start_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = pytest.importorskip("pyspark.errors", reason="PySpark is not installed")

    def fails(*_: object, **__: object) -> None:
        raise errors.PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(lake_session.session, "local_session", fails)
    assert pipeline.main(["migrate", "--lake", "unused"]) == 1
    assert capsys.readouterr().err.startswith("Spark did not start: [JAVA_GATEWAY_EXITED] ")
