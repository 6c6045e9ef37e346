-- Events of each player and hour. New rows alone are read, so the cost does not grow with the history.
CREATE OR REFRESH MATERIALIZED VIEW player_hours
COMMENT 'Events of each player, by game and hour'
TBLPROPERTIES ('pipelines.trigger.interval' = '10 seconds') AS
SELECT _table AS game, gamer_id, date_trunc('HOUR', event_timestamp) AS hour,
       count(*) AS events, min(event_timestamp) AS first, max(event_timestamp) AS last
FROM silver_all
GROUP BY ALL;
