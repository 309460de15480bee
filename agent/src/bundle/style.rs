//! The style of a bundle: a chart, a kustomization, or plain YAML.
//!
//! Mirrors `internal/bundlereader/style.go`, decided from names alone.

use golib::path::clean_text;
use sha2::{Digest as _, Sha256};

use super::manifest::Resource;
use crate::api::{BundleDeploymentOptions, HelmOptions};

/// Where the parts of a bundle are. A bundle may be both a chart and a kustomization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Path of the chart's `Chart.yaml`.
    pub chart: Option<String>,
    /// Path of the `kustomization.yaml`.
    pub kustomization: Option<String>,
}

impl Style {
    /// Looks for the files that the options name.
    pub fn of(resources: &[Resource], options: &BundleDeploymentOptions) -> Self {
        let chart = chart_path(options.helm.as_ref());
        let fetched = options
            .helm
            .as_ref()
            .map(|helm| format!("{}/", fetched_prefix(helm)));
        let kustomization = kustomization_path(options);
        let mut style = Self::default();
        for name in resources
            .iter()
            .map(|resource| &resource.name)
            .filter(|name| !name.is_empty())
        {
            let is_fetched = fetched
                .as_deref()
                .is_some_and(|prefix| is_fetched_chart(prefix, name));
            if *name == chart || is_fetched {
                style.chart = Some(name.clone());
            } else if *name == kustomization {
                style.kustomization = Some(name.clone());
            }
        }
        style
    }

    /// Whether the bundle is neither a chart nor a kustomization.
    pub fn is_raw_yaml(&self) -> bool {
        self.chart.is_none() && self.kustomization.is_none()
    }
}

/// Directory below which files of a fetched chart stand.
pub(super) fn fetched_prefix(helm: &HelmOptions) -> String {
    let text = format!("{}:{}:{}", helm.chart, helm.repo, helm.version);
    format!(".chart/{}", golib::hex::encode(&Sha256::digest(text)))
}

fn chart_path(helm: Option<&HelmOptions>) -> String {
    let path = helm.map_or("", |helm| match helm.chart.as_str() {
        "" => &helm.repo,
        chart => chart,
    });
    join_and_clean(path, "Chart.yaml")
}

/// `kustomization.yaml` in `kustomize.dir`.
pub(super) fn kustomization_path(options: &BundleDeploymentOptions) -> String {
    let directory = options
        .kustomize
        .as_ref()
        .map_or("", |kustomize| kustomize.dir.as_str());
    join_and_clean(directory, "kustomization.yaml")
}

fn join_and_clean(directory: &str, file: &str) -> String {
    let joined = match directory {
        "" => file.to_owned(),
        directory => format!("{directory}/{file}"),
    };
    clean_text(&joined).trim_start_matches('/').to_owned()
}

/// `Chart.yaml` directly in the directory of the fetched chart, or one below.
fn is_fetched_chart(prefix: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(prefix) else {
        return false;
    };
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        [file] => *file == "Chart.yaml",
        [_, file] => *file == "Chart.yaml",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::KustomizeOptions;

    fn style(names: &[&str], helm: Option<(&str, &str)>, kustomize: &str) -> Style {
        let resources: Vec<_> = names
            .iter()
            .map(|name| Resource {
                name: (*name).into(),
                ..Resource::default()
            })
            .collect();
        let options = BundleDeploymentOptions {
            helm: helm.map(|(chart, repo)| HelmOptions {
                chart: chart.into(),
                repo: repo.into(),
                ..HelmOptions::default()
            }),
            kustomize: Some(KustomizeOptions {
                dir: kustomize.into(),
            }),
            ..BundleDeploymentOptions::default()
        };
        Style::of(&resources, &options)
    }

    #[test]
    fn a_bundles_style_is_told_by_the_names_of_its_files() {
        let chart = |path: &str| Style {
            chart: Some(path.into()),
            ..Style::default()
        };
        assert!(style(&["a.yaml", "sub/Chart.yaml"], None, "").is_raw_yaml());
        assert_eq!(style(&["Chart.yaml"], None, ""), chart("Chart.yaml"));
        assert_eq!(
            style(&["sub/Chart.yaml"], Some(("./sub/", "")), ""),
            chart("sub/Chart.yaml")
        );
        assert_eq!(
            style(&["r/Chart.yaml"], Some(("", "/r")), ""),
            chart("r/Chart.yaml")
        );
        let both = style(&["Chart.yaml", "k/kustomization.yaml"], None, "./k");
        assert!(both.chart.is_some() && both.kustomization.is_some());
        assert!(style(&["kustomization.yml"], None, "").is_raw_yaml());
    }

    #[test]
    fn fetched_charts_stand_below_their_hash() {
        let helm = HelmOptions {
            chart: "web".into(),
            ..HelmOptions::default()
        };
        let prefix = fetched_prefix(&helm);
        for (path, found) in [
            ("Chart.yaml", true),
            ("web/Chart.yaml", true),
            ("a/b/Chart.yaml", false),
        ] {
            let name = format!("{prefix}/{path}");
            let style = style(&[&name], Some(("web", "")), "");
            assert_eq!(style.chart.is_some(), found, "{path}");
        }
    }
}
