"""`protolake page`: a process that serves metrics and the health of the app, also while the app is dead or held."""
