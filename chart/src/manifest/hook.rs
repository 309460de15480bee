//! Hooks: documents that are run at certain moments of a release instead of being part of it.

use serde_json::Value;

use super::{Head, Piece};

/// Annotation that makes a document a hook: a comma-separated list of events.
pub const HOOK_ANNOTATION: &str = "helm.sh/hook";
/// Annotation with the hook's weight.
pub const HOOK_WEIGHT_ANNOTATION: &str = "helm.sh/hook-weight";
/// Annotation that says when the hook's objects are deleted.
pub const HOOK_DELETE_ANNOTATION: &str = "helm.sh/hook-delete-policy";
/// Annotation that says when the hook's logs are shown.
pub const HOOK_OUTPUT_LOG_ANNOTATION: &str = "helm.sh/hook-output-log-policy";

/// A hook as it was rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `metadata.name` of the document.
    pub name: String,
    /// Kind of the hook's object.
    pub kind: String,
    /// Path of the file it comes from.
    pub path: String,
    /// The document.
    pub manifest: String,
    /// All it says, where a post-renderer had it read: what reading `manifest` gives.
    pub object: Option<Value>,
    /// The events at which the hook runs.
    pub events: Vec<HookEvent>,
    /// Order within an event, ascending.
    pub weight: i64,
    /// When its objects are deleted, lower-cased; unknown words are kept.
    pub delete_policies: Vec<String>,
    /// When its logs are shown, lower-cased; unknown words are kept.
    pub output_log_policies: Vec<String>,
}

/// A moment hooks run at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are Helm's and say it all")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

impl HookEvent {
    /// Every event.
    #[rustfmt::skip]
    pub const ALL: [Self; 9] = [
        Self::PreInstall, Self::PostInstall, Self::PreDelete, Self::PostDelete, Self::PreUpgrade, Self::PostUpgrade,
        Self::PreRollback, Self::PostRollback, Self::Test,
    ];

    /// Helm's name of the event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::Test => "test",
        }
    }

    /// The events of an annotation; `None` if one of them is unknown.
    ///
    /// ```
    /// use chart::manifest::HookEvent;
    ///
    /// let events = HookEvent::parse_list("pre-install, test-success");
    /// assert_eq!(events, Some(vec![HookEvent::PreInstall, HookEvent::Test]));
    /// assert_eq!(HookEvent::parse_list("pre-install,before-install"), None);
    /// ```
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        words(text).map(|word| Self::parse(&word)).collect()
    }

    fn parse(word: &str) -> Option<Self> {
        // Helm 2 called its tests so.
        let word = if word == "test-success" { "test" } else { word };
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

impl Hook {
    pub(super) fn new(piece: Piece, head: &Head, events: Vec<HookEvent>) -> Self {
        let policies = |annotation| {
            head.annotations
                .get(annotation)
                .map(|text| words(text).collect())
                .unwrap_or_default()
        };
        let weight = head.annotations.get(HOOK_WEIGHT_ANNOTATION);
        Self {
            name: head.name.clone(),
            kind: head.kind.clone(),
            path: piece.path,
            manifest: piece.content,
            object: piece.object,
            events,
            weight: weight
                .and_then(|text| golib::strconv::atoi(text).ok())
                .unwrap_or(0),
            delete_policies: policies(HOOK_DELETE_ANNOTATION),
            output_log_policies: policies(HOOK_OUTPUT_LOG_ANNOTATION),
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let lower = |word: &str| word.trim().chars().map(golib::unicode::to_lower).collect();
    text.split(',').map(lower)
}
