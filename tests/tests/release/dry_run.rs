//! `fleetagent template --dry-run=server` beside helm's, against the same cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use testbed::agent;
use testbed::cluster::ADMIN;
use testbed::tools::Tool;

use crate::world::{World, config_map};

/// What templates may ask of a cluster.
const ASKING: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: asked}
data:
  version: {{ .Capabilities.KubeVersion.Version }}
  minor: {{ .Capabilities.KubeVersion.Minor | quote }}
  served: {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" | quote }}
  unknown: {{ .Capabilities.APIVersions.Has "example.com/v1" | quote }}
  given: {{ .Capabilities.APIVersions.Has "given.example.com/v1" | quote }}
  object: {{ (lookup "v1" "ConfigMap" .Release.Namespace "here").data | toJson | quote }}
  missing: {{ lookup "v1" "ConfigMap" .Release.Namespace "nowhere" | toJson | quote }}
  names: {{ range (lookup "v1" "ConfigMap" .Release.Namespace "").items }}{{ .metadata.name }} {{ end }}
  kind: {{ lookup "apps/v1" "Thing" .Release.Namespace "x" | toJson | quote }}
  cluster: {{ (lookup "v1" "Namespace" "" "kube-system").metadata.name }}
  upgrade: {{ .Release.IsUpgrade | quote }}
"#;

const ASKING_TOO_MUCH: &str = "a: {{ lookup \"example.com/v1\" \"Thing\" \"\" \"\" | toJson }}\n";
const UNKNOWN: &str = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n";
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                          metadata: {name: things.example.com}\n";

/// The output, the errors and the exit code.
type Answer = (String, Vec<String>, Option<i32>);

struct Side<'w> {
    world: &'w World,
    home: PathBuf,
}

impl Side<'_> {
    fn chart(&self, template: &str) -> Result<()> {
        let chart = self.home.join("chart");
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(
            chart.join("Chart.yaml"),
            "apiVersion: v2\nname: asking\nversion: 1.0.0\n",
        )?;
        std::fs::write(chart.join("templates/all.yaml"), template)?;
        Ok(())
    }

    fn answer(&self, program: &Path, flags: &[&str]) -> Result<Answer> {
        let output = Command::new(program)
            .args(["template", "rel", "chart", "-n", &self.world.namespace])
            .args(flags)
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.world.plane.kubeconfig(ADMIN)?)
            .output()
            .with_context(|| format!("running {program:?}"))?;
        let errors = String::from_utf8(output.stderr)?;
        // What helm logs of its way to an error is not printed by ours.
        let reported = errors
            .lines()
            .filter(|line| !line.starts_with("level=ERROR"));
        let errors = reported.map(str::to_owned).collect();
        Ok((
            String::from_utf8(output.stdout)?,
            errors,
            output.status.code(),
        ))
    }

    /// Both answers to the same question; they are to be the same.
    fn both(&self, flags: &[&str]) -> Result<Answer> {
        let helm = self.answer(&Tool::Helm4.path()?, flags)?;
        let ours = self.answer(&agent::built()?, flags)?;
        assert_eq!(ours, helm, "{flags:?}");
        Ok(ours)
    }
}

#[tokio::test]
async fn templates_ask_the_cluster_as_with_helm() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("here", "1")).await?;
    let home = std::env::temp_dir().join(format!("{}-dry-run", world.namespace));
    std::fs::create_dir_all(&home)?;
    let side = Side {
        world: &world,
        home,
    };
    side.chart(ASKING)?;

    let (asked, errors, code) = side.both(&["--dry-run=server"])?;
    assert_eq!((errors, code), (Vec::new(), Some(0)));
    for line in [
        "served: \"true\"",
        "unknown: \"false\"",
        "names: here",
        "missing: \"{}\"",
        "cluster: kube-system",
    ] {
        assert!(asked.contains(line), "{line} in {asked}");
    }
    side.both(&[
        "--dry-run=server",
        "--kube-version",
        "1.20.0",
        "-a",
        "given.example.com/v1",
    ])?;
    side.both(&[
        "--dry-run=server",
        "--is-upgrade",
        "--show-only",
        "templates/all.yaml",
    ])?;
    // Without a cluster there is no such namespace, which the template does not expect.
    let (.., code) = side.both(&["--dry-run=client"])?;
    assert_eq!(code, Some(1));

    side.chart(ASKING_TOO_MUCH)?;
    let (_, errors, code) = side.both(&["--dry-run=server"])?;
    assert!(
        code == Some(1) && errors.concat().contains("unable to get apiresource"),
        "{errors:?}"
    );
    side.chart(UNKNOWN)?;
    let (_, errors, code) = side.both(&["--dry-run=server"])?;
    assert!(
        code == Some(1) && errors.concat().contains("no matches for kind"),
        "{errors:?}"
    );
    std::fs::create_dir_all(side.home.join("chart/crds"))?;
    std::fs::write(side.home.join("chart/crds/things.yaml"), DEFINITION)?;
    side.both(&["--dry-run=server", "--include-crds"])?;
    std::fs::remove_dir_all(&side.home)?;
    Ok(())
}
