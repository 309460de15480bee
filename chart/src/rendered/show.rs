//! What `helm template` prints of a rendered release.
//!
//! Mirrors the printing half of `pkg/cmd/template.go`.

use std::fmt::Write as _;

use golib::path;

use super::Rendered;
use crate::manifest::{HookEvent, split_manifests};

/// The parts of a rendered chart to print.
#[derive(Debug, Clone, Default)]
pub struct ShowOptions {
    /// Leave hooks out.
    pub no_hooks: bool,
    /// Leave test hooks out.
    pub skip_tests: bool,
    /// Print the documents of these templates only: globs, relative to the root chart.
    pub show_only: Vec<String>,
}

/// A template to show does not exist or renders nothing. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not find template {0} in chart")]
pub struct NotFound(pub String);

impl Rendered {
    /// The manifest, then the hooks, as `helm template` prints them.
    ///
    /// ```
    /// use chart::rendered::{Request, ShowOptions, render_release};
    /// # use chart::{Capabilities, File, ReleaseInfo, loader};
    /// # let files = vec![
    /// #     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    /// #     File::new("templates/service.yaml", "kind: Service\nmetadata:\n  name: {{ .Release.Name }}\n"),
    /// #     File::new("templates/config.yaml", "kind: ConfigMap\n"),
    /// # ];
    /// # let chart = loader::load_files(files, &mut chart::Warnings::default())?;
    /// # let (release, capabilities) = (ReleaseInfo::install("blog", "default"), Capabilities::default());
    ///
    /// let request = Request::new(chart, &serde_json::Value::Null, &release, &capabilities, &templating::SystemHost);
    /// let rendered = render_release(request)?;
    /// // As `helm template blog ./web --show-only templates/service.yaml`.
    /// let options = ShowOptions { show_only: vec!["templates/service.yaml".to_owned()], ..ShowOptions::default() };
    /// assert_eq!(
    ///     rendered.show(&options)?,
    ///     "---\n# Source: web/templates/service.yaml\nkind: Service\nmetadata:\n  name: blog\n\n",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// One of the templates to show is not there.
    pub fn show(self, options: &ShowOptions) -> Result<String, NotFound> {
        drop(self.manifests); // the text may be long: it is not held twice
        let mut text = trimmed(self.manifest);
        text.push('\n');
        if !options.no_hooks {
            for hook in &self.hooks {
                if !(options.skip_tests && hook.events.contains(&HookEvent::Test)) {
                    super::push_document(&mut text, &hook.path, &hook.manifest);
                }
            }
        }
        if options.show_only.is_empty() {
            return Ok(text);
        }
        let documents = split_manifests(&text);
        let mut shown = String::new();
        for expected in &options.show_only {
            let mut found = false;
            for document in &documents {
                let name = source_path(document);
                if name.is_some_and(|name| path::matches_file(expected, name).unwrap_or(false)) {
                    let _ = write!(shown, "---\n{document}\n");
                    found = true;
                }
            }
            if !found {
                return Err(NotFound(expected.clone()));
            }
        }
        Ok(shown)
    }
}

/// Without white space around it, in place.
fn trimmed(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    let blank = text.len() - text.trim_start().len();
    text.drain(..blank);
    text
}

/// The path below the root chart in a document's `# Source:` line.
fn source_path(document: &str) -> Option<&str> {
    document.split("# Source: ").skip(1).find_map(|rest| {
        let (chart, name) = rest.split_once('/')?;
        let name = name.lines().next().unwrap_or_default();
        (!chart.is_empty() && !name.is_empty()).then_some(name)
    })
}
