-- The hundred most active players of all games. It reads gold, not events.
CREATE OR REFRESH MATERIALIZED VIEW leader_board
COMMENT 'The hundred players with most events, over all games'
TBLPROPERTIES ('pipelines.trigger.interval' = '30 seconds') AS
SELECT gamer_id, sum(session_count) AS events, count(*) AS games, max(max_timestamp) AS last_seen
FROM gold_all
GROUP BY gamer_id
ORDER BY events DESC, gamer_id
LIMIT 100;
