//! Whether a chart that was fetched has what the signature policy asks for.
//!
//! What is checked is the bytes that are deployed: they are hashed here, wherever they come from, so a chart that was remembered or cached
//! is held against the policy that is in force now.

use ::chart::Metadata;
use ::chart::source::{
    Access, ChartRef, ChartSignatures, FetchedChart, Fetcher, Reference, SignatureKinds,
};
use golib::semver::{Constraint, Version};
use sha2::{Digest as _, Sha256};
use signatures::policy::BundleRule;
use signatures::{Address, Attached, Demands, Evidence, Policy, Refusal, Subject, Verified};
use tokio::time::Instant;

use super::error::BundleError;
use crate::api::{ANNOTATION_SIGNATURES, BundleDeployment, HelmOptions};

/// What a bundle's chart must have: by the agent's policy, and by the bundle's own rule, which only adds to it.
#[derive(Clone, Debug)]
pub struct Requirements<'a> {
    policy: &'a Policy,
    own: Vec<BundleRule>,
}

impl<'a> Requirements<'a> {
    /// The requirements for this bundle.
    ///
    /// # Errors
    /// [`BundleError::SignatureRule`] where the bundle's rule is malformed: what it asks for cannot be read.
    pub fn of(
        bundle_deployment: &BundleDeployment,
        policy: &'a Policy,
    ) -> Result<Self, BundleError> {
        // A label and an annotation are two rules: neither takes the other away.
        let texts = [
            bundle_deployment.annotation(ANNOTATION_SIGNATURES),
            bundle_deployment.label(ANNOTATION_SIGNATURES),
        ];
        let own = texts.into_iter().flatten().map(BundleRule::parse);
        Ok(Self {
            policy,
            own: own
                .collect::<Result<_, _>>()
                .map_err(BundleError::SignatureRule)?,
        })
    }

    /// Lets files through that came by way of upstream, which nobody signs.
    ///
    /// # Errors
    /// The policy or the bundle asks for signed charts.
    pub(super) fn check_content(&self) -> Result<(), BundleError> {
        let problem = match (self.own.is_empty(), self.policy.refuses_content()) {
            (false, _) => "the bundle asks for a chart that is vouched for",
            (true, true) => "the agent's policy refuses such",
            (true, false) => return Ok(()),
        };
        let problem =
            format!("they came through the upstream cluster, and nobody signs those: {problem}");
        Err(BundleError::Refused(Refusal {
            chart: "the bundle's files".to_owned(),
            ..Subject::default().refused("content", problem)
        }))
    }

    fn demands(&self, chart: &ChartRef, subject: &Subject) -> Result<Demands<'_>, BundleError> {
        let is_in_force = self.policy.is_about_charts() || !self.own.is_empty();
        if is_in_force && chart.listed_name().is_some_and(is_ambiguous) {
            let problem = "the name that it has in its repository is no part of an address";
            let refusal = subject.refused("identity", problem.to_owned());
            return Err(BundleError::Refused(refusal));
        }
        let demands = self.policy.demands(subject, &self.own);
        demands.map_err(BundleError::Refused)
    }

    /// Fetches a chart and lets it through if it has the signatures it needs; its signers, if it had to be signed. `since` as for
    /// [`Fetcher::fetch_since`].
    ///
    /// # Errors
    /// [`BundleError::Fetch`] for the chart or its signatures, [`BundleError::Refused`].
    pub(super) async fn fetch(
        &self,
        fetcher: &Fetcher,
        chart: &ChartRef,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<(FetchedChart, Option<Verified>), BundleError> {
        let fetched = fetcher.fetch_since(chart, access, since).await?;
        let subject = subject(chart, &fetched)?;
        // What a registry's manifest names is checked when it is fetched, and here once more, whoever kept it meanwhile.
        if fetched.manifest.is_some()
            && fetched.digest.starts_with("sha256:")
            && fetched.digest != subject.archive
        {
            let problem = format!("its manifest names the archive {}", fetched.digest);
            return Err(BundleError::Refused(subject.refused("digest", problem)));
        }
        let demands = self.demands(chart, &subject)?;
        if demands.are_none() {
            return Ok((fetched, None));
        }
        let verified = check(fetcher, chart, access, &fetched, &subject, &demands).await?;
        Ok((fetched, Some(verified)))
    }
}

/// What a name in an index may not have: its address would be read as another one, which other rules are about.
fn is_ambiguous(name: &str) -> bool {
    name.contains(['/', '\\', '%', '?', '#']) || matches!(name, "." | "..")
}

async fn check(
    fetcher: &Fetcher,
    chart: &ChartRef,
    access: &Access,
    fetched: &FetchedChart,
    subject: &Subject,
    demands: &Demands<'_>,
) -> Result<Verified, BundleError> {
    let kinds = SignatureKinds {
        provenance: demands.provenance(),
        cosign: demands.cosign() && fetched.manifest.is_some(),
    };
    if kinds == SignatureKinds::default() {
        let checked = demands.check(subject, &Evidence::default());
        return checked.map_err(BundleError::Refused);
    }
    // Signatures that verified these bytes once do so again without a request; where none did, one may have been added since.
    if let Some(known) = fetcher.known_signatures(fetched, access, kinds).await
        && let Ok(verified) = demands.check(subject, &evidence(known))
    {
        return Ok(verified);
    }
    let signatures = fetcher.signatures(chart, fetched, access, kinds).await?;
    let checked = demands.check(subject, &evidence(signatures));
    checked.map_err(BundleError::Refused)
}

fn evidence(found: ChartSignatures) -> Evidence {
    Evidence {
        provenance: found.provenance.map(Vec::from),
        attached: found
            .attached
            .into_iter()
            .map(|one| Attached {
                payload: one.payload.into(),
                annotations: one.annotations,
            })
            .collect(),
        bundles: found.bundles.into_iter().map(Vec::from).collect(),
        left_out: found.left_out,
    }
}

/// The fetched chart as the policy matches it.
///
/// # Errors
/// [`BundleError::Fetch`] where nothing can be fetched by such a reference.
fn subject(chart: &ChartRef, fetched: &FetchedChart) -> Result<Subject, BundleError> {
    let hex = golib::hex::encode(&Sha256::digest(&fetched.bytes));
    // Of what is asked, and not of the text: a client may read that as another address than rules do.
    let asked = chart.address()?;
    let reference = match &fetched.manifest {
        Some(_) => Reference::parse(fetched.url.as_str()).ok(),
        None => None,
    };
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let file_name = match &reference {
        // As Helm names what it pulled. Without a tag nobody knows; the digest decides then.
        Some(Reference { tag: None, .. }) => String::new(),
        Some(reference) => format!("{}-{}.tgz", last(&reference.repository), fetched.version),
        None => last(&fetched.url.path().replace("%2B", "+").replace("%2b", "+")),
    };
    Ok(Subject {
        // Not as it is shown: where that hides a part it is another address.
        addresses: [&asked, &fetched.url]
            .map(|url| Address::from(&**url))
            .to_vec(),
        shown: fetched.url.to_string(),
        archive: format!("sha256:{hex}"),
        manifest: fetched.manifest.clone(),
        repository: reference
            .map(|reference| format!("{}/{}", reference.registry, reference.repository)),
        file_name,
    })
}

/// Whether a signed chart is the one that was asked for: of the version it was fetched as, and of its name. Else an old
/// chart or another one, whose signature is as good as ever, could be served in its place.
///
/// # Errors
/// [`BundleError::Refused`].
pub(super) fn check_identity(
    fetched: &FetchedChart,
    helm: Option<&HelmOptions>,
    found: &Metadata,
) -> Result<(), BundleError> {
    let refused = |problem: String| {
        let subject = Subject {
            shown: fetched.url.to_string(),
            archive: fetched.digest.clone(),
            manifest: fetched.manifest.clone(),
            ..Subject::default()
        };
        Err(BundleError::Refused(subject.refused("identity", problem)))
    };
    let chart = helm.map(super::chart::chart_ref);
    // A plain archive, or one by digest, is of whatever version it says.
    let constraint = chart.as_ref().and_then(ChartRef::constraint);
    let is_named = constraint.is_some() || Version::parse(&*fetched.version).is_ok();
    if is_named && !is_of_version(&fetched.version, &found.version) {
        return refused(format!(
            "version {} was fetched, and the chart in it says that it is {}",
            fetched.version, found.version
        ));
    }
    // What was fetched is a version by the repository's word, which may call an old one by the constraint's text.
    if let Some(asked) = constraint.filter(|asked| !is_accepted(asked, &found.version)) {
        return refused(format!(
            "version {asked} was asked for, and the chart says that it is {}",
            found.version
        ));
    }
    let repository = match &fetched.manifest {
        Some(_) => match Reference::parse(fetched.url.as_str()) {
            Ok(reference) => Some(reference),
            Err(_) => return refused("nobody knows the repository it was pulled from".to_owned()),
        },
        None => None,
    };
    let pulled = repository
        .as_ref()
        .and_then(|reference| reference.repository.rsplit('/').next());
    let listed = chart.as_ref().and_then(ChartRef::listed_name);
    let mut asked = [pulled, listed].into_iter().flatten();
    match asked.find(|asked| *asked != found.name) {
        Some(asked) => refused(format!(
            "chart {asked:?} was fetched, and the chart in it says that it is {:?}",
            found.name
        )),
        None => Ok(()),
    }
}

/// Whether a chart's version is the one that is asked for. Versions that differ in build metadata compare as equal.
fn is_of_version(asked: &str, found: &str) -> bool {
    match (Version::parse(asked), Version::parse(found)) {
        (Ok(asked), Ok(found)) => {
            asked == found && (asked.metadata().is_empty() || asked.metadata() == found.metadata())
        }
        _ => false,
    }
}

/// Whether a chart's version is one that a constraint means, or a version that says no more than it must. A constraint overlooks build metadata.
fn is_accepted(asked: &str, found: &str) -> bool {
    let version = Version::parse(asked);
    if version.is_ok_and(|asked| !asked.metadata().is_empty()) {
        return is_of_version(asked, found);
    }
    let accepts =
        |found: Version| Constraint::parse(asked).is_ok_and(|constraint| constraint.check(&found));
    Version::parse(found).is_ok_and(accepts) || is_of_version(asked, found)
}

#[cfg(test)]
mod tests {
    use ::chart::source::SafeUrl;

    use super::*;

    fn fetched(url: &str, version: &str, manifest: Option<&str>) -> FetchedChart {
        FetchedChart {
            bytes: bytes::Bytes::from_static(b"archive"),
            unpacked_bytes: 0,
            version: version.to_owned(),
            digest: String::new(),
            manifest: manifest.map(str::to_owned),
            url: SafeUrl::parse(url).unwrap(),
            is_stale: false,
        }
    }

    fn chart(repo: &str, chart: &str) -> ChartRef {
        ChartRef {
            repo: repo.into(),
            chart: chart.into(),
            version: String::new(),
        }
    }

    fn address(text: &str) -> Address {
        Address::from(&text.parse().unwrap())
    }

    #[test]
    fn a_chart_is_known_by_what_was_asked_and_what_was_fetched() {
        let listed = fetched("https://cdn.example/a/web-1.0.0%2Bb.tgz", "1.0.0+b", None);
        let listed = subject(&chart("https://h/charts/?token=x", "web"), &listed).unwrap();
        let want = [
            "https://h/charts/web",
            "https://cdn.example/a/web-1.0.0+b.tgz",
        ];
        assert_eq!(listed.addresses, want.map(address));
        assert_eq!(listed.file_name, "web-1.0.0+b.tgz");
        // Told as if another host had it, which no rule is to be asked about.
        let hidden = fetched("https://evil.example/@h/x.tgz", "1.0.0", None);
        let hidden = subject(&chart("https://evil.example", "x"), &hidden).unwrap();
        assert_eq!(
            hidden.addresses[1],
            address("https://evil.example/@h/x.tgz")
        );
        assert_eq!(hidden.shown, "https://xxxxx@h/x.tgz");
        let pulled = fetched(
            "oci://r.example/charts/web:1.0.0",
            "1.0.0",
            Some("sha256:0"),
        );
        let pulled = subject(&chart("oci://r.example/charts/web", ""), &pulled).unwrap();
        assert_eq!(pulled.repository.as_deref(), Some("r.example/charts/web"));
        assert_eq!(pulled.file_name, "web-1.0.0.tgz");
        assert!(pulled.archive.starts_with("sha256:") && pulled.archive.len() == 71);
    }

    /// A policy that pins what comes from these addresses to a digest that nothing has.
    fn pinned(source: &str) -> Policy {
        let digest = format!("sha256:{}", "0".repeat(64));
        let policy = "rules: [{name: r, sources: ['{source}'], digests: ['{digest}']}]";
        let policy = policy.replace("{source}", source);
        Policy::parse(&policy.replace("{digest}", &digest)).unwrap()
    }

    /// Whether a policy asks nothing of a chart.
    fn is_let_through(policy: &Policy, chart: &ChartRef) -> Result<bool, BundleError> {
        let fetched = fetched("https://cdn.example/x.tgz", "1.0.0", None);
        let requirements = Requirements {
            policy,
            own: Vec::new(),
        };
        let demands = requirements.demands(chart, &subject(chart, &fetched)?)?;
        Ok(demands.are_none())
    }

    #[test]
    fn no_spelling_of_a_repository_is_let_through_unsigned() {
        let policy = pinned("https://charts.vendor.example/stable/web");
        for repo in [
            "https:/charts.vendor.example/stable",
            "https:\\\\charts.vendor.example\\stable",
            "https:/\\charts.vendor.example/stable",
            "https:charts.vendor.example/stable",
            "https:///charts.vendor.example/stable",
            "https://charts.vendor.example\\stable",
            "ht\ttps://charts.vendor.example/stable",
            "https:/\n/charts.vendor.example/stable",
            "\u{1}https://charts.vendor.example/stable",
            "HTTPS://Charts.vendor.example:443//stable/",
            "https://me:secret@charts.vendor.example/x/../stable?a=b",
        ] {
            let through = is_let_through(&policy, &chart(repo, "web"));
            assert!(!matches!(through, Ok(true)), "{repo:?}");
        }
        assert!(is_let_through(&policy, &chart("https://other.example", "web")).unwrap());
    }

    #[test]
    fn a_name_that_makes_another_address_is_refused() {
        let policy = pinned("https://h/**");
        let demands =
            |policy: &Policy, name: &str| is_let_through(policy, &chart("https://h/charts", name));
        assert!(!demands(&policy, "web").unwrap());
        for name in ["../../evil.example/web", "%2e%2e", "web?x", "..", "a/b"] {
            demands(&policy, name).unwrap_err();
            assert!(demands(&Policy::default(), name).unwrap());
        }
    }

    #[test]
    fn a_chart_of_another_name_or_version_is_refused() {
        let helm = |repo: &str, chart: &str| HelmOptions {
            repo: repo.into(),
            chart: chart.into(),
            ..HelmOptions::default()
        };
        let found = |name: &str, version: &str| Metadata {
            name: name.into(),
            version: version.into(),
            ..Metadata::default()
        };
        let listed = fetched("https://h/web-1.1.0.tgz", "1.1.0", None);
        let options = helm("https://h", "web");
        check_identity(&listed, Some(&options), &found("web", "1.1.0")).unwrap();
        check_identity(&listed, Some(&options), &found("web", "1.0.0")).unwrap_err();
        check_identity(&listed, Some(&options), &found("db", "1.1.0")).unwrap_err();
        let options = helm("HTTPS://h", "web");
        check_identity(&listed, Some(&options), &found("db", "1.1.0")).unwrap_err();
        let built = fetched("https://h/web-1.5.0+up1.tgz", "1.5.0+up2", None);
        check_identity(&built, Some(&options), &found("web", "1.5.0+up2")).unwrap();
        check_identity(&built, Some(&options), &found("web", "1.5.0+up1")).unwrap_err();
        check_identity(&built, Some(&options), &found("web", "1.5.0")).unwrap_err();
        check_identity(&listed, Some(&options), &found("web", "1.1.0+up1")).unwrap();
        let pulled = fetched("oci://r.example/charts/web:1.1", "1.1", Some("sha256:0"));
        check_identity(&pulled, None, &found("web", "1.1.0")).unwrap();
        check_identity(&pulled, None, &found("db", "1.1.0")).unwrap_err();
        let options = helm("https://h", "web");
        let elsewhere = fetched("oci://r.example/charts/db:1.1.0", "1.1.0", Some("sha256:0"));
        check_identity(&elsewhere, Some(&options), &found("db", "1.1.0")).unwrap_err();
        let plain = fetched("https://h/x.tgz", "", None);
        check_identity(
            &plain,
            Some(&helm("", "https://h/x.tgz")),
            &found("web", "3.0.0"),
        )
        .unwrap();
    }

    /// A repository may list a chart under whatever text it is asked for.
    #[test]
    fn an_old_chart_is_not_served_as_what_a_constraint_means() {
        let pinned = format!("oci://r.example/web@sha256:{}", "0".repeat(64));
        let cases = [
            // Where the chart is from, what is asked for, what the source calls it, what the chart says, and whether it is let through.
            ("https://h", "^2", "^2", "0.1.0", false),
            ("https://h", "^2", "^2", "2.1.0", false),
            ("https://h", "^2", "2.1.0", "2.1.0", true),
            ("https://h", "^2", "2.1.0", "v2.1.0", true),
            ("https://h", "^2", "v2.1.0", "2.1.0+up1", true),
            ("https://h", "^2", "2.1.0+up1", "2.1.0+up1", true),
            ("https://h", "^2", "2.1.0", "0.1.0", false),
            ("https://h", "^2", "2.1.0", "none", false),
            ("https://h", "^2", "1.0.0", "1.0.0", false),
            ("https://h", "", "1.0.0", "1.0.0", true),
            ("https://h", "", "", "1.0.0", false),
            ("https://h", " 2.1.0 ", "2.1.0", "2.1.0", true),
            ("https://h", "v2.1.0", "v2.1.0", "2.1.0", true),
            ("https://h", "2.1", "2.1", "2.1.0", true),
            ("https://h", "2.1", "2.1.7", "2.1.7", true),
            ("https://h", "2.1.0", "2.0.0", "2.0.0", false),
            ("https://h", "2.1.0-rc.1", "2.1.0-rc.1", "2.1.0-rc.1", true),
            ("https://h", "2.1.0+up2", "2.1.0+up2", "2.1.0+up2", true),
            ("https://h", "2.1.0+up2", "2.1.0+up1", "2.1.0+up1", false),
            ("oci://r.example/web", "2", "2", "2.0.0", true),
            ("oci://r.example/web:2.1.0", "", "2.1.0", "2.1.0", true),
            ("oci://r.example/web:2.1.0", "", "2.0.0", "2.0.0", false),
            (&pinned, "^2", "^2", "0.1.0", true),
            (&pinned, "2.1.0", "2.1.0", "0.1.0", false),
        ];
        for (repo, asked, called, says, is_let_through) in cases {
            let helm = HelmOptions {
                repo: repo.into(),
                chart: "web".into(),
                version: asked.into(),
                ..HelmOptions::default()
            };
            let found = Metadata {
                name: "web".into(),
                version: says.into(),
                ..Metadata::default()
            };
            let (url, manifest) = match repo.starts_with("oci:") {
                true => ("oci://r.example/web", Some("sha256:0")),
                false => ("https://h/web.tgz", None),
            };
            let fetched = fetched(url, called, manifest);
            let checked = check_identity(&fetched, Some(&helm), &found);
            let case = format!("{repo} {asked:?} {called} {says}");
            assert_eq!(checked.is_ok(), is_let_through, "{case}");
        }
    }
}
