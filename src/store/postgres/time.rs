//! A time in PostgreSQL: TIMESTAMPTZ, which is microseconds too, counted from the year 2000.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef, Postgres};
use sqlx::{Decode, Encode, Type};

use crate::time::Timestamp;

const TIMESTAMPTZ: Oid = Oid(1184);
/// 2000-01-01 in microseconds since 1970.
const YEAR_2000: i64 = 946_684_800_000_000;
/// 4713 BC, the earliest time that there is; what is before it is the past without a beginning.
const EARLIEST: i64 = -211_813_488_000_000_000;
const MINUS_INFINITY: i64 = i64::MIN;

const fn to_wire(time: Timestamp) -> i64 {
    let micros = time.as_micros().saturating_sub(YEAR_2000);
    if micros < EARLIEST { MINUS_INFINITY } else { micros }
}

const fn from_wire(micros: i64) -> Timestamp {
    match micros {
        MINUS_INFINITY => Timestamp::from_micros(i64::MIN),
        micros => Timestamp::from_micros(micros.saturating_add(YEAR_2000)),
    }
}

impl Type<Postgres> for Timestamp {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl Encode<'_, Postgres> for Timestamp {
    fn encode_by_ref(&self, into: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode_by_ref(&to_wire(*self), into)
    }
}

impl Decode<'_, Postgres> for Timestamp {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => <i64 as Decode<Postgres>>::decode(value).map(from_wire),
            PgValueFormat::Text => Err("times are read in the binary format only".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_microsecond_survives() {
        let now = 1_800_000_000_123_457;
        for micros in [0, 1, -1, now, YEAR_2000, i64::MAX, EARLIEST + YEAR_2000, i64::MIN] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(from_wire(to_wire(time)), time);
        }
        assert_eq!(to_wire(Timestamp::from_micros(i64::MIN + 1)), MINUS_INFINITY);
    }
}
