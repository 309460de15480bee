//! Errors of a render, in the words Helm's engine finds for them.

use std::fmt;

use templating::{Error, ErrorKind};

/// Why a chart could not be rendered. Prints as Helm's error does; the parts are inside.
#[derive(Debug)]
#[non_exhaustive]
pub enum RenderError {
    /// A file is no template.
    Parse {
        /// Full name of the file.
        file: String,
        /// What the parser says.
        source: Error,
    },
    /// A template failed.
    Execute {
        /// Full name of the file that was rendered.
        file: String,
        /// Where and why.
        source: Error,
    },
    /// No thread to render on.
    Thread(std::io::Error),
    /// Rendering panicked, which is a mistake of ours.
    Panic(String),
}

impl RenderError {
    pub(super) fn parse(file: &str, source: Error) -> Self {
        Self::Parse {
            file: file.to_owned(),
            source,
        }
    }

    pub(super) fn execute(file: &str, source: Error) -> Self {
        Self::Execute {
            file: file.to_owned(),
            source,
        }
    }

    /// The template error inside.
    ///
    /// ```
    /// use chart::render::{EngineOptions, render};
    /// # use chart::{Capabilities, File, ReleaseInfo, loader::load_files};
    /// # let files = vec![
    /// #     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    /// #     File::new("templates/app.yaml", "{{ required \"give a host\" .Values.host }}"),
    /// # ];
    /// # let chart = load_files(files, &mut chart::Warnings::default())?;
    /// # let (release, capabilities) = (ReleaseInfo::install("blog", "default"), Capabilities::default());
    /// # let options = EngineOptions::new(&release, &capabilities, &templating::SystemHost);
    ///
    /// let failed = render(&chart, &serde_json::json!({}), &options).unwrap_err();
    /// let error = failed.template_error().expect("a template failed");
    /// assert!(error.chain().any(|cause| cause.to_string().contains("give a host")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn template_error(&self) -> Option<&Error> {
        match self {
            Self::Parse { source, .. } | Self::Execute { source, .. } => Some(source),
            Self::Thread(_) | Self::Panic(_) => None,
        }
    }
}

impl std::error::Error for RenderError {}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { file, source } => {
                // Helm keeps what stands between the first two colons, and after the last.
                let text = source.to_string();
                match text.split(": ").nth(1) {
                    Some(place) => {
                        let message = text.rsplit(": ").next().unwrap_or_default();
                        write!(f, "parse error at ({place}): {message}")
                    }
                    None => write!(f, "parse error in ({file}): {source}"),
                }
            }
            Self::Execute { source, .. } => write_execution(f, source),
            Self::Thread(error) => write!(f, "cannot start a thread to render on: {error}"),
            Self::Panic(text) => write!(f, "rendering template failed: {text}"),
        }
    }
}

fn write_execution(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    if !matches!(error.kind(), ErrorKind::Exec(_)) {
        return write!(f, "{error}");
    }
    // Each error's text ends with that of the error inside, so that all of them are ends of one text.
    let mut text = String::new();
    let starts: Vec<usize> = error
        .chain()
        .map(|error| {
            let start = text.len();
            text += &own_text(error);
            start
        })
        .collect();
    // What the chart's author wrote is shown plainly, at the place in the file being rendered.
    let mut parts = text.splitn(3, ": ").skip(1);
    if let (Some(place), Some(rest)) = (parts.next(), parts.next())
        && let Some((_, refusal)) = rest.split_once("HELM_ERR_START")
        && let Some((refusal, _)) = refusal.rsplit_once("HELM_ERR_END")
    {
        return write!(f, "execution error at ({place}): {refusal}");
    }
    match trace(starts.iter().map(|&start| &text[start..])) {
        Some(trace) => f.write_str(trace.trim()),
        None => f.write_str(&text),
    }
}

/// The error's text without that of the error inside.
fn own_text(error: &Error) -> String {
    match (error.kind(), error.inner()) {
        (ErrorKind::Exec(exec), _) => exec.to_string(),
        (ErrorKind::Context { text, .. }, _) => format!("{text}: "),
        _ => error.to_string(),
    }
}

/// One block per level, outermost first. Nothing when some level is no error of the template engine: Helm then shows
/// the whole as it is.
fn trace<'t>(texts: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut trace = String::new();
    let mut previous = None;
    for text in texts {
        let block = Block::of(text)?;
        if previous != Some(block) {
            block.write(&mut trace);
            previous = Some(block);
        }
    }
    Some(trace)
}

/// What Helm finds in the text of an error of Go's templates. It takes the text apart: names and expressions that hold
/// what it looks for end early, or hide the rest.
#[derive(Clone, Copy, PartialEq)]
struct Block<'t> {
    place: &'t str,
    /// The template's name and the expression.
    executing: Option<(&'t str, &'t str)>,
    message: &'t str,
}

impl<'t> Block<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let rest = text.strip_prefix("template: ")?;
        if rest.starts_with("no template ") {
            return Some(Self {
                place: "",
                executing: None,
                message: text,
            });
        }
        Self::executing(rest).or_else(|| {
            let (place, message) = rest.rsplit_once(": ")?;
            Some(Self {
                place,
                executing: None,
                message: before_next(message),
            })
        })
    }

    fn executing(rest: &'t str) -> Option<Self> {
        let (place, rest) = rest.split_once(": executing ")?;
        let (name, rest) = rest.strip_prefix('"')?.split_once('"')?;
        let (node, message) = rest.strip_prefix(" at <")?.split_once(">: ")?;
        Some(Self {
            place,
            executing: Some((name, node)),
            message: before_next(message),
        })
    }

    fn write(&self, out: &mut String) {
        if !self.place.is_empty() {
            *out += &format!("{}\n  ", self.place);
        }
        if let Some((name, node)) = self.executing {
            *out += &format!("executing \"{name}\" at <{node}>:\n    ");
        }
        if !self.message.is_empty() {
            *out += &format!("{}\n", self.message);
        }
    }
}

/// The text up to the next error of a template in it.
fn before_next(message: &str) -> &str {
    message
        .split_once(" template:")
        .map_or(message, |(message, _)| message)
}
