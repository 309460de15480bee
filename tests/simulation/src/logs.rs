//! What the agent logs: read for secrets, and part of what took place.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::checker::Checker;
use crate::network::Network;

/// Listens to this thread until the guard is dropped.
pub fn listen(network: &Network, checker: &Arc<Mutex<Checker>>) -> DefaultGuard {
    tracing::subscriber::set_default(Listener {
        network: network.clone(),
        checker: Arc::clone(checker),
    })
}

struct Listener {
    network: Network,
    checker: Arc<Mutex<Checker>>,
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("writing to a String cannot fail");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
            && ["agent", "release", "chart"]
                .iter()
                .any(|name| metadata.target().starts_with(name))
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(format!("log: {}", event.metadata().level()));
        event.record(&mut message);
        self.checker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .read("the log", &message.0);
        self.network.note(&message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
