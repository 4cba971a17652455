//! What became of the calls that were open when the process died.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr as _;

use hyperfleet_credentials::state::pull_secret::Call;

use super::judge::{OpenCall, Told};

/// Where it died: the point, and the call it was about.
pub type Place = (String, String);

/// Every death and what it left open.
#[derive(Debug, Default)]
pub struct Deaths(Vec<(Place, Vec<OpenCall>)>);

impl Deaths {
    pub fn note(&mut self, place: Place, open: Vec<OpenCall>) {
        self.0.push((place, open));
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn table(&self, told: &[Told]) -> Table {
        let mut table = Table::default();
        for (place, open) in &self.0 {
            let row = table.0.entry(place.clone()).or_default();
            row.kills += 1;
            row.nothing += usize::from(open.is_empty());
            for call in open {
                // A named place is about one kind of call; what others had open beside it is only counted.
                if Call::from_str(&place.1).is_ok() && call.call != place.1 {
                    row.beside += 1;
                    continue;
                }
                *match fate(call, told) {
                    Fate::Adopted => &mut row.adopted,
                    Fate::Burnt => &mut row.burnt,
                    Fate::Repeated => &mut row.repeated,
                    Fate::Overtaken => &mut row.overtaken,
                } += 1;
            }
        }
        table
    }
}

enum Fate {
    Adopted,
    Burnt,
    Repeated,
    Overtaken,
}

/// The first thing after the death that settles it.
fn fate(open: &OpenCall, told: &[Told]) -> Fate {
    let later =
        told.iter().filter(|line| line.event_id > open.after && line.account == open.account);
    for line in later {
        match line.action.as_str() {
            "account_created" if line.is_adopted() => return Fate::Adopted,
            "account_burnt" => return Fate::Burnt,
            "call_announced" if line.call.as_deref() == Some(&open.call) => return Fate::Repeated,
            _ => {}
        }
    }
    // Its end was told, and the state wanted something else by then.
    Fate::Overtaken
}

#[derive(Debug, Default)]
struct Row {
    kills: usize,
    nothing: usize,
    adopted: usize,
    burnt: usize,
    repeated: usize,
    overtaken: usize,
    beside: usize,
}

#[derive(Debug, Default)]
pub struct Table(BTreeMap<Place, Row>);

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| killed | call | kills | nothing open | adopted | burnt | repeated | overtaken | open beside |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for ((point, call), row) in &self.0 {
            let Row { kills, nothing, adopted, burnt, repeated, overtaken, beside } = row;
            writeln!(
                f,
                "| {point} | {call} | {kills} | {nothing} | {adopted} | {burnt} | {repeated} | {overtaken} | {beside} |"
            )?;
        }
        Ok(())
    }
}
