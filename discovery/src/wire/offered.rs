//! When, how long and how far ahead a site offers its hosts, as extra entries of its advert, once for all of them: a reader that does not
//! know them takes them as offered always, and their site refuses its holds.
//!
//! A site that its owner empties, or whose disk is full, offers no time at all. That is written as no spans, and why in an entry of its own, so that who knows only
//! the spans plans nothing there either.

use std::sync::Arc;

use broker::{
    offered::{Offered, Spans},
    time::{Span, Time, Window},
};

use super::{
    encoding::{DecodeError, EncodeError, decode, encode},
    envelope::{EXTRA_VALUE_BYTES_MAX, Extra},
};

/// The key of the times.
const KEY: &str = "offered";
/// The key that is there while the owner empties the site; its value is empty.
const DRAINING_KEY: &str = "draining";
/// The key that is there while the site's disk is full; its value is empty.
const DISK_KEY: &str = "disk-full";

/// Longest seat and reach in seconds; and of each span how long after the end of the one before it begins, and how long it is; whether to ask.
type Written = (Option<u64>, Option<u64>, Option<Vec<(u64, u64)>>, bool);

// A span takes at most 4 + 4 bytes where it and the gap before it are shorter than eight years.
const _: () = assert!(8 * Spans::MOST + 64 <= EXTRA_VALUE_BYTES_MAX);

/// The entries; none when everything is offered.
///
/// # Errors
/// [`EncodeError`].
pub fn entries(offered: &Offered) -> Result<Extra, EncodeError> {
    if offered.is_everything() {
        return Ok(Extra::new());
    }
    let mut last = Time::ZERO;
    let mut written = |span: Window| {
        let gap = span.start.since(last).0;
        last = span.end;
        (gap, span.duration().0)
    };
    let spans = offered.spans.as_ref().filter(|_| !offered.offers_nothing());
    let spans: Option<Vec<(u64, u64)>> = spans.map(|spans| spans.iter().map(&mut written).collect());
    let spans = spans.or(offered.offers_nothing().then(Vec::new));
    let written: Written = (offered.longest.map(|span| span.0), offered.reach.map(|span| span.0), spans, offered.asks);
    let why = [(DRAINING_KEY, offered.is_draining), (DISK_KEY, offered.is_disk_full)];
    let why = why.into_iter().filter(|(_, is_so)| *is_so).map(|(key, _)| (key.to_owned(), Vec::new()));
    Ok([(KEY.to_owned(), encode(&written)?)].into_iter().chain(why).collect())
}

/// What the extra entries of an advert name; everything when they name nothing.
///
/// # Errors
/// [`DecodeError`] when the entry is malformed, or breaks a limit.
pub fn of(extra: &Extra) -> Result<Arc<Offered>, DecodeError> {
    let Some(bytes) = extra.get(KEY) else { return Ok(Arc::default()) };
    let (longest, reach, spans, asks): Written = decode::<_, EXTRA_VALUE_BYTES_MAX>(bytes)?;
    let mut last = Time::ZERO;
    let mut read = |(gap, length): (u64, u64)| {
        let start = last + Span(gap);
        last = start + Span(length);
        Window { start, end: last }
    };
    let spans = spans.map(|spans| Spans::new(spans.into_iter().map(&mut read))).transpose();
    let spans = spans.map_err(|error| DecodeError::Malformed(format!("offered: {error}")))?;
    let (spans, longest, reach) = (spans.map(Arc::new), longest.map(Span), reach.map(Span));
    let (is_draining, is_disk_full) = (extra.contains_key(DRAINING_KEY), extra.contains_key(DISK_KEY));
    Ok(Arc::new(Offered { spans, longest, reach, asks, is_draining, is_disk_full }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: i64) -> Offered {
        let span = |at: i64| (1_800_000_000 + at * 43_200, 1_800_000_000 + at * 43_200 + 36_000);
        let spans = Spans::try_from((0..count).map(span).collect::<Vec<_>>()).unwrap();
        Offered { spans: Some(Arc::new(spans)), longest: Some(Span(9)), asks: true, ..Offered::default() }
    }

    fn extra(offered: &Offered) -> Extra {
        entries(offered).unwrap()
    }

    #[test]
    fn a_site_that_is_emptied_offers_no_time_and_says_why() {
        let mut told = extra(&Offered { is_draining: true, ..spans(3) });
        assert_eq!(*of(&told).unwrap(), Offered { is_draining: true, ..spans(0) });
        // Who does not know the second entry.
        assert!(told.remove(DRAINING_KEY).is_some());
        assert_eq!(*of(&told).unwrap(), spans(0));
        assert_eq!(of(&told).unwrap().closed(Time(5)).len(), 1);
    }

    #[test]
    fn a_site_with_a_full_disk_offers_no_time_and_says_why() {
        let mut told = extra(&Offered { is_disk_full: true, ..spans(3) });
        assert_eq!(*of(&told).unwrap(), Offered { is_disk_full: true, ..spans(0) });
        assert!(told.remove(DISK_KEY).is_some());
        assert_eq!(*of(&told).unwrap(), spans(0));
        let both = Offered { is_draining: true, is_disk_full: true, ..spans(3) };
        assert_eq!(*of(&extra(&both)).unwrap(), Offered { is_draining: true, is_disk_full: true, ..spans(0) });
    }

    #[test]
    fn what_is_written_is_read_and_fits() {
        for offered in [Offered::default(), spans(0), spans(3), Offered { reach: Some(Span(7)), ..Offered::default() }]
        {
            assert_eq!(*of(&extra(&offered)).unwrap(), offered);
        }
        assert!(extra(&Offered::default()).is_empty());
        let most = spans(i64::try_from(Spans::MOST).unwrap());
        let bytes = extra(&most).remove(KEY).unwrap().len();
        assert!(bytes < EXTRA_VALUE_BYTES_MAX / 2, "{bytes}");
    }

    #[test]
    fn spans_that_are_empty_or_too_many_are_malformed() {
        let read = |spans: Vec<(u64, u64)>| {
            let written: Written = (None, None, Some(spans), false);
            of(&Extra::from([(KEY.to_owned(), encode(&written).unwrap())])).map_err(|error| error.to_string())
        };
        assert!(read(vec![(5, 5), (0, 5)]).unwrap().spans.as_ref().unwrap().iter().count() == 1);
        assert!(read(vec![(5, 0)]).unwrap_err().contains("ends before it begins, or is empty"));
        assert!(read(vec![(u64::MAX, 5)]).is_err() && read(vec![(5, u64::MAX)]).is_err());
        assert!(read(vec![(1, 1); Spans::MOST + 1]).unwrap_err().contains("at most 2000 can be published"));
    }
}
