-- One table over all games: a game that begins later follows by itself.
CREATE OR REFRESH MATERIALIZED VIEW unified_gold
COMMENT 'Each player of each game'
TBLPROPERTIES ('pipelines.trigger.interval' = '30 seconds') AS
SELECT _table AS game, gamer_id, session_count, min_timestamp, max_timestamp
FROM gold_all;
