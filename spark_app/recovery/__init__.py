"""A person's commands on a lake: replay, rebuild, resume, doctor, `backtest`."""
