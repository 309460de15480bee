//! `fleetagent template` beside helm where a registry is needed; what needs none is recorded in `agent/tests/command`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;
use testbed::agent;
use testbed::certs::Authority;
use testbed::chart::Chart;
use testbed::process::ProcessGroup;
use testbed::registry::Registry;
use testbed::repository::Access;
use testbed::tools::Tool;

/// Output, errors, exit code, and the files of the chart afterwards.
#[derive(Debug, PartialEq)]
struct Answer {
    output: String,
    errors: String,
    code: Option<i32>,
    files: BTreeMap<String, String>,
}

/// A chart whose dependencies are `(name, version, repository)`.
fn chart(dependencies: &[(&str, &str, &str)]) -> String {
    let mut text = "apiVersion: v2\nname: app\nversion: 0.1.0\ndependencies:\n".to_owned();
    for (name, version, repository) in dependencies {
        text.push_str(&format!(
            "- {{name: {name}, version: \"{version}\", repository: \"{repository}\"}}\n"
        ));
    }
    text
}

/// Runs a program in a folder of its own, which holds the chart and a CA.
fn answer(program: &Path, chart: &str, ca: &str, arguments: &[&str]) -> Result<Answer> {
    let folder = tempfile::tempdir()?;
    let app = folder.path().join("app");
    std::fs::create_dir_all(app.join("templates"))?;
    std::fs::write(app.join("Chart.yaml"), chart)?;
    std::fs::write(app.join("templates/own.yaml"), "own: true\n")?;
    std::fs::write(folder.path().join("ca.pem"), ca)?;
    let output = Command::new(program)
        .arg("template")
        .args(arguments)
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .output()
        .with_context(|| format!("running {program:?}"))?;
    let real = std::fs::canonicalize(folder.path())?;
    let text = |bytes: Vec<u8>| -> Result<String> {
        Ok(String::from_utf8(bytes)?.replace(&real.display().to_string(), "FOLDER"))
    };
    let mut files = BTreeMap::new();
    read(&app, &app, &mut files)?;
    Ok(Answer {
        output: text(output.stdout)?,
        errors: text(output.stderr)?,
        code: output.status.code(),
        files,
    })
}

fn read(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(root, &path, files)?;
            continue;
        }
        let mut data = std::fs::read(&path)?;
        if data.starts_with(&[0x1f, 0x8b]) {
            let zipped = std::mem::take(&mut data);
            GzDecoder::new(&zipped[..]).read_to_end(&mut data)?;
        }
        let text = String::from_utf8_lossy(&data);
        let kept = text.lines().filter(|line| !line.starts_with("generated: "));
        let name = path.strip_prefix(root)?.display().to_string();
        files.insert(name, kept.collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

/// Both answers to the same question; they are to be the same.
fn both(chart: &str, ca: &str, arguments: &[&str]) -> Result<Answer> {
    let helm = answer(&Tool::Helm4.path()?, chart, ca, arguments)?;
    let ours = answer(&agent::built()?, chart, ca, arguments)?;
    assert_eq!(ours, helm, "{arguments:?}\n{chart}");
    Ok(ours)
}

async fn registry(group: &Arc<ProcessGroup>, name: &str, access: Access<'_>) -> Result<Registry> {
    let registry = Registry::start(group, name, access).await?;
    for version in ["1.0.0", "1.2.0", "1.2.1+build.5", "2.0.0-rc.1"] {
        registry.push(&Chart::small("web", version)).await?;
    }
    registry.push(&Chart::small("db", "0.3.1")).await?;
    Ok(registry)
}

#[tokio::test]
async fn dependencies_come_from_a_registry_as_with_helm() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let group = Arc::new(ProcessGroup::new(folder.path(), false)?);
    let open = registry(&group, "open", Access::default()).await?;
    let charts = format!("oci://{}/charts", open.host());
    let update = ["rel", "app", "--dependency-update", "--plain-http"];

    let found = both(
        &chart(&[("web", "^1.0.0", &charts), ("db", "0.3.1", &charts)]),
        "",
        &update,
    )?;
    assert_eq!(found.code, Some(0), "{}", found.errors);
    assert!(
        found.files.contains_key("charts/web-1.2.1+build.5.tgz"),
        "{found:?}"
    );
    let lock = &found.files["Chart.lock"];
    assert!(lock.contains("version: 1.2.1+build.5"), "{lock}");

    let missing = [
        ("web", "^7", &*charts),
        ("web", "7.0.0", &*charts),
        ("web", "nonsense", &*charts),
        ("nope", "1.0.0", &*charts),
    ];
    for dependency in missing {
        let refused = both(&chart(&[dependency]), "", &update)?;
        assert_eq!(refused.code, Some(1), "{dependency:?}");
        assert!(!refused.files.contains_key("Chart.lock"), "{dependency:?}");
    }
    // Without --plain-http nobody speaks the other's language.
    both(&chart(&[("web", "^1.0.0", &charts)]), "", &update[..3])?;
    Ok(())
}

#[tokio::test]
async fn charts_are_pulled_with_the_words_of_helm() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let group = Arc::new(ProcessGroup::new(folder.path(), false)?);
    let open = registry(&group, "open", Access::default()).await?;
    let web = open.reference("web");
    let none = chart(&[]);
    for arguments in [
        vec![&*web],
        vec![&*web, "--version", "^1"],
        vec![&*web, "--version", "1.0.0"],
        vec![&*web, "--version", "^7"],
        vec![&*web, "--version", "7.0.0"],
        vec![&*web, "--devel"],
        vec![&*format!("{web}:1.0.0")],
        vec![&*format!("{web}:1.0.0"), "--version", "1.2.0"],
        vec![&*format!("{web}:1.2.1+build.5")],
    ] {
        let arguments = [&["rel", "--plain-http"], &*arguments].concat();
        both(&none, "", &arguments)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_login_opens_the_one_registry_it_is_for() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let group = Arc::new(ProcessGroup::new(folder.path(), false)?);
    let authority = Authority::new("template test")?;
    let access = Access {
        basic_auth: Some(("joe", "hunter2")),
        authority: Some(&authority),
    };
    let closed = registry(&group, "closed", access).await?;
    let charts = format!("oci://{}/charts", closed.host());
    let ca = authority.pem();
    let app = chart(&[("web", "~1.0", &charts)]);
    let update = ["rel", "app", "--dependency-update", "--ca-file", "ca.pem"];
    let login = ["--username", "joe", "--password", "hunter2"];

    let found = both(&app, ca, &[&update[..], &login].concat())?;
    assert_eq!(found.code, Some(0), "{}", found.errors);
    let refused = answer(&agent::built()?, &app, ca, &update)?;
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("401"), "{}", refused.errors);
    both(&app, ca, &[&update[..3], &login].concat())?;

    // With a second registry the login could be for either: neither gets it.
    let open = registry(&group, "other", Access::default()).await?;
    let other = format!("oci://{}/charts", open.host());
    let both_registries = chart(&[("web", "~1.0", &charts), ("db", "^0", &other)]);
    let refused = answer(
        &agent::built()?,
        &both_registries,
        ca,
        &[&update[..], &login].concat(),
    )?;
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("401"), "{}", refused.errors);
    Ok(())
}
