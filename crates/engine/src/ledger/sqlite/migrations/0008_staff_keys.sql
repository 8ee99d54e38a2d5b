-- What an Idempotency-Key of the staff's stands for: the request's digest, and its answer once there is one that may
-- be given again. A key is one member's, once.
ALTER TABLE staff_action ADD COLUMN idempotency_key TEXT;
ALTER TABLE staff_action ADD COLUMN digest TEXT;
ALTER TABLE staff_action ADD COLUMN answer TEXT;
CREATE UNIQUE INDEX staff_action_key ON staff_action (done_by, idempotency_key) WHERE idempotency_key IS NOT NULL;
