"""Two streaming queries with an epoch log between them: one splits lines into words, the other counts them.

Usage: python two_queries.py [FOLDER WITH TEXT FILES]. Run it again on a folder that has grown: both go on.
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions as F

import tidelock

if len(sys.argv) > 1:
    home = Path(sys.argv[1]).absolute()
else:
    home = Path(tempfile.mkdtemp())
    (home / "1.txt").write_text("the tide comes in\nthe tide goes out\n")
    (home / "2.txt").write_text("time and tide wait for no man\n")

spark = tidelock.session("two queries", settings={"spark.sql.shuffle.partitions": "2"})
state, now = home / "state", {"availableNow": True}

lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{home}/*.txt")
words = lines.select(F.explode(F.split("value", " ")).alias("word"))
tidelock.write_log(words, f"{state}/words", checkpoint=f"{state}/words-query", trigger=now).awaitTermination()

stream = tidelock.read_log(spark, f"{state}/words", consumer="counts")
counts = stream.groupBy("word").count()
tidelock.write_log(
    counts, f"{state}/counts", checkpoint=f"{state}/counts-query", mode="update", trigger=now
).awaitTermination()

changes = spark.read.format("tidelock").option("log", f"{state}/counts").option("epochColumn", "epoch").load()
latest = changes.groupBy("word").agg(F.max_by("count", "epoch").alias("count"))
for row in latest.orderBy(F.desc("count"), "word").limit(10).collect():
    print(f"{row['count']:6}  {row['word']}")
