//! A gate before an API server: it lets everything through and counts what changes something, until the change it was set to
//! be the last one. From then on nothing goes in and no answer comes out, so that whoever is behind it can be killed between
//! two requests of one's choice, and leaves what was sent so far.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::cluster::ControlPlane;
use crate::proxy::{self, Answer};

/// A running gate. It stands until the program ends.
#[derive(Clone)]
pub struct Gate {
    url: String,
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Changes answered since the last [`Gate::open`].
    changes: usize,
    /// The change after which nothing passes.
    last: Option<usize>,
    /// Counts openings; who came through before one gets no answer after it.
    opened: usize,
}

impl State {
    fn is_closed(self) -> bool {
        self.last.is_some_and(|last| self.changes >= last)
    }
}

impl Gate {
    /// A gate before `plane`, open. Whoever comes through it is `user` there.
    ///
    /// # Errors
    /// When no port is free or the kubeconfig is refused.
    pub async fn start(plane: &ControlPlane, user: &str) -> Result<Self> {
        let state = Arc::new(watch::Sender::new(State::default()));
        let kubeconfig = plane.kubeconfig_value(user, "default");
        let served = Arc::clone(&state);
        let url = proxy::listen(kubeconfig, move |client, request| {
            let state = Arc::clone(&served);
            async move { pass(&client, &state, request).await }
        })
        .await?;
        Ok(Self { url, state })
    }

    /// The gate's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets everything through, and closes after so many changes from now; `None` never closes.
    pub fn open(&self, last: Option<usize>) {
        self.state.send_modify(|state| {
            *state = State {
                changes: 0,
                last,
                opened: state.opened + 1,
            };
        });
    }

    /// Closes at once.
    pub fn close(&self) {
        self.state
            .send_modify(|state| state.last = Some(state.changes));
    }

    /// Changes answered since it was opened.
    pub fn changes(&self) -> usize {
        self.state.borrow().changes
    }

    /// Waits until it is closed.
    pub async fn closed(&self) {
        let mut state = self.state.subscribe();
        // The sender is `self`'s, so this cannot fail.
        let _ = state.wait_for(|state| state.is_closed()).await;
    }
}

async fn pass(
    client: &kube::Client,
    state: &watch::Sender<State>,
    request: Request<Incoming>,
) -> Answer {
    let opened = state.borrow().opened;
    if !may_pass(state, opened).await {
        return refused();
    }
    let is_change =
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
    let Some(request) = proxy::forwarded(request).await else {
        return refused();
    };
    let answer = client.send(request).await;
    if is_change {
        state.send_modify(|state| {
            if state.opened == opened {
                state.changes += 1;
            }
        });
    }
    if !may_pass(state, opened).await {
        return refused();
    }
    match answer {
        Ok(answer) => answer.map(BodyExt::boxed_unsync),
        Err(_) => refused(),
    }
}

/// Waits while the gate is closed; false for those who waited, because they are dead when it opens.
async fn may_pass(state: &watch::Sender<State>, opened: usize) -> bool {
    let mut state = state.subscribe();
    let waited = state
        .wait_for(|state| state.opened != opened || !state.is_closed())
        .await;
    waited.is_ok_and(|state| state.opened == opened)
}

fn refused() -> Answer {
    let none = http_body_util::Empty::<Bytes>::new();
    let mut answer = Response::new(none.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
