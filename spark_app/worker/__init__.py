"""What runs on the executors. Free of Spark, of settings and so of secrets; tested without a JVM."""
