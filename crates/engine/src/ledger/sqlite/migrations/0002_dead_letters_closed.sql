-- Who closed a dead letter, how and why. Letters are closed, never deleted.
ALTER TABLE dead_letter ADD COLUMN closed_at INTEGER;
ALTER TABLE dead_letter ADD COLUMN closed_how TEXT;
ALTER TABLE dead_letter ADD COLUMN closed_by TEXT;
ALTER TABLE dead_letter ADD COLUMN closed_reason TEXT;
