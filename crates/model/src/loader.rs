//! Loaders: fence the old stock, wait for what is under way, load the new epoch from the ledger, open
//! it. Two may be at it; only one owns the rebuild, and the other may wake up at any time.

use crate::actions::{Action, Step};
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Bucket, Loader, Orders, Phase, REBUILDS, Record, Stage, State, Status};
use crate::witness::Invariant;

impl Protocol {
    pub(crate) fn loader_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for loader in 0..self.scope.loaders {
            if self.may_begin(state, loader, self.scope.rebuilds) {
                actions.push(Action::Begin { loader });
            }
            actions.extend(self.next_step(state, loader).map(|step| Action::Load { loader, step }));
            // As the sweeper of its process does, and with that one's memory: not while the message may
            // still stand in the queue.
            for (order, epoch) in self.left_in_outboxes(state, loader) {
                if self.wants_end(state, loader, order) {
                    actions.push(Action::NoteEnd { sweeper: loader, order });
                }
                if self.is_due(state, loader, order) && self.has_room(state) {
                    actions.push(Action::PublishOutbox { loader, order, epoch });
                }
            }
        }
    }

    /// Whether the loader may start a rebuild, or take over the one of the other loader; one that
    /// started anew after a crash is told by the other loader.
    pub(crate) fn may_begin(&self, state: &State, loader: u8, rebuilds: u8) -> bool {
        match state.ledger.fence {
            None => state.ledger.epoch < rebuilds,
            Some(owner) if self.has(Planted::SecondRebuildBeside) => {
                owner != loader && state.ledger.epoch < rebuilds
            }
            Some(owner) => owner != loader,
        }
    }

    pub(crate) fn begin(&self, state: &mut State, loader: u8) {
        if state.ledger.fence.is_none() || self.has(Planted::SecondRebuildBeside) {
            state.ledger.epoch += 1;
        }
        state.ledger.fence = Some(loader);
        let epoch = state.ledger.epoch;
        state.loaders[usize::from(loader)] = Loader { stage: Stage::Begun, epoch, ..Loader::default() };
    }

    /// What the loader does next, by how far it came; nothing where it is idle or has to wait.
    pub(crate) fn next_step(&self, state: &State, loader: u8) -> Option<Step> {
        let it = state.loaders[usize::from(loader)];
        let waits = self.left_in_outboxes(state, loader).next().is_some();
        Some(match it.stage {
            Stage::Idle => return None,
            Stage::Begun => Step::FenceOld,
            Stage::OldFenced if waits && !self.has(Planted::EndBeforeOutbox) => return None,
            Stage::OldFenced if state.queue.behind > 0 => Step::LowerToEnd,
            Stage::OldFenced => Step::ReadEnd,
            Stage::EndRead => Step::StoreBarrier,
            Stage::BarrierStored if self.has_passed(state, it.epoch) => Step::BeginLoad,
            Stage::BarrierStored => Step::LowerToEnd,
            Stage::LoadBegun => Step::ReadSnapshot,
            Stage::SnapshotRead => Step::LoadItems,
            Stage::ItemsLoaded => Step::LoadHolds,
            Stage::HoldsLoaded => Step::ReadBack,
            Stage::ReadBack => Step::Flip,
            Stage::Opened => Step::LiftFence,
        })
    }

    /// Orders in the outboxes of older epochs that the ledger does not know.
    pub(crate) fn left_in_outboxes(&self, state: &State, loader: u8) -> impl Iterator<Item = (u8, u8)> {
        let it = state.loaders[usize::from(loader)];
        let old = if it.stage == Stage::OldFenced { it.epoch } else { 0 };
        let unknown = state.orders_where(|status| status == Status::Unknown);
        let outboxes = state.buckets.map(|bucket| bucket.outbox);
        (0..old).flat_map(move |epoch| {
            let outbox = outboxes[usize::from(epoch)].each();
            outbox.filter(move |order| unknown.has(*order)).map(move |order| (order, epoch))
        })
    }

    pub(crate) fn publish_outbox(&self, state: &mut State, loader: u8, order: u8, epoch: u8) {
        state.noted[usize::from(loader)][usize::from(order)] = None;
        self.append(state, Record { order, epoch, swept: true });
    }

    pub(crate) fn load(&self, state: &mut State, loader: u8, step: Step) {
        match step {
            Step::FenceOld => self.fence_old(state, loader),
            Step::ReadEnd => {
                let end = i8::try_from(state.queue.len).unwrap_or(i8::MAX);
                let it = &mut state.loaders[usize::from(loader)];
                (it.end, it.stage) = (end, Stage::EndRead);
            }
            Step::StoreBarrier => self.store_barrier(state, loader),
            Step::LowerToEnd => self.lower_to_end(state, loader),
            Step::BeginLoad => self.begin_load(state, loader),
            Step::ReadSnapshot => self.read_snapshot(state, loader),
            Step::LoadItems | Step::LoadHolds => self.load_page(state, loader, step),
            Step::ReadBack => self.read_back(state, loader),
            Step::Flip => self.flip(state, loader),
            Step::LiftFence => {
                if self.owns(state, loader) {
                    state.ledger.fence = None;
                }
                state.loaders[usize::from(loader)] = Loader::default();
            }
        }
    }

    /// Whether the ledger still calls this loader the owner.
    fn owns(&self, state: &State, loader: u8) -> bool {
        state.ledger.fence == Some(loader) || self.has(Planted::SecondRebuildBeside)
    }

    fn has_passed(&self, state: &State, epoch: u8) -> bool {
        state.ledger.barriers[usize::from(epoch)].is_some_and(|barrier| barrier <= 0)
    }

    fn fence_old(&self, state: &mut State, loader: u8) {
        let it = &mut state.loaders[usize::from(loader)];
        it.stage = Stage::OldFenced;
        for bucket in state.buckets.iter_mut().take(usize::from(it.epoch)) {
            bucket.phase = Phase::Fenced;
        }
    }

    fn store_barrier(&self, state: &mut State, loader: u8) {
        let it = state.loaders[usize::from(loader)];
        if !self.owns(state, loader) {
            return self.give_way(state, loader);
        }
        let stored = &mut state.ledger.barriers[usize::from(it.epoch)];
        if stored.is_none() || self.has(Planted::BarrierStoredTwice) {
            *stored = Some(it.end.max(0));
        }
        state.loaders[usize::from(loader)].stage = Stage::BarrierStored;
        state.loaders[usize::from(loader)].end = 0;
    }

    /// What lies beyond the queue's end cannot be waited for: the queue has lost it.
    fn lower_to_end(&self, state: &mut State, loader: u8) {
        let it = state.loaders[usize::from(loader)];
        if !self.owns(state, loader) {
            return self.give_way(state, loader);
        }
        if state.queue.behind > 0 {
            self.cut_back(state);
        }
        let end = i8::try_from(state.queue.len).unwrap_or(i8::MAX);
        if let Some(barrier) = &mut state.ledger.barriers[usize::from(it.epoch)]
            && !self.has(Planted::BarrierNeverLowered)
        {
            *barrier = end.min(*barrier);
        }
    }

    fn begin_load(&self, state: &mut State, loader: u8) {
        let epoch = state.loaders[usize::from(loader)].epoch;
        let bucket = state.bucket_mut(epoch);
        let stage = match bucket.phase {
            Phase::Open if !self.has(Planted::PreheatIsSet) => Stage::Opened,
            // A later rebuild has stopped this epoch.
            Phase::Fenced => Stage::Idle,
            Phase::Missing | Phase::Loading | Phase::Open => {
                *bucket = Bucket { phase: Phase::Loading, token: loader, ..Bucket::default() };
                Stage::LoadBegun
            }
        };
        state.loaders[usize::from(loader)].stage = stage;
    }

    fn read_snapshot(&self, state: &mut State, loader: u8) {
        if !self.owns(state, loader) {
            return self.give_way(state, loader);
        }
        let live = state.orders_where(Status::is_live);
        let closed = state.orders_where(Status::is_terminal);
        let it = &mut state.loaders[usize::from(loader)];
        (it.live, it.closed, it.stage) = (live, closed, Stage::SnapshotRead);
    }

    /// Writes one page, into a bucket that is loading and this loader's. A page that is there already
    /// (of an earlier attempt, which a stock that went back brought again) is left as it is: reading
    /// back decides.
    fn load_page(&self, state: &mut State, loader: u8, step: Step) {
        let it = state.loaders[usize::from(loader)];
        let held = self.units_of(it.live);
        let quantity = self.scope.quantity;
        let bucket = state.bucket_mut(it.epoch);
        let mine = bucket.phase == Phase::Loading && bucket.token == loader;
        if !mine && !self.has(Planted::StalledLoaderWrites) {
            return self.start_again(state, loader);
        }
        let again = !mine || self.has(Planted::PageWrittenAgain);
        let stage = match step {
            Step::LoadItems if bucket.pages > 0 && !again => Stage::ItemsLoaded,
            Step::LoadItems => {
                (bucket.allocated, bucket.free, bucket.pages) = (quantity, quantity, 1);
                Stage::ItemsLoaded
            }
            _ if bucket.pages > 1 && !again => Stage::HoldsLoaded,
            _ if bucket.pages != 1 || bucket.free < held => return self.start_again(state, loader),
            _ => {
                bucket.free -= held;
                bucket.pages = 2;
                (bucket.holds, bucket.taken, bucket.gone) = (it.live, it.live, it.closed);
                Stage::HoldsLoaded
            }
        };
        state.loaders[usize::from(loader)].stage = stage;
    }

    fn read_back(&self, state: &mut State, loader: u8) {
        let it = state.loaders[usize::from(loader)];
        let bucket = state.buckets[usize::from(it.epoch)];
        let whole = bucket.holds == it.live && bucket.gone == it.closed && bucket.pages == 2;
        if !whole {
            return self.start_again(state, loader);
        }
        let it = &mut state.loaders[usize::from(loader)];
        (it.pages, it.stage) = (bucket.pages, Stage::ReadBack);
        (it.live, it.closed) = (Orders::default(), Orders::default());
    }

    fn flip(&self, state: &mut State, loader: u8) {
        let it = state.loaders[usize::from(loader)];
        let bucket = state.bucket_mut(it.epoch);
        let mine = bucket.phase == Phase::Loading && bucket.token == loader;
        let as_read = bucket.pages == it.pages || self.has(Planted::FlipWithoutReadBack);
        if !mine || !as_read {
            return self.start_again(state, loader);
        }
        bucket.phase = Phase::Open;
        let holds = bucket.holds;
        let opened = &mut state.witness.opened[usize::from(it.epoch)];
        *opened = 2.min(*opened + 1);
        if *opened > 1 && state.witness.damaged == 0 {
            state.witness.note(Invariant::I15);
        }
        let forgotten = state.orders_where(Status::is_live).each().any(|order| !holds.has(order));
        if forgotten && state.witness.opened[usize::from(it.epoch)] == 1 {
            // An order became live behind the back of whoever loaded this.
            state.witness.note(Invariant::I16);
        }
        state.loaders[usize::from(loader)] =
            Loader { stage: Stage::Opened, epoch: it.epoch, ..Loader::default() };
    }

    /// The bucket is not as this loader left it: it loads again, if the rebuild is still its own.
    fn start_again(&self, state: &mut State, loader: u8) {
        let it = state.loaders[usize::from(loader)];
        let stage = if self.owns(state, loader) { Stage::BarrierStored } else { Stage::Idle };
        let epoch = if stage == Stage::Idle { 0 } else { it.epoch };
        state.loaders[usize::from(loader)] = Loader { stage, epoch, ..Loader::default() };
    }

    /// Another loader owns the rebuild.
    fn give_way(&self, state: &mut State, loader: u8) {
        state.loaders[usize::from(loader)] = Loader::default();
    }

    /// Takes a rebuild as far as it goes without waiting; for healing.
    pub(crate) fn rebuild(&self, state: &mut State) {
        const LOADER: u8 = 0;
        let started = state.loaders[usize::from(LOADER)].stage != Stage::Idle;
        if !started && (state.ledger.fence.is_some() || state.bucket().phase != Phase::Open) {
            // A process that was started anew: nobody else is at it any more.
            state.ledger.fence = state.ledger.fence.map(|_| LOADER + 1);
            if self.may_begin(state, LOADER, REBUILDS) {
                self.begin(state, LOADER);
            }
        }
        for _ in 0..REBUILD_STEPS {
            let left = self.left_in_outboxes(state, LOADER).next();
            if let Some((order, epoch)) = left {
                if self.wants_end(state, LOADER, order) {
                    self.note_end(state, LOADER, order);
                } else if self.is_due(state, LOADER, order) && state.queue.len == 0 {
                    self.publish_outbox(state, LOADER, order, epoch);
                }
            }
            let Some(step) = self.next_step(state, LOADER) else { return };
            self.load(state, LOADER, step);
        }
    }
}

/// Steps of a rebuild without waiting.
const REBUILD_STEPS: usize = 16;
