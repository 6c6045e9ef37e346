"""`protolake page`: shows a lake in a browser, with metrics and alerts, also while the app is dead or held."""
