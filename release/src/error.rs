//! Errors of the caller, and the text of an error with its causes.

/// An error that the caller handed in: of its renderer, of its store of digests.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error and all its causes, joined by `: ` as Go prints wrapped errors.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut text = String::new();
    let mut last = String::new();
    for cause in causes {
        let words = cause.to_string();
        // A transparent or repeating layer says nothing new.
        if words != last && !words.is_empty() {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        last = words;
    }
    text
}
