//! Charts that the real tools signed, in a real registry and a repository, fetched and judged as a deploy does it.

use std::error::Error as StdError;
use std::sync::Arc;

use ::signatures::Policy;
use agent::api::{BundleDeployment, Content};
use agent::bundle::{self, Bundle, BundleError, Fetching, Upstream};
use anyhow::{Context, Result, bail, ensure};
use chart::source::{Fetcher, Settings};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testbed::process::ProcessGroup;
use testbed::registry::Registry;
use testbed::repository::{Access, ChartRepository};
use testbed::signed::{SIGNED_AT, Signatures, SignedChart, specimen, text};

const ISSUER: &str = "https://issuer.test.invalid";

/// An upstream that holds one Secret, which says that the registry speaks no TLS.
struct PlainHttp;

impl Upstream for PlainHttp {
    async fn secret(
        &self,
        _: &str,
        _: &str,
    ) -> Result<Option<Secret>, Box<dyn StdError + Send + Sync>> {
        Ok(Some(Secret {
            data: Some([("basicHTTP".to_owned(), ByteString(b"true".to_vec()))].into()),
            ..Secret::default()
        }))
    }

    async fn content(&self, _: &str) -> Result<Option<Content>, Box<dyn StdError + Send + Sync>> {
        Ok(None)
    }
}

struct AtOnce;

impl bundle::Unpacking for AtOnce {
    async fn work<T: Send + 'static>(
        &mut self,
        _: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BundleError> {
        Ok(work())
    }
}

fn op(repo: &str, chart: &str, version: &str) -> Result<BundleDeployment> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {
            "helmChartOptions": {"helmOpSecretName": "plain"},
            "options": {"helm": {"repo": repo, "chart": chart, "version": version}},
        },
    }))?)
}

/// Loads a bundle's chart up to what is rendered: who vouched for it.
async fn judged(
    fetcher: &Fetcher,
    bundle: &BundleDeployment,
    policy: &Policy,
) -> Result<String, BundleError> {
    let fetching = Fetching {
        fetcher,
        hosts: None,
        since: None,
        policy,
    };
    let loaded = Box::pin(bundle::load(bundle, &PlainHttp, &fetching, &mut AtOnce)).await?;
    loaded.package(bundle, "system", &mut golib::budget::Budget::default())?;
    match loaded {
        Bundle::Chart(_, verified) => Ok(verified.map_or_else(String::new, |by| by.to_string())),
        Bundle::Files(_) => Ok("files".to_owned()),
    }
}

fn policy(signer: &Value) -> Result<Policy> {
    let rule = json!({"name": "r", "sources": ["oci://127.0.0.1:*/**", "http://127.0.0.1:*/**"], "signedBy": [signer]});
    Ok(Policy::parse(&json!({"rules": [rule]}).to_string())?)
}

/// The chart is pulled from another registry than it was signed in: a mirror.
fn cosign(mut fields: Value) -> Value {
    fields["signedAs"] = json!([
        format!("{SIGNED_AT}/*ed-*/web"),
        format!("{SIGNED_AT}/*le-*/web")
    ]);
    json!({ "cosign": fields })
}

fn key(name: &str) -> Result<Value> {
    Ok(cosign(json!({"publicKey": text(&format!("{name}.pub"))?})))
}

fn logged_key() -> Result<Value> {
    let fields = json!({"publicKey": text("key.pub")?, "trustedRoot": text("root.json")?});
    Ok(cosign(fields))
}

fn identity(name: &str, root: &str) -> Result<Value> {
    let fields = json!({"identity": name, "issuer": ISSUER, "trustedRoot": text(root)?});
    Ok(cosign(fields))
}

struct Scene {
    registry: Registry,
    repository: ChartRepository,
    fetcher: Fetcher,
    chart: SignedChart,
    _group: Arc<ProcessGroup>,
    _directory: tempfile::TempDir,
}

impl Scene {
    async fn set() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let group = Arc::new(ProcessGroup::new(&directory.path().join("bed"), false)?);
        Ok(Self {
            registry: Registry::start(&group, "registry", Access::default()).await?,
            repository: ChartRepository::start(Access::default()).await?,
            fetcher: Fetcher::new(Settings::default()),
            chart: SignedChart::read()?,
            _group: group,
            _directory: directory,
        })
    }

    /// The chart in a repository of its own, with these signatures beside it.
    async fn signed(&self, folder: &str, found: &Signatures) -> Result<BundleDeployment> {
        let repository = format!("{folder}/web");
        let digest = self.registry.mirror(&repository, &self.chart).await?;
        self.registry.attach(&repository, &digest, found).await?;
        op(
            &format!("oci://{}/{repository}", self.registry.host()),
            "",
            "1.1.0",
        )
    }
}

#[tokio::test]
async fn charts_signed_by_cosign_are_deployed_from_a_real_registry() -> Result<()> {
    let scene = Scene::set().await?;
    let release = "release@test.invalid";
    let cases = [
        ("attached-key", key("key")?, "by key, attached"),
        ("attached-rsa", key("rsa")?, "by key, attached"),
        ("attached-p384", key("p384")?, "by key, attached"),
        ("attached-both", key("other")?, "by key, attached"),
        ("attached-key-log", logged_key()?, "by key, attached"),
        (
            "attached-identity",
            identity(release, "root.json")?,
            "by identity release@test.invalid, attached",
        ),
        ("bundle-key", key("key")?, "by key, as a bundle"),
        ("bundle-rsa", key("rsa")?, "by key, as a bundle"),
        ("bundle-p384", key("p384")?, "by key, as a bundle"),
        ("bundle-key-log", logged_key()?, "by key, as a bundle"),
        (
            "bundle-identity",
            identity(release, "root.json")?,
            "by identity release@test.invalid, as a bundle",
        ),
        (
            "bundle-other-root",
            identity(release, "other-root.json")?,
            "by identity release@test.invalid, as a bundle",
        ),
    ];
    for (case, signer, reported) in cases {
        let bundle = scene.signed(case, &Signatures::read(case)?).await?;
        let by = judged(&scene.fetcher, &bundle, &policy(&signer)?).await;
        let by = by.with_context(|| case.to_owned())?;
        ensure!(by.contains(reported), "{case}: {by}");
        // What vouched once is remembered; another policy is another question.
        let again = judged(&scene.fetcher, &bundle, &policy(&key("ed25519")?)?).await;
        ensure!(
            matches!(again, Err(BundleError::Refused(_))),
            "{case}: {again:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn unsigned_charts_of_a_real_registry_are_refused() -> Result<()> {
    let scene = Scene::set().await?;
    let release = "release@test.invalid";
    let mut stripped = Signatures::read("attached-key")?;
    stripped.attached[0].1 = json!({});
    let mut tampered = Signatures::read("attached-key")?;
    tampered.attached[0].0 = tampered.attached[0]
        .0
        .replace("cosign container", "other container");
    let mut bundle = Signatures::read("bundle-key")?;
    bundle.bundles[0] = bundle.bundles[0].replacen("\"payload\":\"eyJ", "\"payload\":\"eyI", 1);
    let mut huge = Signatures::read("attached-key")?;
    huge.attached[0].0 += &" ".repeat(2 << 20);
    let mut many = Signatures::read("bundle-other-key")?;
    many.bundles = vec![many.bundles[0].clone(); 230];
    let swapped = Signatures {
        attached: Signatures::read("attached-identity")?.attached,
        bundles: Vec::new(),
    };
    let named = json!({"cosign": {"publicKey": text("key.pub")?}});
    let cases = [
        (
            "unsigned",
            Signatures::default(),
            key("key")?,
            "found no signature",
        ),
        (
            "wrong-key",
            Signatures::read("attached-other-key")?,
            key("key")?,
            "not by this key",
        ),
        (
            "wrong-bundle-key",
            Signatures::read("bundle-other-key")?,
            key("key")?,
            "not by this key",
        ),
        (
            "wrong-kind",
            Signatures::read("attached-key")?,
            key("rsa")?,
            "not by this key",
        ),
        (
            "ed25519ph",
            Signatures::read("attached-ed25519")?,
            key("ed25519")?,
            "Ed25519ph",
        ),
        (
            "elsewhere",
            Signatures::read("attached-other-name")?,
            key("key")?,
            "another repository",
        ),
        (
            "mirrored",
            Signatures::read("attached-key")?,
            named,
            "another repository",
        ),
        (
            "replayed",
            Signatures::read("old")?,
            key("key")?,
            "another digest",
        ),
        ("stripped", stripped, key("key")?, "it has no annotation"),
        ("tampered", tampered, key("key")?, "not by this key"),
        ("tampered-bundle", bundle, key("key")?, "cannot be read"),
        (
            "attested",
            Signatures::read("bundle-attested")?,
            key("key")?,
            "no signature but a statement",
        ),
        ("huge", huge, key("key")?, "found no signature"),
        (
            "many",
            many,
            key("key")?,
            "found 200 signature bundles, and at least 30 more than are looked at",
        ),
        (
            "unlogged",
            Signatures::read("attached-key")?,
            logged_key()?,
            "no entry of a transparency log",
        ),
        (
            "unlogged-bundle",
            Signatures::read("bundle-key")?,
            logged_key()?,
            "no entry of a transparency log",
        ),
        (
            "logged-for-another",
            swapped,
            logged_key()?,
            "not by this key",
        ),
        (
            "other-identity",
            Signatures::read("bundle-other-identity")?,
            identity(release, "root.json")?,
            "got other@test.invalid",
        ),
        (
            "other-issuer",
            Signatures::read("bundle-other-issuer")?,
            identity(release, "root.json")?,
            "https://other.test.invalid",
        ),
        (
            "other-root",
            Signatures::read("bundle-other-root")?,
            identity(release, "root.json")?,
            "is expected",
        ),
        (
            "other-root-attached",
            Signatures::read("attached-identity")?,
            identity(release, "other-root.json")?,
            "is expected",
        ),
    ];
    for (case, found, signer, reported) in cases {
        let bundle = scene.signed(case, &found).await?;
        match judged(&scene.fetcher, &bundle, &policy(&signer)?).await {
            Err(error @ BundleError::Refused(_)) => {
                let text = error.to_string();
                ensure!(text.contains(reported), "{case}: {text}");
            }
            other => bail!("{case}: {other:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_good_signature_is_found_behind_many_others() -> Result<()> {
    let scene = Scene::set().await?;
    let (other, good) = (
        Signatures::read("bundle-other-key")?,
        Signatures::read("bundle-key")?,
    );
    let mut hidden = Signatures {
        bundles: vec![other.bundles[0].clone(); 120],
        ..Signatures::default()
    };
    hidden.bundles.extend(good.bundles);
    let bundle = scene.signed("hidden", &hidden).await?;
    let by = judged(&scene.fetcher, &bundle, &policy(&key("key")?)?).await?;
    ensure!(by.contains("by key, as a bundle"), "{by}");
    Ok(())
}

/// The manifest decides which archive is signed for: another one behind the same tag, or none of that version, is not it.
#[tokio::test]
async fn a_tag_that_moves_takes_no_signature_along() -> Result<()> {
    let scene = Scene::set().await?;
    let signer = policy(&key("key")?)?;
    let bundle = scene
        .signed("attached-moved", &Signatures::read("attached-key")?)
        .await?;
    judged(&scene.fetcher, &bundle, &signer).await?;
    // Another archive under the tag; the signatures stay where they were.
    let archive = std::fs::read(specimen("rsa.tgz"))?;
    let repository = "attached-moved/web";
    let pushed = scene.registry;
    pushed
        .push_with_provenance(repository, "1.1.0", archive, b"none".to_vec())
        .await?;
    let fetcher = Fetcher::new(Settings::default());
    let refused = judged(&fetcher, &bundle, &signer).await;
    ensure!(
        matches!(&refused, Err(BundleError::Refused(why)) if why.to_string().contains("found no signature")),
        "{refused:?}"
    );
    // A signed chart under the tag of another version, and in the repository of another chart.
    for (name, version) in [("web", "1.2.0"), ("db", "1.1.0")] {
        let repository = format!("attached-as/{name}");
        let digest = pushed.mirror(&repository, &scene.chart).await?;
        let signed = Signatures::read("attached-key")?;
        pushed.attach(&repository, &digest, &signed).await?;
        pushed.tag(&repository, version, &scene.chart).await?;
        let bundle = op(
            &format!("oci://{}/{repository}", pushed.host()),
            "",
            version,
        )?;
        let refused = judged(&fetcher, &bundle, &signer).await;
        ensure!(
            matches!(&refused, Err(BundleError::Refused(why)) if why.to_string().contains("says that it is")),
            "{refused:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn provenance_is_judged_from_registries_and_repositories() -> Result<()> {
    let scene = Scene::set().await?;
    let keys = |name: &str| -> Result<Policy> {
        policy(
            &json!({"name": "maintainers", "provenance": {"keyring": text(&format!("{name}.asc"))?}}),
        )
    };
    let bytes = |name: &str| std::fs::read(specimen(name));
    let good = ["rsa", "subkey", "ed25519"];
    for case in good {
        let (archive, keyring) = match case {
            "subkey" => ("rsa.tgz", "subkey-maintainer"),
            "ed25519" => ("ed25519.tgz", "ed25519-maintainer"),
            _ => ("rsa.tgz", "rsa-maintainer"),
        };
        let file = bytes(&format!("{case}.prov"))?;
        let repository = format!("provenance-{case}/web");
        scene
            .registry
            .push_with_provenance(&repository, "1.1.0", bytes(archive)?, file.clone())
            .await?;
        scene.repository.add_archive(bytes(archive)?)?;
        scene.repository.add_provenance("web", "1.1.0", file);
        // An agent that remembers nothing: the repository serves another archive of that version each time.
        let fetcher = Fetcher::new(Settings::default());
        for bundle in [
            op(
                &format!("oci://{}/{repository}", scene.registry.host()),
                "",
                "1.1.0",
            )?,
            op(scene.repository.url(), "web", "1.1.0")?,
        ] {
            let by = judged(&fetcher, &bundle, &keys(keyring)?).await;
            ensure!(by.context(case)?.contains("by provenance file"));
            let refused = judged(&fetcher, &bundle, &keys("stranger")?).await;
            ensure!(
                matches!(refused, Err(BundleError::Refused(_))),
                "{case}: {refused:?}"
            );
        }
    }
    for (case, keyring, reported) in [
        ("stranger", "rsa-maintainer", "is not in the keyring"),
        ("revoked", "revoked", "is revoked"),
        ("ended", "ended", "has expired"),
        ("sha1", "rsa-maintainer", "SHA-1"),
    ] {
        scene.repository.add_archive(bytes("rsa.tgz")?)?;
        scene
            .repository
            .add_provenance("web", "1.1.0", bytes(&format!("{case}.prov"))?);
        let fetcher = Fetcher::new(Settings::default());
        let bundle = op(scene.repository.url(), "web", "1.1.0")?;
        match judged(&fetcher, &bundle, &keys(keyring)?).await {
            Err(error @ BundleError::Refused(_)) => {
                let text = error.to_string();
                ensure!(text.contains(reported), "{case}: {text}");
            }
            other => bail!("{case}: {other:?}"),
        }
    }
    Ok(())
}
