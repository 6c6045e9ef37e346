"""The process that watches a lake: `views` in a browser, `metrics`, `alerts`, `lineage`, SQL `queries`."""
