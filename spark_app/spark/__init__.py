"""The Spark session and its JVM."""
