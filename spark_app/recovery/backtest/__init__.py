"""Counts how many rows of a lake's history the expectations of the settings would pass and fail, and changes nothing.

A backtest reads the rows of silver, and decodes the records that expectations keep out of silver again, in this
process: it needs no Spark, takes no lock, and runs beside the app.
"""

from spark_app.recovery.backtest.backtester import backtest
from spark_app.recovery.backtest.outcomes import Outcomes

__all__ = ["Outcomes", "backtest"]
