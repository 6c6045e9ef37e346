-- Tables by SQL of all modes over the events of the demo.
CREATE MATERIALIZED VIEW derived_hours TBLPROPERTIES ('pipelines.trigger.interval' = '1 second') AS
SELECT _table AS game, gamer_id, date_trunc('HOUR', event_timestamp) AS hour, count(*) AS n, max(_offset) AS last
FROM silver_all GROUP BY ALL;

CREATE MATERIALIZED VIEW derived_rows TBLPROPERTIES ('pipelines.trigger.interval' = '1 second') AS
SELECT _table AS game, _topic_id, _partition, _offset, upper(gamer_id) AS gamer FROM silver_all WHERE _offset % 10 = 3;

CREATE TEMPORARY VIEW of_games AS SELECT _table AS game, gamer_id, session_count FROM gold_all;
CREATE MATERIALIZED VIEW derived_board TBLPROPERTIES ('pipelines.trigger.interval' = '3 seconds') AS
SELECT o.gamer_id, sum(o.session_count) AS sessions, count(DISTINCT h.hour) AS hours
FROM of_games o LEFT JOIN derived_hours h USING (gamer_id) GROUP BY o.gamer_id ORDER BY sessions DESC, gamer_id LIMIT 50;
