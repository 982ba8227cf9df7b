//! The period that a list or an export is limited to.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::Timestamp;

use crate::exit::{Exit, Failure};
use crate::resource::Filter;
use crate::value::moment;

/// From when on, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct Period {
    /// Only from this time on, by the time in ids: 24h, yesterday, 2026-11-22, RFC 3339, or seconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only before this time, by the time in ids
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

impl Period {
    /// The filters of a list. A period that nothing can be in is refused.
    pub(crate) fn filters(&self) -> Result<[Filter; 2], Failure> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since >= until
        {
            let what = format!("nothing is in this period: --since {since} is not before --until {until}");
            return Err(Failure::new(Exit::Usage, what).next("exchange the two, or leave one out"));
        }
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Ok([("since", text(self.since)), ("until", text(self.until))])
    }
}
