"""The jars that a Spark session needs besides Spark's own: from a directory, or from Maven."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from quorate.dataclass import dataclass

_NOT_NEEDED: Final = (
    "com.fasterxml.jackson.*:*", "com.github.luben:*", "com.google.code.findbugs:*", "io.airlift:*",
    "io.unitycatalog:*", "org.apache.hadoop:*", "org.apache.logging.log4j:*", "org.apache.parquet:*",
    "org.locationtech.jts:*", "org.lz4:*", "org.roaringbitmap:*", "org.scala-lang*:*", "org.slf4j:*",
    "org.tukaani:*", "org.xerial.snappy:*",
)  # fmt: skip
"""What the libraries depend on and Spark has, or what is for other catalogs.

To get it from Maven takes long, and fails where the local repository of Maven has the description of a
library without its jar.
"""


@dataclass(frozen=True, slots=True)
class Jars:
    """The jars of a library."""

    variable: str
    """The environment variable that may name a directory with them. Without it, Spark gets them
    from Maven once and keeps them in Ivy's cache."""
    packages: tuple[str, ...]
    """Their Maven coordinates. Ivy adds what they depend on and Spark does not have."""
    needed: tuple[str, ...]
    """The names without `.jar` that the directory must have."""

    def found(self) -> list[str]:
        """The jars in the directory, or none. Raises FileNotFoundError if one is missing there."""
        folder = os.environ.get(self.variable)
        if folder is None:
            return []
        paths = sorted(Path(folder).glob("*.jar"))
        for name in self.missing([path.name for path in paths]):
            raise FileNotFoundError(f"{self.variable}: {folder} has no {name}")
        return [str(path) for path in paths]

    def missing(self, names: Collection[str]) -> list[str]:
        """The needed jars that are not among some file names."""
        return [f"{name}.jar" for name in self.needed if f"{name}.jar" not in names]


def jar_settings(libraries: Iterable[Jars]) -> Mapping[str, str]:
    """The settings of a new session with these libraries."""
    jars: list[str] = []
    packages: list[str] = []
    for library in libraries:
        found = library.found()
        jars += found
        packages += () if found else library.packages
    settings = {"spark.jars": ",".join(jars), "spark.jars.packages": ",".join(packages)}
    settings["spark.jars.excludes"] = ",".join(_NOT_NEEDED) if packages else ""
    return {name: value for name, value in settings.items() if value}
