-- Records in quarantine by cause and hour, without their bytes: for boards.
CREATE OR REFRESH MATERIALIZED VIEW quarantined
COMMENT 'Records in quarantine, by cause and hour'
TBLPROPERTIES ('pipelines.trigger.interval' = '1 minute') AS
SELECT cause, date_trunc('HOUR', quarantined_at) AS hour, count(*) AS records
FROM quarantine_events
GROUP BY ALL;
