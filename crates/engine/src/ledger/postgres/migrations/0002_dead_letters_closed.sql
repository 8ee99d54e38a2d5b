-- Who closed a dead letter, how and why. Letters are closed, never deleted.
ALTER TABLE dead_letter
    ADD COLUMN closed_at     bigint,
    ADD COLUMN closed_how    text,
    ADD COLUMN closed_by     text,
    ADD COLUMN closed_reason text;
