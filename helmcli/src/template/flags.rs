//! The flags of `helm template` that are about rendering. Those that only an installation would heed are
//! accepted, because command lines carry them, and do nothing, as with helm.

use crate::csv::checked_list;
use crate::helm_home::unheeded;
use crate::pflag;

/// What to render, and what to print of it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RenderFlags {
    /// Kubernetes version charts are told of
    #[arg(long, default_value = "", hide_default_value = true)]
    pub kube_version: String,

    /// Further API versions charts are told of
    #[arg(short, long, value_name = "VERSION,…", value_parser = checked_list)]
    pub api_versions: Vec<String>,

    /// client, or server: ask the cluster of the kubeconfig what it serves, and let templates look things up
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "unset")]
    pub dry_run: Option<String>,

    /// Deprecated: --dry-run=server
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = pflag::boolean)]
    pub validate: Option<bool>,

    /// Print the files of crds/ too
    #[arg(long)]
    pub include_crds: bool,

    /// Print the documents of these templates only
    #[arg(short, long)]
    pub show_only: Vec<String>,

    /// Write files below this directory instead of printing
    #[arg(long, default_value = "", hide_default_value = true)]
    pub output_dir: String,

    /// Put a folder named after the release into the output directory
    #[arg(long)]
    pub release_name: bool,

    /// Tell templates that this is an upgrade
    #[arg(long)]
    pub is_upgrade: bool,

    /// Leave hooks out
    #[arg(long)]
    pub no_hooks: bool,

    /// Leave test hooks out
    #[arg(long)]
    pub skip_tests: bool,

    /// Do not check values against schemas
    #[arg(long)]
    pub skip_schema_validation: bool,

    /// Let templates resolve host names
    #[arg(long)]
    pub enable_dns: bool,

    /// Name the release by a template
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name_template: String,

    /// Refuse a name; a release without one is called release-name
    #[arg(short, long)]
    pub generate_name: bool,

    /// Download dependencies that are missing into charts/ first
    #[arg(long)]
    pub dependency_update: bool,

    /// Refused: plugins of helm are not run
    #[arg(long)]
    pub post_renderer: Vec<String>,

    /// Labels of the release: checked only
    #[arg(short, long, value_name = "KEY=VALUE,…", value_parser = pflag::pairs)]
    pub labels: Vec<Vec<(String, String)>>,
}

/// Flags of an installation: nothing is installed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct InstallFlags {
    #[arg(long, hide = true, value_parser = pflag::duration)]
    pub timeout: Option<i64>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "watcher", value_parser = wait)]
    pub wait: Option<String>,
    #[arg(long, hide = true)]
    pub skip_crds: bool,
    #[command(flatten)]
    pub unheeded: UnheededFlags,
}

unheeded! {
    /// Those that do nothing at all; but helm warns of some, and refuses some beside others.
    UnheededFlags {
        texts: description post_renderer_args;
        switches: create_namespace server_side replace wait_for_jobs disable_openapi_validation rollback_on_failure take_ownership;
        given: force force_replace force_conflicts atomic hide_notes render_subchart_notes
    }
}

fn wait(text: &str) -> Result<String, String> {
    match text {
        "watcher" | "hookOnly" | "legacy" | "true" | "false" => Ok(text.to_owned()),
        _ => Err(format!(
            "invalid wait input {}. Valid inputs are watcher, hookOnly, and legacy",
            golib::strconv::quote(text)
        )),
    }
}

impl InstallFlags {
    /// What pflag and helm say about flags on the way out; errors where two exclude each other.
    pub(super) fn remarks(&self, render: &RenderFlags) -> (Vec<String>, Result<(), String>) {
        const NOTES: &str =
            "this flag has no effect for 'helm template' and will be removed in Helm 5";
        let set = &self.unheeded;
        let deprecated = [
            (set.force.is_some(), "force", "use --force-replace instead"),
            (
                set.atomic.is_some(),
                "atomic",
                "use --rollback-on-failure instead",
            ),
            (set.hide_notes.is_some(), "hide-notes", NOTES),
            (
                set.render_subchart_notes.is_some(),
                "render-subchart-notes",
                NOTES,
            ),
            (
                render.validate.is_some(),
                "validate",
                "use '--dry-run=server' instead",
            ),
        ];
        let mut remarks: Vec<String> = deprecated
            .iter()
            .filter(|(given, ..)| *given)
            .map(|(_, name, why)| format!("Flag --{name} has been deprecated, {why}"))
            .collect();
        if let Some(old @ ("true" | "false")) = self.wait.as_deref() {
            let new = if old == "true" { "watcher" } else { "hookOnly" };
            let text = format!(
                "--wait={old} is deprecated (boolean value) and can be replaced with --wait={new}"
            );
            remarks.insert(0, format!("level=WARN msg={}", chart::log_text(&text)));
        }
        let groups = [
            (
                "force-replace force-conflicts",
                [set.force_conflicts.is_some(), set.force_replace.is_some()],
            ),
            (
                "force force-conflicts",
                [set.force.is_some(), set.force_conflicts.is_some()],
            ),
            (
                "validate dry-run",
                [render.dry_run.is_some(), render.validate.is_some()],
            ),
        ];
        let clash = groups
            .iter()
            .find(|(_, given)| given.iter().all(|given| *given));
        let checked = match clash {
            None => Ok(()),
            Some((group, _)) => {
                let mut both: Vec<&str> = group.split(' ').collect();
                both.sort_unstable();
                Err(format!(
                    "if any flags in the group [{group}] are set none of the others can be; [{}] were all set",
                    both.join(" ")
                ))
            }
        };
        (remarks, checked)
    }
}
