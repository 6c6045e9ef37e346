"""The table of events: what the app has done and met, as a follower of the units writes it."""
