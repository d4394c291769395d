"""What the supervisor needs of the world, and that world as it is: Spark, threads and time."""
