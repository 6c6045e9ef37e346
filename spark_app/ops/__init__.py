"""The log and the status of the running app. A batch is added to the status after its unit is applied."""
