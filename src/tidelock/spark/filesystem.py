"""A directory on whatever file system Spark can write to: local, HDFS, an object store."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Folder:
    """A directory, through Hadoop's file systems. Paths are relative to it. Not for executors."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        jsc: Any = spark.sparkContext._jsc
        self.location = location.rstrip("/")
        self._files = self._path("").getFileSystem(jsc.hadoopConfiguration())

    def exists(self, name: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._files.exists(self._path(name)))

    def text(self, name: str) -> str:
        """The content of a file."""
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Make a file; one that exists is replaced."""
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def rename(self, name: str, to: str) -> None:
        """Give a directory another name.

        Raises:
            OSError: it cannot be done.
        """
        self._files.mkdirs(self._path(to).getParent())
        if not self._files.rename(self._path(name), self._path(to)):
            raise OSError(f"{self.location}: cannot rename {name} to {to}")

    def remove(self, name: str) -> None:
        """Remove a file or directory with all that is in it; nothing happens if there is none."""
        self._files.delete(self._path(name), True)

    def files(self, name: str) -> dict[str, int]:
        """The files in a directory, with their sizes."""
        found = self._files.listStatus(self._path(name))
        return {str(status.getPath().getName()): int(status.getLen()) for status in found if status.isFile()}

    def folders(self) -> list[str]:
        """The names of the directories in this one; none if it does not exist."""
        if not self.exists(""):
            return []
        found = self._files.listStatus(self._path(""))
        return [str(status.getPath().getName()) for status in found if status.isDirectory()]

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}" if name else self.location)
