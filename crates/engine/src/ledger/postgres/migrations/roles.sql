-- What each kind of process may do, and no more. Roles without login: grant them to users that can
-- log in, such as `GRANT doorbuster_gateway TO shop`. `{schema}` is the ledger's schema. May be run
-- any number of times, and must be run again after a migration that adds a table.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['doorbuster_gateway', 'doorbuster_recorder', 'doorbuster_keeper', 'doorbuster_migrate'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
END
$$;

-- Migrations change tables, which only their owner may.
DO $$
DECLARE
    owned text;
BEGIN
    FOR owned IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP
        EXECUTE format('ALTER TABLE "{schema}".%I OWNER TO doorbuster_migrate', owned);
    END LOOP;
END
$$;
ALTER SCHEMA "{schema}" OWNER TO doorbuster_migrate;

GRANT USAGE ON SCHEMA "{schema}" TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
REVOKE ALL ON ALL TABLES IN SCHEMA "{schema}" FROM doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;

-- Gateways: buyers cancel and pay; staff make sales, move their states and quantities, fence them,
-- and replay or drop dead letters.
GRANT INSERT ON "{schema}".sale, "{schema}".item, "{schema}".buyer, "{schema}".orders, "{schema}".order_event,
    "{schema}".release_row, "{schema}".payment, "{schema}".payment_event,
    "{schema}".payment_attempt, "{schema}".refund, "{schema}".restock, "{schema}".shop_event TO doorbuster_gateway;
-- Every process has a listener for the staff, whose trail and switches nobody takes back.
GRANT INSERT ON "{schema}".switch, "{schema}".staff_action TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
GRANT UPDATE (status, answer) ON "{schema}".staff_action TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
GRANT INSERT, UPDATE (lifted_reason, lifted_by, lifted_at, changed)
    ON "{schema}".block TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
GRANT UPDATE (changed, standing) ON "{schema}".block_state TO doorbuster_gateway, doorbuster_recorder, doorbuster_keeper;
GRANT UPDATE (state, opens_at, epoch, recorded_seq, fence_reason, fence_token, fence_since)
    ON "{schema}".sale TO doorbuster_gateway;
GRANT UPDATE (quantity, sold, paid) ON "{schema}".item TO doorbuster_gateway;
GRANT UPDATE (units) ON "{schema}".buyer TO doorbuster_gateway;
GRANT UPDATE (status, strike, hold_until) ON "{schema}".orders TO doorbuster_gateway;
GRANT UPDATE (ord, amount_minor, currency, outcome, at, retake) ON "{schema}".payment TO doorbuster_gateway;
GRANT UPDATE (reference, url, closed_at, ask_at) ON "{schema}".payment_attempt TO doorbuster_gateway;
GRANT UPDATE (state, reference, said, due_at) ON "{schema}".refund TO doorbuster_gateway;
GRANT UPDATE (state) ON "{schema}".restock TO doorbuster_gateway;
GRANT UPDATE (closed_at, closed_how, closed_by, closed_reason) ON "{schema}".dead_letter TO doorbuster_gateway;
GRANT UPDATE (state, tries, next_at) ON "{schema}".event_delivery TO doorbuster_gateway;

-- Recorders: new orders, counts and positions; they never change an order that is there. They fence
-- a sale whose stock is ahead of the ledger.
GRANT INSERT ON "{schema}".orders, "{schema}".order_event, "{schema}".release_row, "{schema}".buyer,
    "{schema}".dead_letter, "{schema}".queue_offset, "{schema}".shop_event TO doorbuster_recorder;
GRANT UPDATE (epoch, recorded_seq, fence_reason, fence_token, fence_since) ON "{schema}".sale TO doorbuster_recorder;
GRANT UPDATE (sold) ON "{schema}".item TO doorbuster_recorder;
GRANT UPDATE (units) ON "{schema}".buyer TO doorbuster_recorder;
-- A keeper that rebuilds takes a position or a barrier back to the end of a queue that was cut short.
GRANT UPDATE (next) ON "{schema}".queue_offset TO doorbuster_recorder, doorbuster_keeper;
GRANT UPDATE (barrier) ON "{schema}".epoch_barrier TO doorbuster_keeper, doorbuster_gateway;

-- Keepers: expire, release, restock, rebuild, the sales' clock; they ask payment providers, settle late
-- payments, give money back, and tell the shop of events.
GRANT INSERT ON "{schema}".order_event, "{schema}".release_row, "{schema}".epoch_barrier,
    "{schema}".queue_offset, "{schema}".orders, "{schema}".payment, "{schema}".payment_event,
    "{schema}".refund, "{schema}".shop_event, "{schema}".event_endpoint, "{schema}".event_delivery TO doorbuster_keeper;
GRANT UPDATE (ord, amount_minor, currency, outcome, at, retake) ON "{schema}".payment TO doorbuster_keeper;
GRANT UPDATE (closed_at, ask_at, asks) ON "{schema}".payment_attempt TO doorbuster_keeper;
GRANT UPDATE (state, reference, said, tries, due_at) ON "{schema}".refund TO doorbuster_keeper;
GRANT UPDATE ON "{schema}".event_horizon, "{schema}".event_endpoint TO doorbuster_keeper;
GRANT UPDATE (state, attempts, tries, next_at, leased_until, attempted_at, status, answer), DELETE
    ON "{schema}".event_delivery TO doorbuster_keeper;
GRANT UPDATE (state, opens_at, epoch, recorded_seq, fence_reason, fence_token, fence_since)
    ON "{schema}".sale TO doorbuster_keeper;
GRANT UPDATE (quantity, sold, paid) ON "{schema}".item TO doorbuster_keeper;
GRANT UPDATE (units) ON "{schema}".buyer TO doorbuster_keeper;
GRANT UPDATE (status, strike, hold_until) ON "{schema}".orders TO doorbuster_keeper;
GRANT UPDATE (state) ON "{schema}".restock TO doorbuster_keeper;
GRANT UPDATE (ord), DELETE ON "{schema}".release_row TO doorbuster_keeper;
