"""One unit: the `driver` plans and commits it, a `worker` runs its tasks, and `spark` has the session and its JVM."""
