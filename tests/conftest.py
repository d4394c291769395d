import os

# Every JVM of the tests has a short life: the second compiler and parallel collectors cost more than they bring.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
