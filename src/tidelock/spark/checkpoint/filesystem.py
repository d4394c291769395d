"""A directory on whatever file system Spark can write to: local, HDFS, an object store.

What is durable when. A local file is when it was synced, and its name when its folder was, whose name must be as
well, and so on upwards: `sync_tree`, `sync_names` and `make` do that. HDFS and object stores take a file when it
is closed, and keep it as their own settings say; there is nothing for us to sync there but what we write ourselves
(`write`), on those that can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidelock.placing import make_folder, sync_folder, sync_tree


class Folder:
    """A directory, through Hadoop's file systems. Paths are relative to it. Not for executors."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        jsc: Any = spark.sparkContext._jsc
        self.location = location.rstrip("/")
        self._files = self._path("").getFileSystem(jsc.hadoopConfiguration())

    def make(self) -> None:
        """On a local file system make it, with those above it; that it is there survives a loss of power."""
        here = self._local("")
        if here is not None:
            make_folder(here)

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
            if stream.hasCapability("hsync"):
                stream.hsync()
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
        """Remove a file or directory with all that is in it; nothing happens if there is none.

        Raises:
            OSError: some of it is left.
        """
        if not self._files.delete(self._path(name), True) and self.exists(name):
            raise OSError(f"{self.location}: cannot remove {name}")

    def sync_tree(self, name: str) -> None:
        """Make durable what a directory holds, on a local file system."""
        folder = self._local(name)
        if folder is not None:
            sync_tree(folder)

    def sync_names(self) -> None:
        """Make durable which directories there are in this one, on a local file system."""
        here = self._local("")
        if here is not None:
            sync_folder(here)

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

    def _local(self, name: str) -> Path | None:
        """Where it is on this machine, if its file system is a local one."""
        path = self._files.makeQualified(self._path(name)).toUri()
        return Path(path.getPath()) if path.getScheme() == "file" else None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}" if name else self.location)
