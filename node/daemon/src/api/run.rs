//! The user's end of a stream to a seat: a call whose connection is upgraded, and from then on carries the stream.
//!
//! Invariant: a bounded number of connections is upgraded at a time; what a user has signed is passed on as it stands, and the node signs
//! only for its operator, for callers that may submit and see the request.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use broker::{
    ids::RequestId,
    needs::{ImageName, Lack, Need},
};
use discovery::{
    RunError, RunStream,
    opening::{self, Answer, Want},
    wire,
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kolo_api::RUN_PROTOCOL;
use kolo_seat::{
    carry::carry,
    opening::{FromUser, OF_STRANGER_BYTES_MAX, Opening, OpeningError, Wish},
};
use kolo_trust::Scope;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::OwnedSemaphorePermit,
    time,
};
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::{operator_token::TokenTerm, problem::Problem, scopes::Caller, state::ApiState};

/// How long the caller may take to say what the stream is for.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// Upgrades the connection to `kolo-run/1`: the caller says what it wants of a seat, signed by the user of its reservation, is told whether
/// the seat's site takes it, and then talks with what runs there.
#[utoipa::path(get, path = "/run", tag = "run", responses((status = 101, description = "The connection carries the stream")))]
pub async fn open_run(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Extension(term): Extension<TokenTerm>,
    mut request: Request,
) -> Result<Response, Problem> {
    let wants = request.headers().get(header::UPGRADE).is_some_and(|value| value == RUN_PROTOCOL);
    if !wants {
        let detail = format!("this call upgrades its connection: send `Upgrade: {RUN_PROTOCOL}`, or use kolo run");
        return Err(Problem::new(StatusCode::UPGRADE_REQUIRED, detail));
    }
    let place = state.run_site.place().ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "as many runs are watched through this node as may be")
    })?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match time::timeout(OPENING_TIMEOUT, upgrade).await {
            Ok(Ok(upgraded)) => tokio::select! {
                () = serve(&state, &caller, upgraded, place) => {}
                () = term.until_over() => debug!("a stream to a run ends with the token of its caller"),
            },
            failed => debug!(failed = ?failed.map(|done| done.is_ok()), "a connection was not upgraded"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(RUN_PROTOCOL));
    Ok(response)
}

async fn serve(state: &ApiState, caller: &Caller, upgraded: Upgraded, _place: OwnedSemaphorePermit) {
    // Nobody says anything before the answer, so nothing was read ahead.
    let ended = match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => {
            let stream = parts.io.into_inner();
            suit(&stream);
            talk(state, caller, stream).await
        }
        Err(upgraded) => match upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>() {
            Ok(parts) => {
                let stream = parts.io.into_inner();
                suit(stream.get_ref().0);
                talk(state, caller, stream).await
            }
            Err(upgraded) => match upgraded.downcast::<TokioIo<UnixStream>>() {
                Ok(parts) => talk(state, caller, parts.io.into_inner()).await,
                Err(_) => Err(io::Error::other("a connection of an unknown kind")),
            },
        },
    };
    if let Err(error) = ended {
        debug!(%error, "a stream to a run was cut off");
    }
}

/// A user may look at a page of output for as long as they like, and read no more of it meanwhile; and a short frame does not wait until the
/// one before it is acknowledged.
fn suit(stream: &TcpStream) {
    let suited = SockRef::from(stream).set_tcp_user_timeout(None).and_then(|()| stream.set_nodelay(true));
    if let Err(error) = suited {
        debug!(%error, "a connection is gone already");
    }
}

async fn talk(
    state: &ApiState,
    caller: &Caller,
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send,
) -> io::Result<()> {
    let wanted = time::timeout(OPENING_TIMEOUT, opening::receive(&mut stream)).await??;
    match open(state, caller, &wanted).await {
        Ok(run) => {
            opening::give(&mut stream, &Answer::Taken).await?;
            carry(stream, run).await
        }
        Err(answer) => opening::give(&mut stream, &answer).await,
    }
}

async fn open(state: &ApiState, caller: &Caller, wanted: &[u8]) -> Result<RunStream, Answer> {
    let knows_one = || !state.requests.beginning_with("", |record| caller.sees(record)).is_empty();
    if !may_bring(caller, wanted.len(), knows_one) {
        let why = "this node knows no reservation of yours: call the one that it was submitted to (--api)";
        return Err(Answer::Refused(why.to_owned()));
    }
    // Long texts and signatures are nothing for the workers of the network.
    let (wish, bytes) = tokio::task::block_in_place(|| read(state, caller, wanted))?;
    state.discovery.open_run(wish.site(), bytes).await.map_err(|error| match error {
        RunError::Refused(why) => Answer::Refused(why),
        RunError::Wanting(want, why) => {
            if let Some(lack) = lack_of(want, &wish) {
                state.discovery.note_refusal(wish.site(), lack);
            }
            Answer::Refused(why)
        }
        RunError::TooLarge(_) => refused(&error),
        RunError::NotNow(_) | RunError::Unreachable(_) | RunError::BrokenOff | RunError::TooMany => {
            Answer::NotNow(error.to_string())
        }
    })
}

/// Whether an opening of so many bytes is read: a long one is not from somebody of whom nothing is known but a key.
fn may_bring(caller: &Caller, bytes: usize, knows_one: impl FnOnce() -> bool) -> bool {
    bytes <= OF_STRANGER_BYTES_MAX || !matches!(caller, Caller::User(_)) || knows_one()
}

/// A wish of a user, and the opening that tells it to the site.
fn read(state: &ApiState, caller: &Caller, wanted: &[u8]) -> Result<(Wish, Vec<u8>), Answer> {
    let wanted = wire::decode::<FromUser, { opening::OPENING_BYTES_MAX }>(wanted).map_err(|error| refused(&error))?;
    let opening = match wanted {
        FromUser::Signed(opening) => opening,
        FromUser::PlainStart(json) => signed(state, caller, || Wish::start(&json))?,
        FromUser::PlainAttach(json) => signed(state, caller, || Wish::attach(&json))?,
        FromUser::PlainFiles(json) => signed(state, caller, || Wish::files(&json))?,
    };
    let (_, wish) = opening.open().map_err(|error| refused(&error))?;
    let bytes = wire::encode(&opening).map_err(|error| refused(&error))?;
    Ok((wish, bytes))
}

fn refused(why: &dyn std::fmt::Display) -> Answer {
    Answer::Refused(why.to_string())
}

/// What a site lacks that has refused this.
fn lack_of(want: Want, wish: &Wish) -> Option<Lack> {
    match (want, wish) {
        (Want::Run, _) => Some(Lack::Need(Need::Run)),
        (Want::Network, _) => Some(Lack::Need(Need::Network)),
        (Want::Image, Wish::Start(order)) => match order.image.clone() {
            Some(image) => ImageName::try_from(image).ok().map(Lack::Image),
            None => Some(Lack::WithoutImage),
        },
        (Want::Image, Wish::Attach(_) | Wish::Files(_)) => None,
    }
}

/// A wish that the node signs for its operator, once it is read.
fn signed(
    state: &ApiState,
    caller: &Caller,
    read: impl FnOnce() -> Result<Wish, OpeningError>,
) -> Result<Opening, Answer> {
    let unsigned = || {
        let why =
            "sign what is to be run with the key of the reservation's user (--key), or show a token that may submit";
        Answer::Refused(why.to_owned())
    };
    if !caller.has(Scope::Submit) {
        return Err(unsigned());
    }
    let wish = read().map_err(|error| refused(&error))?;
    if !caller.has(Scope::Operator) && !sees(state, caller, wish.request()) {
        return Err(unsigned());
    }
    state.membership.sign_run(wish).map_err(|error| refused(&error))
}

fn sees(state: &ApiState, caller: &Caller, request: &RequestId) -> bool {
    state.requests.get(request).is_some_and(|handle| caller.sees(&handle.watch().borrow().record))
}

#[cfg(test)]
mod tests {
    use kolo_seat::{RunOrder, testing::order};

    use super::*;

    #[test]
    fn what_a_stranger_brings_is_not_read_where_that_takes_long() {
        let stranger = Caller::User(broker::trust::testing::public(1));
        let brings = |caller: &Caller, bytes, knows_one| may_bring(caller, bytes, || knows_one);
        assert!(!brings(&stranger, 7 << 20, false) && brings(&stranger, 7 << 20, true));
        assert!(brings(&stranger, OF_STRANGER_BYTES_MAX, false) && brings(&Caller::Operator, 7 << 20, false));
    }

    #[test]
    fn a_refusal_says_what_the_site_lacks_for_the_order() {
        let [plain, named] =
            [None, Some("a:1".to_owned())].map(|image| Wish::Start(Box::new(RunOrder { image, ..order(&["true"]) })));
        let image = ImageName::try_from("a:1".to_owned()).unwrap();
        let need = |need| Some(Lack::Need(need));
        for (want, of_plain, of_named) in [
            (Want::Run, need(Need::Run), need(Need::Run)),
            (Want::Network, need(Need::Network), need(Need::Network)),
            (Want::Image, Some(Lack::WithoutImage), Some(Lack::Image(image))),
        ] {
            assert_eq!([lack_of(want, &plain), lack_of(want, &named)], [of_plain, of_named], "{want:?}");
        }
        assert_eq!(lack_of(Want::Image, &plain.again()), None);
    }
}
