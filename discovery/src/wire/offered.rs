//! When, how long and how far ahead a site offers its hosts, as an extra entry of its advert, once for all of them: a reader that does not
//! know it takes them as offered always, and their site refuses its holds.

use std::sync::Arc;

use broker::{
    offered::{Offered, Spans},
    time::{Span, Time, Window},
};

use super::{
    encoding::{DecodeError, EncodeError, decode, encode},
    envelope::{EXTRA_VALUE_BYTES_MAX, Extra},
};

/// Its key.
const KEY: &str = "offered";

/// Longest seat and reach in seconds; and of each span how long after the end of the one before it begins, and how long it is; whether to ask.
type Written = (Option<u64>, Option<u64>, Option<Vec<(u64, u64)>>, bool);

// A span takes at most 4 + 4 bytes where it and the gap before it are shorter than eight years.
const _: () = assert!(8 * Spans::MOST + 64 <= EXTRA_VALUE_BYTES_MAX);

/// The entry; none when everything is offered.
///
/// # Errors
/// [`EncodeError`].
pub fn entry(offered: &Offered) -> Result<Option<(String, Vec<u8>)>, EncodeError> {
    if offered.is_everything() {
        return Ok(None);
    }
    let mut last = Time::ZERO;
    let mut written = |span: Window| {
        let gap = span.start.since(last).0;
        last = span.end;
        (gap, span.duration().0)
    };
    let spans: Option<Vec<(u64, u64)>> = offered.spans.as_ref().map(|spans| spans.iter().map(&mut written).collect());
    let written: Written = (offered.longest.map(|span| span.0), offered.reach.map(|span| span.0), spans, offered.asks);
    Ok(Some((KEY.to_owned(), encode(&written)?)))
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
    Ok(Arc::new(Offered { spans: spans.map(Arc::new), longest: longest.map(Span), reach: reach.map(Span), asks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: i64) -> Offered {
        let span = |at: i64| (1_800_000_000 + at * 43_200, 1_800_000_000 + at * 43_200 + 36_000);
        let spans = Spans::try_from((0..count).map(span).collect::<Vec<_>>()).unwrap();
        Offered { spans: Some(Arc::new(spans)), longest: Some(Span(9)), reach: None, asks: true }
    }

    fn extra(offered: &Offered) -> Extra {
        entry(offered).unwrap().into_iter().collect()
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
