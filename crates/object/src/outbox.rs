//! The outboxes in the index: rules by bucket, events by target and number, and counts by target.
//!
//! Always true: the number of a target's events is the one in its row of counts.

use redb::ReadableTable;

use crate::error::Result;
use crate::events::{EventKind, EventRule, EventSubject, ObjectEvent, check_rules, events_of, tests_of};
use crate::index::{IndexSnapshot, IndexTxn, failed};
use crate::keys;
use crate::record::{BucketRecord, decode, encode};
use crate::types::Outcome;

impl IndexTxn<'_> {
    /// Sets the rules of a bucket with the setting that describes them. Each target gets a test.
    pub(crate) fn set_event_rules(
        &mut self,
        bucket: &str,
        rules: &[EventRule],
        (name, value): (String, Option<String>),
        now_ms: u64,
    ) -> Result<Outcome> {
        check_rules(rules)?;
        let number = self.bucket(bucket)?.number;
        let outcome = self.set_bucket(bucket, name, value)?;
        if rules.is_empty() {
            self.remove_event_rules(number)?;
        } else {
            self.event_rules.insert(number, encode(&rules)?.as_slice()).map_err(failed)?;
        }
        for (target, event) in tests_of(rules, bucket, &self.source, now_ms) {
            self.append_event(&target, event)?;
        }
        Ok(outcome)
    }

    pub(crate) fn remove_event_rules(&mut self, bucket: u64) -> Result<()> {
        self.event_rules.remove(bucket).map_err(failed)?;
        Ok(())
    }

    /// Stores the events of a change.
    pub(crate) fn record_events(
        &mut self,
        bucket: &BucketRecord,
        kind: EventKind,
        subject: &EventSubject,
    ) -> Result<()> {
        let Some(rules) = rules_of(&self.event_rules, bucket.number)? else { return Ok(()) };
        for (target, event) in events_of(&rules, &bucket.info.name, kind, &self.source, subject) {
            self.append_event(&target, event)?;
        }
        Ok(())
    }

    fn append_event(&mut self, target: &str, event: ObjectEvent) -> Result<()> {
        let (pending, dropped) = self.outbox(target)?.unwrap_or_default();
        if pending >= self.outbox_max {
            self.outboxes.insert(target, (pending, dropped + 1)).map_err(failed)?;
            return Ok(());
        }
        let number = self.next_event()?;
        let row = keys::event_key(target, number);
        let value = encode(&ObjectEvent { number, ..event })?;
        self.events.insert(row.as_slice(), value.as_slice()).map_err(failed)?;
        self.outboxes.insert(target, (pending + 1, dropped)).map_err(failed)?;
        self.has_new_events = true;
        Ok(())
    }

    fn outbox(&self, target: &str) -> Result<Option<(u64, u64)>> {
        Ok(self.outboxes.get(target).map_err(failed)?.map(|row| row.value()))
    }

    /// Removes the events of a target up to a number.
    pub(crate) fn acknowledge_events(&mut self, target: &str, through: u64) -> Result<Outcome> {
        let Some((pending, dropped)) = self.outbox(target)? else { return Ok(Outcome::Done) };
        let removed = self.remove_events(target, through)?;
        self.outboxes.insert(target, (pending - removed, dropped)).map_err(failed)?;
        Ok(Outcome::Done)
    }

    /// Removes the outbox of a target with its events and counts.
    pub(crate) fn delete_outbox(&mut self, target: &str) -> Result<Outcome> {
        self.remove_events(target, u64::MAX)?;
        self.outboxes.remove(target).map_err(failed)?;
        Ok(Outcome::Done)
    }

    fn remove_events(&mut self, target: &str, through: u64) -> Result<u64> {
        let (first, last) = (keys::event_key(target, 0), keys::event_key(target, through));
        let mut removed = 0;
        let rows = self.events.extract_from_if(first.as_slice()..=last.as_slice(), |_, _| true);
        for row in rows.map_err(failed)? {
            row.map_err(failed)?;
            removed += 1;
        }
        Ok(removed)
    }
}

fn rules_of(table: &impl ReadableTable<u64, &'static [u8]>, bucket: u64) -> Result<Option<Vec<EventRule>>> {
    let row = table.get(bucket).map_err(failed)?;
    row.map(|row| decode(row.value())).transpose()
}

impl IndexSnapshot<'_> {
    /// Returns the rules of a bucket.
    pub(crate) fn event_rules(&self, bucket: &str) -> Result<Vec<EventRule>> {
        let number = self.bucket(bucket)?.number;
        Ok(rules_of(&self.event_rules_table()?, number)?.unwrap_or_default())
    }

    /// Returns up to `limit` events of a target, the oldest first.
    pub(crate) fn events(&self, target: &str, limit: usize) -> Result<Vec<ObjectEvent>> {
        let table = self.table(crate::index::EVENTS)?;
        let (first, last) = (keys::event_key(target, 0), keys::event_key(target, u64::MAX));
        let mut events = Vec::new();
        for row in table.range(first.as_slice()..=last.as_slice()).map_err(failed)?.take(limit) {
            events.push(decode(row.map_err(failed)?.1.value())?);
        }
        Ok(events)
    }
}
