"""All settings, with their defaults and checks. They are read once, before the app opens the lake."""
