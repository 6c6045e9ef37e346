-- Players whose rate no person can keep up for an hour: more than an event a second.
CREATE OR REFRESH MATERIALIZED VIEW suspects
COMMENT 'Players with more than 3,600 events in an hour'
TBLPROPERTIES ('pipelines.trigger.interval' = '1 minute') AS
SELECT gamer_id, game, hour, events
FROM player_hours
WHERE events > 3600;
