//! A wire to a server that can be cut: TCP through a port of its own, TLS untouched.

use std::sync::Arc;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::bed::runtime;

/// What the wire does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Bytes go through.
    Whole,
    /// Connections break, new ones are closed at once.
    Cut,
    /// Connections stay and are accepted, but nothing goes through: a server that never answers.
    Silent,
}

/// A wire to one server. Dropping it closes everything.
#[derive(Debug)]
pub struct Wire {
    port: u16,
    state: Arc<watch::Sender<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl Wire {
    /// A whole wire to `target`, `host:port`.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn to(target: &str) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(watch::Sender::new(State::Whole));
        let (target, changes) = (target.to_owned(), state.subscribe());
        let task = runtime().spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target.clone(), changes.clone()));
            }
        });
        Ok(Self { port, state, task })
    }

    /// The address of this end, for a server that speaks TLS.
    pub fn https_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The address of this end, for one that does not.
    pub fn http_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on. Connections that were silent are closed when that ends: what was held back is lost.
    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
        self.state.send_replace(State::Cut);
    }
}

async fn carry(mut client: TcpStream, target: String, mut changes: watch::Receiver<State>) {
    let start = *changes.borrow_and_update();
    match start {
        State::Cut => return,
        State::Silent => {
            let _ = changes.changed().await;
            return;
        }
        State::Whole => {}
    }
    let Ok(mut server) = TcpStream::connect(&target).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = changes.changed() => {
            if *changes.borrow_and_update() == State::Silent {
                let _ = changes.changed().await;
            }
        }
    }
}
