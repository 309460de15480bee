//! The flags of `fleetagent values`.

use std::path::PathBuf;

use helmcli::chart_flags::ChartFlags;
use helmcli::helm_home::HelmFlags;
use helmcli::value_flags::ValueFlags;

use crate::config::ClusterValuesMode;

/// Flags of `fleetagent values`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValuesArgs {
    /// Release name, then chart: a directory, an archive, an oci:// reference or other address, NAME/CHART of a
    /// repository configured for helm, or a name with --repo. One argument is the chart; a bundle may name both
    #[arg(num_args = 0..=2, value_names = ["NAME", "CHART"])]
    pub names: Vec<String>,

    /// Facts of the cluster: a Fleet Cluster, a ConfigMap as a site keeps it, or their YAML; later files
    /// over earlier ones
    #[arg(long, value_name = "FILE")]
    pub cluster: Vec<PathBuf>,

    /// Take options from this Bundle
    #[arg(long, value_name = "FILE", conflicts_with = "bundle_deployment")]
    pub bundle: Option<PathBuf>,

    /// Take options from this BundleDeployment
    #[arg(long, value_name = "FILE")]
    pub bundle_deployment: Option<PathBuf>,

    /// ConfigMaps and Secrets the bundle refers to
    #[arg(long, value_name = "FILE")]
    pub resource: Vec<PathBuf>,

    #[command(flatten)]
    pub values: ValueFlags,

    #[command(flatten)]
    pub chart: ChartFlags,

    /// Who fills in a BundleDeployment, where its annotation or label does not say: auto, always or never
    #[arg(long, default_value = "auto")]
    pub mode: ClusterValuesMode,

    #[command(flatten)]
    pub helm: HelmFlags,

    /// Show the chart's defaults too
    #[arg(short, long)]
    pub all: bool,

    /// How to print
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people: each value, where it comes from, and what it was before
    #[default]
    Text,
    /// One YAML document
    Yaml,
    /// The same in JSON
    Json,
}
