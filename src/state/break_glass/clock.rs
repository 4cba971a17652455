//! A wall clock that went back: the dates of what has happened to a cluster's credentials are drawn in.
//!
//! Knows which times are of what has happened. The end of a certificate is none of them: it stands in the
//! certificate.

use super::super::shared::{Trouble, clock};
use super::model::{Announcement, AuthorityKind, BreakGlass};
use super::policy::Policy;
use crate::time::Timestamp;

impl BreakGlass {
    /// The same record with everything that has happened dated now at the latest, in the order in which it
    /// happened, and nothing put off for longer than anything ever is; `None` when the clock is as it should be.
    #[must_use]
    pub fn drawn_in(&self, now: Timestamp) -> Option<Self> {
        let mut record = self.clone();
        let ahead = clock::is_ahead(&record.happened(), now);
        let put_off = record.put_off().iter().any(|at| clock::is_put_off(**at, now));
        if !ahead && !put_off {
            return None;
        }
        // What a control signed begins when it was made, so one from the future is accepted by nobody.
        for authority in &mut record.authorities {
            let early = authority.made_at.is_some_and(|at| at > now);
            if early && authority.kind == AuthorityKind::Control {
                authority.made_at = Some(now.minus(Policy::CONTROL_RENEWAL));
            }
        }
        clock::draw_in(record.happened(), now);
        for at in record.put_off().into_iter().filter(|at| **at > now) {
            *at = now;
        }
        Some(record)
    }

    /// The times until which something waits.
    fn put_off(&mut self) -> Vec<&mut Timestamp> {
        let credentials = self.credentials.iter_mut().map(|one| &mut one.next_attempt_at);
        let revocations = self.revocations.iter_mut().map(|one| &mut one.next_attempt_at);
        let authorities = self.authorities.iter_mut().map(|one| &mut one.next_attempt_at);
        let quarantine = self.quarantine.iter_mut().map(|one| &mut one.retry_at);
        credentials.chain(revocations).chain(authorities).chain(quarantine).collect()
    }

    /// The times of what has happened.
    fn happened(&mut self) -> Vec<&mut Timestamp> {
        let mut times = Vec::new();
        times.extend(self.quarantine.iter_mut().map(|one| &mut one.since));
        for one in &mut self.credentials {
            times.push(&mut one.state_since);
            times.extend(&mut one.created_at);
            times.extend(&mut one.accepted_at);
            times.extend(&mut one.issued_at);
            times.extend(&mut one.revoked_at);
            times.extend(one.endpoints.iter_mut().flat_map(|row| &mut row.seen_at));
            times.extend(of_work(&mut one.call, &mut one.trouble));
        }
        for one in &mut self.revocations {
            times.extend([&mut one.state_since, &mut one.created_at]);
            times.extend(&mut one.ended_at);
            times.extend(one.endpoints.iter_mut().flat_map(|row| &mut row.seen_at));
            times.extend(of_work(&mut one.call, &mut one.trouble));
        }
        for one in &mut self.authorities {
            times.extend(&mut one.made_at);
            times.extend(of_work(&mut one.call, &mut one.trouble));
        }
        times
    }
}

fn of_work<'a>(
    call: &'a mut Option<Announcement>,
    trouble: &'a mut Trouble,
) -> impl Iterator<Item = &'a mut Timestamp> {
    let call = call.iter_mut().map(|call| &mut call.at);
    call.chain(&mut trouble.since).chain(&mut trouble.counting_since)
}
